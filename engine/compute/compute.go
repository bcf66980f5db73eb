package compute

import (
	"context"
	"errors"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// ErrClosed is returned by operations on a closed Runtime, Program or Buffer.
var ErrClosed = errors.New("compute: closed")

// Runtime compiles models. Its methods are safe for concurrent use.
type Runtime interface {
	// Name says which runtime this is and its version, e.g. "onnxruntime 1.30.0 cpu".
	Name() string
	// Compile prepares a model. Initializers whose data is external are read
	// from Options.Dir.
	Compile(m *onnx.Model, opt Options) (Program, error)
	// NewBuffer allocates zeroed memory outside the Go heap. The caller closes it.
	NewBuffer(dtype tensor.DType, shape ...int) (Buffer, error)
	// Close releases the runtime; Programs and Buffers must be closed before.
	Close() error
}

// Borrower is a Runtime that can compute on memory which it did not allocate,
// such as a mapped file.
type Borrower interface {
	// Borrow makes a Buffer over data, which must stay valid and in place until
	// the Buffer and all views of it are closed, and which is only read.
	Borrow(data []byte, dtype tensor.DType, shape ...int) (Buffer, error)
}

// Options of one compilation.
type Options struct {
	Threads int    // intra-op threads, 0 = physical cores
	Dir     string // folder of external initializers, "" when there are none
	// Cache names a file that holds (or will hold) the optimised model with
	// prepacked weights; "" for none. A cache that does not fit this runtime,
	// CPU or model is written again, never trusted: Key says what it was made from.
	Cache string
	Key   string // content key of the model and its weights
}

// Program is a compiled model. Run may be called from one goroutine at a time
// per Program; different Programs run at the same time.
type Program interface {
	Inputs() []Port
	Outputs() []Port
	// Run computes out from in, both in the order of Inputs and Outputs. A nil
	// entry of out is not wanted. An output may be the same Buffer as an input
	// (in-place key/value caches). The end of ctx terminates the run with ctx's
	// error; the contents of out are then undefined.
	Run(ctx context.Context, in, out []Buffer) error
	Close() error
}

// Port is one declared input or output.
type Port struct {
	Name  string
	DType tensor.DType
	Shape []int // -1 where the model leaves a dimension open
}

// Buffer is memory of a runtime with a type and a shape. Not safe for
// concurrent use.
type Buffer interface {
	DType() tensor.DType
	Shape() []int
	// Bytes is the memory itself, little-endian, valid until Close. It is nil
	// for memory that the host cannot address.
	Bytes() []byte
	// View is a Buffer over part of the same memory, starting at element
	// offset, checked against the bounds. Closing a view frees only the view.
	View(offset int, shape ...int) (Buffer, error)
	Close() error
}
