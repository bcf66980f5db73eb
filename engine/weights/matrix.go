package weights

import (
	"fmt"

	"athanor/engine/tensor"
)

// Matrix is a source of float32 rows. Read may be called from several
// goroutines at once.
type Matrix struct {
	Name       string // for errors
	Rows, Cols int
	// Read fills dst with the rows from row on; len(dst) is a multiple of Cols.
	// What was read from a mapped file leaves this process's memory again, so
	// that a pass over a large matrix stays small.
	Read func(dst []float32, row int) error
}

// Matrix gives the rows of a tensor of rank 1 (one row) or 2.
func (a *Archive) Matrix(name string) (Matrix, error) {
	e, err := a.floats(name)
	if err != nil {
		return Matrix{}, err
	}
	m := Matrix{Name: name, Rows: 1}
	switch len(e.Shape) {
	case 1:
		m.Cols = int(e.Shape[0])
	case 2:
		m.Rows, m.Cols = int(e.Shape[0]), int(e.Shape[1])
	default:
		return Matrix{}, &Error{File: e.File, Tensor: name, Offset: e.Offset, Reason: fmt.Sprintf("shape %v is neither a vector nor a matrix", e.Shape)}
	}
	width := e.DType.Size()
	m.Read = func(dst []float32, row int) error {
		first := row * m.Cols
		if row < 0 || first+len(dst) > m.Rows*m.Cols {
			return fmt.Errorf("tensor %q has no %d values from row %d on", name, len(dst), row)
		}
		part := e.data[first*width : (first+len(dst))*width]
		defer e.from.release(int(e.Offset)+first*width, len(part))
		return guard(func() error { return tensor.Float32s(dst, part, e.DType) }, e.from)
	}
	return m, nil
}

// Float32 converts a whole tensor into dst, whose length must be its count of
// elements.
func (a *Archive) Float32(name string, dst []float32) error {
	e, err := a.floats(name)
	if err != nil {
		return err
	}
	if want := len(e.data) / e.DType.Size(); want != len(dst) {
		return &Error{File: e.File, Tensor: name, Offset: e.Offset, Reason: fmt.Sprintf("has %d elements, want %d", want, len(dst))}
	}
	return guard(func() error { return tensor.Float32s(dst, e.data, e.DType) }, e.from)
}

// floats finds a tensor of a floating-point type that can be computed with.
func (a *Archive) floats(name string) (Entry, error) {
	e, ok := a.entries[name]
	if !ok {
		return Entry{}, fmt.Errorf("tensor %q is not in the weights", name)
	}
	return e, e.Usable()
}

// Usable says, as an error, why the tensor cannot be computed with.
func (e Entry) Usable() error {
	switch e.DType {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.F64:
		return nil
	}
	return &Error{File: e.File, Tensor: e.Name, Offset: e.Offset, Reason: fmt.Sprintf("weights stored as %s are not supported; F32, F16 and BF16 are", e.Storage)}
}
