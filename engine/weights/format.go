package weights

import "athanor/engine/tensor"

// storage is an element type as safetensors names it.
type storage struct {
	bits  int64
	dtype tensor.DType // Invalid where Athanor cannot use the type
}

// storages lists every type name of the format. Types that cannot be used are
// known too, so that a file with one of them can be checked and the tensor be
// refused by name only when it is needed.
var storages = map[string]storage{
	"F64":     {64, tensor.F64},
	"F32":     {32, tensor.F32},
	"F16":     {16, tensor.F16},
	"BF16":    {16, tensor.BF16},
	"I64":     {64, tensor.I64},
	"I32":     {32, tensor.I32},
	"I8":      {8, tensor.I8},
	"U8":      {8, tensor.U8},
	"BOOL":    {8, tensor.Bool},
	"U64":     {64, tensor.Invalid},
	"U32":     {32, tensor.Invalid},
	"U16":     {16, tensor.Invalid},
	"I16":     {16, tensor.Invalid},
	"C64":     {64, tensor.Invalid},
	"F8_E4M3": {8, tensor.Invalid},
	"F8_E5M2": {8, tensor.Invalid},
	"F8_E8M0": {8, tensor.Invalid},
	"F6_E2M3": {6, tensor.Invalid},
	"F6_E3M2": {6, tensor.Invalid},
	"F4":      {4, tensor.Invalid},
}
