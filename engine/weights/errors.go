package weights

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPickle is wrapped by the error of Open for a folder whose weights are in
// Python's pickle format.
var ErrPickle = errors.New("pickle weights are never read")

// ErrNoWeights is wrapped by the error of Open for a folder without weights.
var ErrNoWeights = errors.New("no weights found")

// Error is a weight file that cannot be used. It names the file and, where
// they are known, the tensor and the byte of the file.
type Error struct {
	File   string
	Tensor string // "" when the whole file is meant
	Offset int64  // byte in the file, -1 when unknown
	Reason string
	Err    error // cause, may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %q", e.Tensor)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, ": byte %d", e.Offset)
	}
	b.WriteString(": ")
	b.WriteString(e.Reason)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
