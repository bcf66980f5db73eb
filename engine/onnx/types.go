package onnx

import (
	"errors"
	"fmt"
	"math"
)

// ErrUnsupported is wrapped by errors about valid ONNX that these structures
// cannot hold without losing its meaning, such as model-local functions.
var ErrUnsupported = errors.New("not supported")

// Bounds of Decode and Encode.
const (
	// MaxBytes is the largest encoded model: protobuf's own limit.
	MaxBytes = math.MaxInt32
	// MaxDepth is the deepest nesting of graphs in attributes.
	MaxDepth = 16
	// MaxCount is the largest number of entries in one repeated message field.
	MaxCount = 1 << 20
	// MaxRank is the largest rank of a tensor or value.
	MaxRank = 64
)

// Bits is the size of one element in bits, 0 for strings and unknown types.
func (t DataType) Bits() int {
	switch t {
	case Uint4, Int4:
		return 4
	case Uint8, Int8, BoolType:
		return 8
	case Uint16, Int16, Float16, BFloat16:
		return 16
	case Float, Int32, Uint32:
		return 32
	case Int64, Uint64, Double:
		return 64
	}
	return 0
}

// Elements is the product of the dimensions. It fails on a negative dimension
// and when the product does not fit.
func (t *Tensor) Elements() (int64, error) {
	n := int64(1)
	for i, d := range t.Dims {
		if d < 0 {
			return 0, fmt.Errorf("tensor %q: dimension %d is %d", t.Name, i, d)
		}
		if d > 0 && n > math.MaxInt64/8/d {
			return 0, fmt.Errorf("tensor %q: shape %v is too large", t.Name, t.Dims)
		}
		n *= d
	}
	return n, nil
}

// ByteSize is the number of bytes that Dims and Type ask for; 4-bit elements
// are packed in pairs. It fails for types without a fixed size.
func (t *Tensor) ByteSize() (int64, error) {
	n, err := t.Elements()
	if err != nil {
		return 0, err
	}
	bits := t.Type.Bits()
	if bits == 0 {
		return 0, fmt.Errorf("tensor %q: data type %d: %w", t.Name, t.Type, ErrUnsupported)
	}
	if bits < 8 {
		return (n + 1) / 2, nil
	}
	if n > math.MaxInt64/int64(bits) {
		return 0, fmt.Errorf("tensor %q: shape %v is too large", t.Name, t.Dims)
	}
	return n * int64(bits) / 8, nil
}
