package ort

import (
	"errors"
	"log/slog"
)

// Version is the release of ONNX Runtime that Athanor is built and tested with.
const Version = "1.30.0"

var (
	// ErrNoCgo is returned by Open in a binary built without cgo.
	ErrNoCgo = errors.New("ort: built without cgo, ONNX Runtime cannot be loaded")
	// ErrNotEmbedded is returned by Unpack when the binary carries no library.
	ErrNotEmbedded = errors.New("ort: this binary does not carry ONNX Runtime")
	// ErrNotFound is wrapped by Find when no library is there.
	ErrNotFound = errors.New("ort: ONNX Runtime library not found")
	// ErrLoaded is wrapped by Open when the process has loaded another library.
	ErrLoaded = errors.New("ort: another ONNX Runtime library is loaded")
)

// Options of Open.
type Options struct {
	// Library is the path of the shared library, e.g. as Find returns it.
	Library string
	// LogTo gets the library's messages: its errors as warnings (the failed call
	// also returns them), the rest as debug messages. Nil discards them. The
	// first Open of a process decides.
	LogTo *slog.Logger
}
