package api

import (
	"fmt"
	"net/http"
	"time"
)

// Error is an error as the client sees it: {"error":{message,type,param,code}}
// with all four keys present. Cause is for the log and never rendered.
type Error struct {
	Status     int           `json:"-"`
	Message    string        `json:"message"`
	Type       string        `json:"type"`
	Param      *string       `json:"param"`
	Code       *string       `json:"code"`
	RetryAfter time.Duration `json:"-"` // > 0 sets retry-after
	Cause      error         `json:"-"`
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error types.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypePermission     = "permission_error"
	TypeConflict       = "conflict"
	TypeTooLarge       = "request_too_large"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"
	TypeOverloaded     = "overloaded_error"
)

// Invalid is a 400 that names the field; param is its dotted path, "" for none.
func Invalid(param, format string, args ...any) *Error {
	return New(http.StatusBadRequest, TypeInvalidRequest, "", format, args...).WithParam(param)
}

// Unsupported is the 400 for a parameter that this server does not honour.
func Unsupported(param string) *Error {
	return Invalid(param, "%s is not supported by this server", param).WithCode("unsupported_parameter")
}

// Unauthorized is a 401; code is missing_api_key or invalid_api_key.
func Unauthorized(code, message string) *Error {
	return New(http.StatusUnauthorized, TypeInvalidRequest, code, "%s", message)
}

// Forbidden is a 403.
func Forbidden(format string, args ...any) *Error {
	return New(http.StatusForbidden, TypePermission, "", format, args...)
}

// NotFound is a 404 for an unknown id.
func NotFound(format string, args ...any) *Error {
	return New(http.StatusNotFound, TypeInvalidRequest, "not_found", format, args...)
}

// Conflict is a 409.
func Conflict(format string, args ...any) *Error {
	return New(http.StatusConflict, TypeConflict, "", format, args...)
}

// TooLarge is a 413 for a body over limit bytes.
func TooLarge(limit int64) *Error {
	return New(http.StatusRequestEntityTooLarge, TypeTooLarge, "request_too_large",
		"the request body is larger than the limit of %d bytes", limit)
}

// Overloaded is a 503 that asks to come back after d.
func Overloaded(d time.Duration, format string, args ...any) *Error {
	e := New(http.StatusServiceUnavailable, TypeOverloaded, "", format, args...)
	e.RetryAfter = d
	return e
}

// Internal is the 500 that hides its cause.
func Internal(cause error) *Error {
	e := New(http.StatusInternalServerError, TypeServer, "", "internal error")
	e.Cause = cause
	return e
}

// New makes an Error; an empty code is rendered as null.
func New(status int, typ, code, format string, args ...any) *Error {
	e := &Error{Status: status, Type: typ, Message: fmt.Sprintf(format, args...)}
	return e.WithCode(code)
}

// WithParam names the field; "" leaves it null.
func (e *Error) WithParam(param string) *Error {
	if param != "" {
		e.Param = &param
	}
	return e
}

// WithCode sets the code; "" leaves it as it is.
func (e *Error) WithCode(code string) *Error {
	if code != "" {
		e.Code = &code
	}
	return e
}
