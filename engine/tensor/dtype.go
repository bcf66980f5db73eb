package tensor

import "fmt"

// DType is an element type.
type DType uint8

// The element types.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I64
	I32
	I8
	U8
	Bool
	U4 // two to a byte, the first in the low half
	I4 // likewise, in two's complement
)

var dtypeNames = [...]string{"invalid", "f32", "f16", "bf16", "f64", "i64", "i32", "i8", "u8", "bool", "u4", "i4"}
var dtypeSizes = [...]int{0, 4, 2, 2, 8, 8, 4, 1, 1, 1, 0, 0}

// String is the short lower-case name.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size is the size of one element in bytes, 0 for an invalid type and for the
// types of 4 bits: see Bytes.
func (d DType) Size() int {
	if int(d) < len(dtypeSizes) {
		return dtypeSizes[d]
	}
	return 0
}

// Bytes is the size of n elements in bytes, 0 for an invalid type.
func (d DType) Bytes(n int) int {
	if d == U4 || d == I4 {
		return n/2 + n%2
	}
	return n * d.Size()
}
