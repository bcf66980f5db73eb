package app

import (
	"errors"
	"net/http"
	"time"

	"athanor/engine"
	"athanor/server/api"
	"athanor/store"
)

// retryAfter is how long a client should wait when a model cannot serve.
const retryAfter = 2 * time.Second

// mapError is the one table from sentinels and typed errors of the lower layers
// to what a client sees; nil means that it does not know the error.
func mapError(err error) *api.Error {
	var refused *engine.RequestError
	switch {
	case errors.As(err, &refused):
		return api.Invalid(refused.Param, "%s", refused.Message).WithCode(refused.Code)
	case errors.Is(err, engine.ErrOverloaded):
		return cause(api.Overloaded(retryAfter, "the model is overloaded, try again"), err)
	case errors.Is(err, engine.ErrUnavailable):
		return cause(api.Overloaded(retryAfter, "the model's worker went away or cannot start, try again"), err)
	case errors.Is(err, store.ErrBadCursor):
		return api.Invalid("after", "after is not a cursor of this list")
	case errors.Is(err, store.ErrTooLarge):
		return cause(api.New(http.StatusRequestEntityTooLarge, api.TypeTooLarge, "request_too_large", "a value is too large to store"), err)
	}
	return nil
}

func cause(e *api.Error, err error) *api.Error {
	e.Cause = err
	return e
}
