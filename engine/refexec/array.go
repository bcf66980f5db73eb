package refexec

import (
	"encoding/binary"
	"fmt"
	"math"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// maxElements bounds one array: a hostile Expand must not take the machine.
const maxElements = 1 << 30

// array is a tensor value. Floating-point elements are in f, all others in i,
// one number each whatever their size; typ says what they stand for. Between
// two operators floats have values that typ can hold: see round.
type array struct {
	typ   onnx.DataType
	shape []int
	f     []float64
	i     []int64
}

// isFloat reports whether elements of type t are kept in f.
func isFloat(t onnx.DataType) bool {
	return t == onnx.Float || t == onnx.Float16 || t == onnx.BFloat16 || t == onnx.Double
}

// newArray makes a zeroed array.
func newArray(typ onnx.DataType, shape ...int) (*array, error) {
	n := 1
	for _, d := range shape {
		if d < 0 || (d > 0 && n > maxElements/d) {
			return nil, fmt.Errorf("shape %v is negative or too large", shape)
		}
		n *= d
	}
	a := &array{typ: typ, shape: append([]int{}, shape...)}
	if isFloat(typ) {
		a.f = make([]float64, n)
	} else {
		a.i = make([]int64, n)
	}
	return a, nil
}

func (a *array) size() int {
	if isFloat(a.typ) {
		return len(a.f)
	}
	return len(a.i)
}

// withShape is the same elements in another shape of the same size.
func (a *array) withShape(shape []int) *array {
	return &array{typ: a.typ, shape: append([]int{}, shape...), f: a.f, i: a.i}
}

// set copies element j of b to element i of a.
func (a *array) set(i int, b *array, j int) {
	if isFloat(a.typ) {
		a.f[i] = b.f[j]
	} else {
		a.i[i] = b.i[j]
	}
}

// at is element i as a float.
func (a *array) at(i int) float64 {
	if isFloat(a.typ) {
		return a.f[i]
	}
	return float64(a.i[i])
}

// dtypes are the types of buffers by those of models.
var dtypes = map[onnx.DataType]tensor.DType{
	onnx.Float: tensor.F32, onnx.Float16: tensor.F16, onnx.BFloat16: tensor.BF16, onnx.Double: tensor.F64,
	onnx.Int64: tensor.I64, onnx.Int32: tensor.I32, onnx.Int8: tensor.I8, onnx.Uint8: tensor.U8, onnx.BoolType: tensor.Bool,
	onnx.Int4: tensor.I4, onnx.Uint4: tensor.U4,
}

// fromBytes reads an array from its little-endian form.
func fromBytes(typ onnx.DataType, shape []int, raw []byte) (*array, error) {
	a, err := newArray(typ, shape...)
	if err != nil {
		return nil, err
	}
	if isFloat(typ) {
		return a, readFloats(a.f, raw, dtypes[typ])
	}
	if want := (len(a.i)*typ.Bits() + 7) / 8; typ.Bits() == 0 || len(raw) != want {
		return nil, fmt.Errorf("%d bytes for shape %v of data type %d", len(raw), shape, typ)
	}
	for i := range a.i {
		a.i[i] = intAt(typ, raw, i)
	}
	return a, nil
}

// readFloats decodes floating-point elements of any type.
func readFloats(dst []float64, raw []byte, dtype tensor.DType) error {
	if dtype == tensor.F64 && len(raw) == 8*len(dst) {
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		return nil
	}
	narrow := make([]float32, len(dst))
	err := tensor.Float32s(narrow, raw, dtype)
	for i, v := range narrow {
		dst[i] = float64(v)
	}
	return err
}

// round brings every float to the nearest one that the type can hold. It is
// done once, to the results of an operator, so that kernels compute in float64.
func (a *array) round() {
	for i, v := range a.f {
		a.f[i] = rounded(a.typ, v)
	}
}

func rounded(t onnx.DataType, v float64) float64 {
	switch t {
	case onnx.Float:
		return float64(float32(v))
	case onnx.Float16:
		return float64(tensor.F16ToF32(tensor.F32ToF16(float32(v))))
	case onnx.BFloat16:
		return float64(tensor.BF16ToF32(tensor.F32ToBF16(float32(v))))
	}
	return v
}

// intAt is element i of a little-endian integer tensor; 4-bit elements are
// packed in pairs, the first in the low half.
func intAt(typ onnx.DataType, raw []byte, i int) int64 {
	switch typ {
	case onnx.Uint4:
		return int64(raw[i/2] >> (4 * (i % 2)) & 15)
	case onnx.Int4:
		return int64(int8(raw[i/2]>>(4*(i%2))<<4) >> 4)
	case onnx.Uint8, onnx.BoolType:
		return int64(raw[i])
	case onnx.Int8:
		return int64(int8(raw[i]))
	case onnx.Uint16:
		return int64(binary.LittleEndian.Uint16(raw[2*i:]))
	case onnx.Int16:
		return int64(int16(binary.LittleEndian.Uint16(raw[2*i:])))
	case onnx.Uint32:
		return int64(binary.LittleEndian.Uint32(raw[4*i:]))
	case onnx.Int32:
		return int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(raw[8*i:]))
}

// putBytes writes an array in its little-endian form.
func (a *array) putBytes(raw []byte) error {
	if a.typ == onnx.Double && len(raw) == 8*len(a.f) {
		for i, v := range a.f {
			binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(v))
		}
		return nil
	}
	if isFloat(a.typ) {
		narrow := make([]float32, len(a.f))
		for i, v := range a.f {
			narrow[i] = float32(v)
		}
		return tensor.PutFloat32s(raw, narrow, dtypes[a.typ])
	}
	size := dtypes[a.typ].Size()
	if size == 0 || len(raw) != size*len(a.i) {
		return fmt.Errorf("%d elements of data type %d for %d bytes", len(a.i), a.typ, len(raw))
	}
	var word [8]byte
	for i, v := range a.i {
		binary.LittleEndian.PutUint64(word[:], uint64(v))
		copy(raw[i*size:(i+1)*size], word[:])
	}
	return nil
}

// strides are the row-major strides of a shape.
func strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// broadcast is the common shape of several (numpy rules).
func broadcast(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		for i, d := range s {
			o := &out[rank-len(s)+i]
			switch {
			case *o == 1:
				*o = d
			case d != 1 && d != *o:
				return nil, fmt.Errorf("shapes %v do not broadcast", shapes)
			}
		}
	}
	return out, nil
}

// spread is the strides of an array as if it had the shape to: 0 where it is
// repeated.
func spread(shape, to []int) []int {
	own := strides(shape)
	s := make([]int, len(to))
	for i, d := range shape {
		if d != 1 {
			s[len(to)-len(shape)+i] = own[i]
		}
	}
	return s
}

// walk visits every index of a shape in row-major order; fn gets the position
// and the offset under each of the strides. The slice is reused.
func walk(shape []int, fn func(at int, offsets []int), strides ...[]int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	index := make([]int, len(shape))
	offsets := make([]int, len(strides))
	for at := range n {
		fn(at, offsets)
		for d := len(shape) - 1; d >= 0; d-- {
			index[d]++
			for s := range strides {
				offsets[s] += strides[s][d]
			}
			if index[d] < shape[d] {
				break
			}
			for s := range strides {
				offsets[s] -= strides[s][d] * shape[d]
			}
			index[d] = 0
		}
	}
}

// product multiplies dimensions.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// axisOf resolves a negative axis.
func axisOf(axis int64, rank int) (int, error) {
	if axis < 0 {
		axis += int64(rank)
	}
	if axis < 0 || axis >= int64(rank) {
		return 0, fmt.Errorf("axis %d of rank %d", axis, rank)
	}
	return int(axis), nil
}
