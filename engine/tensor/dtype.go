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
)

var dtypeNames = [...]string{"invalid", "f32", "f16", "bf16", "f64", "i64", "i32", "i8", "u8", "bool"}
var dtypeSizes = [...]int{0, 4, 2, 2, 8, 8, 4, 1, 1, 1}

// String is the short lower-case name.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size is the size of one element in bytes, 0 for an invalid type.
func (d DType) Size() int {
	if int(d) < len(dtypeSizes) {
		return dtypeSizes[d]
	}
	return 0
}
