package worker

import (
	"context"
	"errors"
	"net/http"

	"athanor/engine"
)

// Bounds on what crosses the socket, in bytes.
const (
	MaxRequest = 64 << 20 // body of /generate
	MaxRecord  = 64 << 20 // one line of its answer
	maxControl = 1 << 20  // launch, announcement, /info, error bodies, a line of progress
)

// record is one line of the answer to /generate; exactly one field is set.
type record struct {
	Event *engine.Event `json:"event,omitempty"`
	Error *wireError    `json:"error,omitempty"`
	Done  bool          `json:"done,omitempty"`
}

// wireError carries an error of engine.Generator or engine.Trainer across.
type wireError struct {
	Kind    kind   `json:"kind"`
	Param   string `json:"param,omitempty"`
	Code    string `json:"code,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int64  `json:"line,omitempty"`
	Message string `json:"message"`
}

type kind string

const (
	kindRequest     kind = "request"
	kindOverloaded  kind = "overloaded"
	kindUnavailable kind = "unavailable"
	kindData        kind = "data"
	kindNoMemory    kind = "no_memory"
	kindBusy        kind = "busy"
	kindInternal    kind = "internal"
)

// RemoteError is a failure inside a worker that is neither the request's fault
// nor the end of the worker. Its text is for the log, not for users.
type RemoteError struct{ Message string }

func (e *RemoteError) Error() string { return "worker: " + e.Message }

// unavailable is engine.ErrUnavailable with a reason.
type unavailable struct{ reason string }

func (e *unavailable) Error() string { return engine.ErrUnavailable.Error() + ": " + e.reason }
func (e *unavailable) Unwrap() error { return engine.ErrUnavailable }

// noMemory is engine.ErrNoMemory in the words of the worker.
type noMemory struct{ message string }

func (e *noMemory) Error() string { return e.message }
func (e *noMemory) Unwrap() error { return engine.ErrNoMemory }

func toWire(err error) *wireError {
	bad := new(engine.RequestError)
	data := new(engine.DataError)
	busy := new(engine.BusyError)
	why := new(unavailable)
	switch {
	case errors.As(err, &data):
		return &wireError{Kind: kindData, File: data.File, Line: data.Line, Message: data.Message}
	case errors.As(err, &busy):
		return &wireError{Kind: kindBusy, Message: busy.Reason}
	case errors.Is(err, engine.ErrNoMemory):
		return &wireError{Kind: kindNoMemory, Message: err.Error()}
	case errors.As(err, &bad):
		return &wireError{Kind: kindRequest, Param: bad.Param, Code: bad.Code, Message: bad.Message}
	case errors.Is(err, engine.ErrOverloaded):
		return &wireError{Kind: kindOverloaded, Message: err.Error()}
	case errors.As(err, &why):
		return &wireError{Kind: kindUnavailable, Message: why.reason}
	case errors.Is(err, engine.ErrUnavailable):
		return &wireError{Kind: kindUnavailable, Message: err.Error()}
	case errors.Is(err, context.Canceled):
		// The client is still here, so the worker itself cancelled: it stops.
		return &wireError{Kind: kindUnavailable, Message: "the worker is shutting down"}
	default:
		return &wireError{Kind: kindInternal, Message: err.Error()}
	}
}

func (e *wireError) err() error {
	switch e.Kind {
	case kindRequest:
		return &engine.RequestError{Param: e.Param, Code: e.Code, Message: e.Message}
	case kindOverloaded:
		return engine.ErrOverloaded
	case kindUnavailable:
		return &unavailable{reason: e.Message}
	case kindData:
		return &engine.DataError{File: e.File, Line: e.Line, Message: e.Message}
	case kindBusy:
		return &engine.BusyError{Reason: e.Message}
	case kindNoMemory:
		return &noMemory{message: e.Message}
	default:
		return &RemoteError{Message: e.Message}
	}
}

// status is the HTTP status of an error before the first event.
func (e *wireError) status() int {
	switch e.Kind {
	case kindRequest:
		return http.StatusBadRequest
	case kindOverloaded:
		return http.StatusTooManyRequests
	case kindUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
