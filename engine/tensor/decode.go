package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Float32s decodes little-endian floating-point elements of type d from src
// into dst. src must hold exactly len(dst) elements; d is F32, F16, BF16 or
// F64 (which is rounded).
func Float32s(dst []float32, src []byte, d DType) error {
	if size := d.Size(); len(src) != len(dst)*size || size == 0 {
		return fmt.Errorf("decode %d bytes of %s into %d values: sizes differ", len(src), d, len(dst))
	}
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		return fmt.Errorf("decode %s as float32: not a floating-point type", d)
	}
	return nil
}

// PutFloat32s encodes src as little-endian elements of type d (F32, F16 or
// BF16, rounded to nearest even) into dst, which must have exactly their size.
func PutFloat32s(dst []byte, src []float32, d DType) error {
	if size := d.Size(); len(dst) != len(src)*size || size == 0 {
		return fmt.Errorf("encode %d values as %s into %d bytes: sizes differ", len(src), d, len(dst))
	}
	switch d {
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(v))
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
		}
	default:
		return fmt.Errorf("encode float32 as %s: not supported", d)
	}
	return nil
}

// Elements multiplies the dimensions of a shape; it reports false for a
// negative dimension and where the product does not fit an int64.
func Elements(shape []int64) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
	}
	for _, d := range shape {
		if d == 0 {
			return 0, true
		}
		if n > math.MaxInt64/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}
