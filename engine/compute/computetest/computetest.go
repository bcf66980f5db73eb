package computetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Model makes a model of nodes; Opsets and IRVersion are those of Athanor.
func Model(g *onnx.Graph) *onnx.Model {
	if g.Name == "" {
		g.Name = "test"
	}
	return &onnx.Model{
		IRVersion: onnx.IRVersion, Producer: "athanor", Graph: g,
		Opsets: []onnx.Opset{{Version: onnx.OpsetONNX}, {Domain: onnx.DomainMicrosoft, Version: onnx.OpsetMicrosoft}},
	}
}

// Node makes a node. An operator named "domain::Op" is of that domain.
func Node(op string, inputs, outputs []string, attrs ...onnx.Attribute) *onnx.Node {
	n := &onnx.Node{OpType: op, Inputs: inputs, Outputs: outputs, Attributes: attrs}
	const ms = onnx.DomainMicrosoft + "::"
	if len(op) > len(ms) && op[:len(ms)] == ms {
		n.Domain, n.OpType = onnx.DomainMicrosoft, op[len(ms):]
	}
	return n
}

// Int, Ints, Float and Str make attributes.
func Int(name string, v int64) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrInt, I: v}
}

// Ints makes an attribute of integers.
func Ints(name string, v ...int64) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrInts, Ints: v}
}

// Float makes an attribute of one float.
func Float(name string, v float32) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrFloat, F: v}
}

// Str makes an attribute of one string.
func Str(name, v string) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrString, S: []byte(v)}
}

// Value declares an input or output; a dimension is an int or the name of an
// open one.
func Value(name string, t onnx.DataType, dims ...any) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: name, Type: t, Dims: []onnx.Dim{}}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			v.Dims = append(v.Dims, onnx.Dim{Size: int64(d)})
		case string:
			v.Dims = append(v.Dims, onnx.Dim{Symbol: d})
		default:
			panic(fmt.Sprintf("dimension %v", d))
		}
	}
	return v
}

// Number is an element that a test writes or reads.
type Number interface {
	float32 | int64 | int32 | uint8 | int8
}

// Tensor makes an initializer.
func Tensor[T Number](name string, dims []int64, values ...T) *onnx.Tensor {
	raw := Bytes(values)
	t := &onnx.Tensor{Name: name, Dims: dims, Raw: raw}
	switch any(values).(type) {
	case []float32:
		t.Type = onnx.Float
	case []int64:
		t.Type = onnx.Int64
	case []int32:
		t.Type = onnx.Int32
	case []uint8:
		t.Type = onnx.Uint8
	case []int8:
		t.Type = onnx.Int8
	}
	return t
}

// Bytes is the little-endian form of values.
func Bytes[T Number](values []T) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return b
}

// MustBuffer makes a buffer with values, closed when the test ends.
func MustBuffer[T Number](t testing.TB, rt compute.Runtime, shape []int, values ...T) compute.Buffer {
	t.Helper()
	var zero T
	dtype := map[string]tensor.DType{
		"float32": tensor.F32, "int64": tensor.I64, "int32": tensor.I32, "uint8": tensor.U8, "int8": tensor.I8,
	}[fmt.Sprintf("%T", zero)]
	b := MustNew(t, rt, dtype, shape...)
	if raw := Bytes(values); len(values) > 0 && copy(b.Bytes(), raw) != len(b.Bytes()) {
		t.Fatalf("%d values for shape %v", len(values), shape)
	}
	return b
}

// MustNew makes a zeroed buffer, closed when the test ends.
func MustNew(t testing.TB, rt compute.Runtime, dtype tensor.DType, shape ...int) compute.Buffer {
	t.Helper()
	b, err := rt.NewBuffer(dtype, shape...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// MustCompile compiles a model, closed when the test ends.
func MustCompile(t testing.TB, rt compute.Runtime, m *onnx.Model, opt compute.Options) compute.Program {
	t.Helper()
	p, err := rt.Compile(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Floats reads a float32 buffer.
func Floats(b compute.Buffer) []float32 {
	raw := b.Bytes()
	v := make([]float32, len(raw)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

// SetFloats writes a float32 buffer.
func SetFloats(b compute.Buffer, v []float32) { copy(b.Bytes(), Bytes(v)) }

// Random returns n floats in [-1, 1), the same for the same seed.
func Random(seed uint64, n int) []float32 {
	v := make([]float32, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range v {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		v[i] = float32(int32(x>>32)) / (1 << 31)
	}
	return v
}

// Close fails the test unless got equals want within tol, which is relative to
// the largest magnitude of want.
func Close(t testing.TB, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d values, want %d", what, len(got), len(want))
	}
	scale, worst, at := 1e-6, 0.0, 0
	for i, w := range want {
		scale = math.Max(scale, math.Abs(float64(w)))
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > worst {
			worst, at = d, i
		}
	}
	if worst/scale > tol {
		t.Errorf("%s: element %d: got %v, want %v (relative difference %.3g, tolerance %.3g)", what, at, got[at], want[at], worst/scale, tol)
	}
}
