package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// External is a weight whose data lies in a file beside the model.
func (g *Graph) External(name string, dtype tensor.DType, shape []int, at *onnx.External) *Value {
	v := g.initializer(name, dtype, shape, &onnx.Tensor{External: at})
	if want := byteSize(v); at == nil || at.Length != want {
		fail("External", "%s needs %d bytes, its place is %+v", v, want, at)
	}
	return v
}

// Floats is a float32 weight inside of the model.
func (g *Graph) Floats(name string, shape []int, values []float32) *Value {
	raw := make([]byte, 4*len(values))
	if err := tensor.PutFloat32s(raw, values, tensor.F32); err != nil {
		fail("Floats", "%v", err)
	}
	v := g.initializer(name, tensor.F32, shape, &onnx.Tensor{Raw: raw})
	if byteSize(v) != int64(len(raw)) {
		fail("Floats", "%s from %d values", v, len(values))
	}
	return v
}

// Int64s is a constant vector. Equal vectors share one tensor.
func (g *Graph) Int64s(values ...int64) *Value {
	return g.constant("int64s", []int{len(values)}, values)
}

// Int64 is a constant scalar.
func (g *Graph) Int64(value int64) *Value { return g.constant("int64", nil, []int64{value}) }

func (g *Graph) constant(kind string, shape []int, values []int64) *Value {
	name := fmt.Sprintf("%s%v", kind, values)
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	v := g.shared(name, tensor.I64, shape, raw)
	v.ints = values
	return v
}

// Scalar is a floating-point constant of rank 0, rounded to its type (float32
// or float64). Equal ones share one tensor.
func (g *Graph) Scalar(value float64, dtype tensor.DType) *Value {
	var raw []byte
	switch dtype {
	case tensor.F32:
		raw = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value)))
	case tensor.F64:
		raw = binary.LittleEndian.AppendUint64(nil, math.Float64bits(value))
	default:
		fail("Scalar", "%s is neither float32 nor float64", dtype)
	}
	return g.shared(fmt.Sprintf("%s[%v]", dtype, value), dtype, nil, raw)
}

// shared is a constant that is made once under a name that tells its value.
func (g *Graph) shared(name string, dtype tensor.DType, shape []int, raw []byte) *Value {
	if v := g.b.constants[name]; v != nil {
		return v
	}
	v := g.initializer(name, dtype, shape, &onnx.Tensor{Raw: raw})
	g.b.constants[name] = v
	return v
}

func (g *Graph) initializer(name string, dtype tensor.DType, shape []int, t *onnx.Tensor) *Value {
	g.b.claim("weight", name)
	t.Name, t.Type = name, elementType("weight", dtype)
	v := &Value{name: name, dtype: dtype, fixed: true}
	for _, n := range shape {
		v.shape = append(v.shape, Fixed(n))
		t.Dims = append(t.Dims, int64(n))
	}
	g.b.initializers = append(g.b.initializers, t)
	return v
}

// byteSize is the size of a value with fixed dimensions.
func byteSize(v *Value) int64 {
	dims := make([]int64, len(v.shape))
	for i, d := range v.shape {
		dims[i] = int64(d.size)
	}
	n, ok := tensor.Elements(dims)
	if ok && n <= (1<<62)/8 {
		return int64(v.dtype.Bytes(int(n)))
	}
	fail("weight", "%s is too large", v)
	return 0
}
