package engine

import "errors"

// ErrOverloaded is returned when the queue of a model is full; the caller may
// try again later.
var ErrOverloaded = errors.New("the model's queue is full")

// ErrUnavailable is returned when the process that served a request went away
// or cannot be started; the request itself may be fine.
var ErrUnavailable = errors.New("the model's worker is not available")

// RequestError is a request that the model cannot serve, in words for the user.
type RequestError struct {
	Param   string // dotted path of the field, "" when none
	Code    string // machine-readable, "" when none
	Message string
}

func (e *RequestError) Error() string { return e.Message }

// Codes of RequestError.
const (
	CodeContextLength = "context_length_exceeded"
	CodeTemplate      = "chat_template_error"
)
