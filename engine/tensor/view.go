package tensor

import "unsafe"

// Element is a Go type whose memory layout equals a DType's.
type Element interface {
	float32 | float64 | int64 | int32 | int8 | uint8 | uint16
}

// View looks at little-endian bytes as elements of type T without a copy. The
// memory must be aligned for T, as memory from a runtime or a file mapping at
// an aligned offset is; trailing bytes that make no whole element are left out.
func View[T Element](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
