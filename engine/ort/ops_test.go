package ort_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

// opCase is one node that both runtimes must agree on.
type opCase struct {
	name  string
	op    string
	attrs []onnx.Attribute
	in    []*onnx.Tensor // nil is an omitted input
	fixed []int          // which inputs are initializers
	out   []shaped       // an empty type is an output that is not named
	tol   float64
}

type shaped struct {
	t     onnx.DataType
	shape []int
}

// f makes a float input with values of its own for each shape and seed.
func f(seed uint64, shape ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return computetest.Tensor("", shape, computetest.Random(seed, int(n))...)
}

func positive(x *onnx.Tensor) *onnx.Tensor {
	for i := 3; i < len(x.Raw); i += 4 {
		x.Raw[i] &= 0x7f
	}
	return x
}

func i64(shape []int64, v ...int64) *onnx.Tensor { return computetest.Tensor("", shape, v...) }
func vec(v ...int64) *onnx.Tensor                { return i64([]int64{int64(len(v))}, v...) }

// u8 makes bytes that look random.
func u8(shape ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	b := make([]uint8, n)
	for i, v := range computetest.Random(9, int(n)) {
		b[i] = uint8(int(v*128) + 128)
	}
	return computetest.Tensor("", shape, b...)
}

// as gives bytes another type, e.g. 4-bit elements, and shape.
func as(t onnx.DataType, x *onnx.Tensor, shape ...int64) *onnx.Tensor {
	x.Type, x.Dims = t, shape
	return x
}

func bools(v ...uint8) *onnx.Tensor {
	return as(onnx.BoolType, computetest.Tensor("", []int64{int64(len(v))}, v...), int64(len(v)))
}

func f32(shape ...int) shaped { return shaped{onnx.Float, shape} }
func out64(shape ...int) shaped {
	return shaped{onnx.Int64, shape}
}

// add are the attributes of a scatter that adds up.
func add(a ...onnx.Attribute) []onnx.Attribute { return append(a, computetest.Str("reduction", "add")) }

func attrs(a ...onnx.Attribute) []onnx.Attribute { return a }

func elementwiseCases() []opCase {
	var list []opCase
	for _, op := range []string{"Sigmoid", "Sqrt", "Neg", "Abs", "Tanh", "Erf", "Exp", "Log", "Cos", "Sin", "Reciprocal", "Relu"} {
		x := f(1, 3, 5)
		if op == "Sqrt" || op == "Log" {
			x = positive(x)
		}
		list = append(list, opCase{name: op, op: op, in: []*onnx.Tensor{x}, out: []shaped{f32(3, 5)}})
	}
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min"} {
		list = append(list,
			opCase{name: op, op: op, in: []*onnx.Tensor{f(1, 2, 3, 4), f(2, 2, 3, 4)}, out: []shaped{f32(2, 3, 4)}},
			opCase{name: op + " broadcast", op: op, in: []*onnx.Tensor{f(1, 2, 1, 4), f(2, 3, 1)}, out: []shaped{f32(2, 3, 4)}},
			opCase{name: op + " int64", op: op, in: []*onnx.Tensor{vec(7, -7, 9), i64(nil, 2)}, out: []shaped{out64(3)}})
	}
	for _, op := range []string{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"} {
		list = append(list,
			opCase{name: op, op: op, in: []*onnx.Tensor{vec(1, 2, 3), i64([]int64{1}, 2)}, out: []shaped{{onnx.BoolType, []int{3}}}},
			opCase{name: op + " floats", op: op, in: []*onnx.Tensor{computetest.Tensor("", []int64{3}, []float32{-1, 0.5, 2}...), computetest.Tensor("", []int64{1}, []float32{0.5}...)}, out: []shaped{{onnx.BoolType, []int{3}}}})
	}
	return append(list,
		opCase{name: "Max of three", op: "Max", in: []*onnx.Tensor{f(1, 4), f(2, 4), f(3, 4)}, out: []shaped{f32(4)}},
		opCase{name: "Pow", op: "Pow", in: []*onnx.Tensor{positive(f(1, 6)), f(2, 6)}, out: []shaped{f32(6)}},
		opCase{name: "Pow int exponent", op: "Pow", in: []*onnx.Tensor{f(1, 6), i64(nil, 2)}, out: []shaped{f32(6)}},
		opCase{name: "And", op: "And", in: []*onnx.Tensor{bools(0, 0, 1, 1), bools(0, 1, 0, 1)}, out: []shaped{{onnx.BoolType, []int{4}}}},
		opCase{name: "Or", op: "Or", in: []*onnx.Tensor{bools(0, 0, 1, 1), bools(0, 1, 0, 1)}, out: []shaped{{onnx.BoolType, []int{4}}}},
		opCase{name: "QuickGelu", op: "com.microsoft::QuickGelu", attrs: attrs(computetest.Float("alpha", 1)), in: []*onnx.Tensor{f(1, 4, 5)}, out: []shaped{f32(4, 5)}},
		opCase{name: "QuickGelu default", op: "com.microsoft::QuickGelu", in: []*onnx.Tensor{f(1, 4, 5)}, out: []shaped{f32(4, 5)}},
		opCase{name: "Where", op: "Where", in: []*onnx.Tensor{bools(1, 0, 1), f(1, 2, 3), f(2, 2, 1)}, out: []shaped{f32(2, 3)}},
		opCase{name: "Cast to int64", op: "Cast", attrs: attrs(computetest.Int("to", int64(onnx.Int64))), in: []*onnx.Tensor{computetest.Tensor("", []int64{4}, []float32{-1.7, 1.7, 0, 3}...)}, out: []shaped{out64(4)}},
		opCase{name: "Cast to float", op: "Cast", attrs: attrs(computetest.Int("to", int64(onnx.Float))), in: []*onnx.Tensor{vec(-3, 5)}, out: []shaped{f32(2)}},
		opCase{name: "Cast to bool", op: "Cast", attrs: attrs(computetest.Int("to", int64(onnx.BoolType))), in: []*onnx.Tensor{vec(-3, 0, 5)}, out: []shaped{{onnx.BoolType, []int{3}}}},
		opCase{name: "Cast to float16", op: "Cast", attrs: attrs(computetest.Int("to", int64(onnx.Float16))), in: []*onnx.Tensor{f(4, 9)}, out: []shaped{{onnx.Float16, []int{9}}}},
		opCase{name: "Range", op: "Range", in: []*onnx.Tensor{i64(nil, 3), i64(nil, 12), i64(nil, 4)}, out: []shaped{out64(3)}},
		opCase{name: "Range down", op: "Range", in: []*onnx.Tensor{i64(nil, 3), i64(nil, -3), i64(nil, -2)}, out: []shaped{out64(3)}},
	)
}

func shapeCases() []opCase {
	i := computetest.Int
	return []opCase{
		{name: "Reshape", op: "Reshape", in: []*onnx.Tensor{f(1, 2, 3, 4), vec(0, -1, 2)}, out: []shaped{f32(2, 6, 2)}},
		{name: "Transpose", op: "Transpose", attrs: attrs(computetest.Ints("perm", 2, 0, 1)), in: []*onnx.Tensor{f(1, 2, 3, 4)}, out: []shaped{f32(4, 2, 3)}},
		{name: "Transpose default", op: "Transpose", in: []*onnx.Tensor{f(1, 2, 3)}, out: []shaped{f32(3, 2)}},
		{name: "Concat", op: "Concat", attrs: attrs(i("axis", -1)), in: []*onnx.Tensor{f(1, 2, 3), f(2, 2, 1), f(3, 2, 2)}, out: []shaped{f32(2, 6)}},
		{name: "Concat rows", op: "Concat", attrs: attrs(i("axis", 0)), in: []*onnx.Tensor{vec(1, 2), vec(3)}, out: []shaped{out64(3)}},
		{name: "Split", op: "Split", attrs: attrs(i("axis", 1)), in: []*onnx.Tensor{f(1, 2, 5, 2), vec(1, 4)}, out: []shaped{f32(2, 1, 2), f32(2, 4, 2)}},
		{name: "Split uneven", op: "Split", attrs: attrs(i("axis", 0), i("num_outputs", 2)), in: []*onnx.Tensor{f(1, 5)}, out: []shaped{f32(3), f32(2)}},
		{name: "Slice", op: "Slice", in: []*onnx.Tensor{f(1, 4, 6), vec(1, -2), vec(3, 99), vec(0, 1)}, out: []shaped{f32(2, 2)}},
		{name: "Slice steps", op: "Slice", in: []*onnx.Tensor{f(1, 7, 3), vec(0), vec(7), vec(0), vec(3)}, out: []shaped{f32(3, 3)}},
		{name: "Slice back", op: "Slice", in: []*onnx.Tensor{f(1, 7), vec(-1), vec(math.MinInt64), vec(0), vec(-2)}, out: []shaped{f32(4)}},
		{name: "Shape", op: "Shape", in: []*onnx.Tensor{f(1, 4, 6, 2)}, out: []shaped{out64(3)}},
		{name: "Shape part", op: "Shape", attrs: attrs(i("start", 1), i("end", -1)), in: []*onnx.Tensor{f(1, 4, 6, 2)}, out: []shaped{out64(1)}},
		{name: "Unsqueeze", op: "Unsqueeze", in: []*onnx.Tensor{f(1, 4, 6), vec(0, -1)}, out: []shaped{f32(1, 4, 6, 1)}},
		{name: "Squeeze", op: "Squeeze", in: []*onnx.Tensor{f(1, 1, 6, 1), vec(-1)}, out: []shaped{f32(1, 6)}},
		{name: "Squeeze all", op: "Squeeze", in: []*onnx.Tensor{f(1, 1, 6, 1)}, out: []shaped{f32(6)}},
		{name: "Expand", op: "Expand", in: []*onnx.Tensor{f(1, 3, 1), vec(2, 1, 4)}, out: []shaped{f32(2, 3, 4)}},
		{name: "Gather", op: "Gather", in: []*onnx.Tensor{f(1, 5, 3), i64([]int64{2, 2}, 4, 0, -1, 2)}, out: []shaped{f32(2, 2, 3)}},
		{name: "Gather columns", op: "Gather", attrs: attrs(i("axis", 1)), in: []*onnx.Tensor{f(1, 2, 5, 3), i64(nil, 3)}, out: []shaped{f32(2, 3)}},
		{name: "GatherND", op: "GatherND", in: []*onnx.Tensor{f(1, 3, 4, 2), i64([]int64{2, 2}, 2, 3, 0, -1)}, out: []shaped{f32(2, 2)}},
		{name: "GatherND last row", op: "GatherND", attrs: attrs(i("batch_dims", 1)), in: []*onnx.Tensor{f(1, 3, 4, 5), i64([]int64{3, 1}, 2, 0, 3)}, out: []shaped{f32(3, 5)}},
		{name: "GatherND last rows", op: "GatherND", attrs: attrs(i("batch_dims", 1)), in: []*onnx.Tensor{f(1, 2, 4, 5), i64([]int64{2, 2, 1}, 2, 0, 3, 1)}, out: []shaped{f32(2, 2, 5)}},
		{name: "GatherElements", op: "GatherElements", attrs: attrs(i("axis", 1)), in: []*onnx.Tensor{f(1, 2, 5, 3), i64([]int64{2, 2, 3}, 0, 4, -1, 2, 2, 1, 3, 3, 3, 0, -5, 4)}, out: []shaped{f32(2, 2, 3)}},
		{name: "ScatterElements", op: "ScatterElements", attrs: add(i("axis", 1)), in: []*onnx.Tensor{f(1, 2, 5), i64([]int64{2, 3}, 4, 4, 0, -1, 2, 4), f(2, 2, 3)}, out: []shaped{f32(2, 5)}},
		{name: "ScatterND rows", op: "ScatterND", attrs: add(), in: []*onnx.Tensor{f(1, 4, 3), i64([]int64{3, 1}, 2, 0, 2), f(2, 3, 3)}, out: []shaped{f32(4, 3)}},
		{name: "ScatterND elements", op: "ScatterND", attrs: add(), in: []*onnx.Tensor{f(1, 4, 3), i64([]int64{2, 2}, 2, 0, 2, -1), f(2, 2)}, out: []shaped{f32(4, 3)}},
		{name: "Identity", op: "Identity", in: []*onnx.Tensor{f(1, 3)}, out: []shaped{f32(3)}},
		{name: "Constant", op: "Constant", attrs: attrs(onnx.Attribute{Name: "value", Type: onnx.AttrTensor, T: f(3, 2, 2)}), out: []shaped{f32(2, 2)}},
		{name: "Constant ints", op: "Constant", attrs: attrs(computetest.Ints("value_ints", 4, 5)), out: []shaped{out64(2)}},
		{name: "ConstantOfShape", op: "ConstantOfShape", attrs: attrs(onnx.Attribute{Name: "value", Type: onnx.AttrTensor, T: vec(7)}), in: []*onnx.Tensor{vec(2, 3)}, out: []shaped{out64(2, 3)}},
	}
}

func matrixCases() []opCase {
	i, fl := computetest.Int, computetest.Float
	list := []opCase{
		{name: "MatMul", op: "MatMul", in: []*onnx.Tensor{f(1, 5, 7), f(2, 7, 3)}, out: []shaped{f32(5, 3)}},
		{name: "MatMul batched", op: "MatMul", in: []*onnx.Tensor{f(1, 2, 1, 5, 7), f(2, 3, 7, 3)}, out: []shaped{f32(2, 3, 5, 3)}},
		{name: "MatMul shared weight", op: "MatMul", in: []*onnx.Tensor{f(1, 2, 5, 7), f(2, 7, 3)}, out: []shaped{f32(2, 5, 3)}},
		{name: "MatMul vectors", op: "MatMul", in: []*onnx.Tensor{f(1, 7), f(2, 2, 7, 3)}, out: []shaped{f32(2, 3)}},
		{name: "MatMul by vector", op: "MatMul", in: []*onnx.Tensor{f(1, 2, 5, 7), f(2, 7)}, out: []shaped{f32(2, 5)}},
		{name: "FusedMatMul", op: "com.microsoft::FusedMatMul", attrs: attrs(i("transB", 1), fl("alpha", 0.5)), in: []*onnx.Tensor{f(1, 2, 5, 7), f(2, 3, 7)}, out: []shaped{f32(2, 5, 3)}},
		{name: "FusedMatMul both", op: "com.microsoft::FusedMatMul", attrs: attrs(i("transA", 1), i("transB", 1)), in: []*onnx.Tensor{f(1, 7, 5), f(2, 3, 7)}, out: []shaped{f32(5, 3)}},
		{name: "Gemm", op: "Gemm", attrs: attrs(i("transB", 1), fl("alpha", 2), fl("beta", 0.5)), in: []*onnx.Tensor{f(1, 5, 7), f(2, 3, 7), f(3, 3)}, out: []shaped{f32(5, 3)}},
		{name: "Gemm transA", op: "Gemm", attrs: attrs(i("transA", 1)), in: []*onnx.Tensor{f(1, 7, 5), f(2, 7, 3), f(3, 5, 1)}, out: []shaped{f32(5, 3)}},
		{name: "Gemm no bias", op: "Gemm", in: []*onnx.Tensor{f(1, 5, 7), f(2, 7, 3)}, out: []shaped{f32(5, 3)}},
		{name: "Softmax", op: "Softmax", in: []*onnx.Tensor{f(1, 4, 9)}, out: []shaped{f32(4, 9)}},
		{name: "Softmax axis", op: "Softmax", attrs: attrs(i("axis", 1)), in: []*onnx.Tensor{f(1, 2, 5, 3)}, out: []shaped{f32(2, 5, 3)}},
		{name: "ReduceMean", op: "ReduceMean", in: []*onnx.Tensor{f(1, 2, 3, 4), vec(-1)}, fixed: []int{1}, out: []shaped{f32(2, 3, 1)}},
		{name: "ReduceMean drop", op: "ReduceMean", attrs: attrs(i("keepdims", 0)), in: []*onnx.Tensor{f(1, 2, 3, 4), vec(0, 2)}, fixed: []int{1}, out: []shaped{f32(3)}},
		{name: "ReduceSum all", op: "ReduceSum", in: []*onnx.Tensor{f(1, 2, 3)}, out: []shaped{f32(1, 1)}},
		{name: "ReduceMax", op: "ReduceMax", in: []*onnx.Tensor{f(1, 2, 3), vec(1)}, fixed: []int{1}, out: []shaped{f32(2, 1)}},
		{name: "SimplifiedLayerNormalization", op: "SimplifiedLayerNormalization", attrs: attrs(i("axis", -1), fl("epsilon", 1e-6), i("stash_type", 1)), in: []*onnx.Tensor{f(1, 2, 3, 8), f(2, 8)}, out: []shaped{f32(2, 3, 8)}},
		{name: "LayerNormalization", op: "LayerNormalization", attrs: attrs(i("axis", -1)), in: []*onnx.Tensor{f(1, 2, 3, 8), f(2, 8), f(3, 8)}, out: []shaped{f32(2, 3, 8)}},
		{name: "SkipSimplifiedLayerNormalization", op: "com.microsoft::SkipSimplifiedLayerNormalization", attrs: attrs(fl("epsilon", 1e-5)), in: []*onnx.Tensor{f(1, 2, 3, 8), f(2, 2, 3, 8), f(3, 8)}, out: []shaped{f32(2, 3, 8), {}, {}, f32(2, 3, 8)}},
		{name: "SkipSimplifiedLayerNormalization bias", op: "com.microsoft::SkipSimplifiedLayerNormalization", attrs: attrs(fl("epsilon", 1e-5)), in: []*onnx.Tensor{f(1, 2, 3, 8), f(2, 2, 3, 8), f(3, 8), f(4, 8)}, out: []shaped{f32(2, 3, 8), {}, {}, f32(2, 3, 8)}},
	}
	return list
}

func quantCases() []opCase {
	i := computetest.Int
	var list []opCase
	for _, bits := range []int64{4, 8} {
		for _, block := range []int64{32, 64, 128} {
			for _, zeros := range []string{"", "packed"} {
				const n, k = 24, 128 + 64
				blocks := (k + block - 1) / block
				c := opCase{
					name: fmt.Sprintf("MatMulNBits %d bits, blocks of %d %s", bits, block, zeros), op: "com.microsoft::MatMulNBits",
					attrs: attrs(i("K", k), i("N", n), i("bits", bits), i("block_size", block)),
					in:    []*onnx.Tensor{f(1, 2, 3, k), u8(n, blocks, block*bits/8), f(2, n, blocks)},
					fixed: []int{1, 2}, out: []shaped{f32(2, 3, n)}, tol: 2e-5,
				}
				if zeros != "" {
					c.in, c.fixed = append(c.in, u8(n, (blocks*bits+7)/8)), []int{1, 2, 3}
				}
				list = append(list, c)
				c.name, c.tol = c.name+" accuracy 4", 0.02 // activations are rounded to 8 bits
				c.attrs = append(slices.Clone(c.attrs), i("accuracy_level", 4))
				list = append(list, c)
			}
		}
		const rows, width, block = 6, 64, 16
		gatherAttrs := attrs(i("bits", bits), i("block_size", block), i("gather_axis", 0), i("quantize_axis", 1))
		ids := i64([]int64{2, 2}, 5, 0, 3, 3)
		list = append(list,
			opCase{name: fmt.Sprintf("GatherBlockQuantized %d bits", bits), op: "com.microsoft::GatherBlockQuantized", attrs: gatherAttrs,
				in: []*onnx.Tensor{u8(rows, width*bits/8), ids, f(2, rows, width/block)}, fixed: []int{0, 2}, out: []shaped{f32(2, 2, width)}},
			opCase{name: fmt.Sprintf("GatherBlockQuantized %d bits, zeros", bits), op: "com.microsoft::GatherBlockQuantized", attrs: gatherAttrs,
				in: []*onnx.Tensor{u8(rows, width*bits/8), ids, f(2, rows, width/block), u8(rows, width/block*bits/8)}, fixed: []int{0, 2, 3}, out: []shaped{f32(2, 2, width)}})
	}
	blocked := attrs(i("axis", 1), i("block_size", 32))
	return append(list,
		opCase{name: "DequantizeLinear int4 blocks", op: "DequantizeLinear", attrs: blocked,
			in: []*onnx.Tensor{as(onnx.Int4, u8(4*64/2), 4, 64), f(2, 4, 2)}, fixed: []int{0, 1}, out: []shaped{f32(4, 64)}},
		opCase{name: "DequantizeLinear uint4 blocks, zeros", op: "DequantizeLinear", attrs: blocked,
			in: []*onnx.Tensor{as(onnx.Uint4, u8(4*64/2), 4, 64), f(2, 4, 2), as(onnx.Uint4, u8(4), 4, 2)}, fixed: []int{0, 1, 2}, out: []shaped{f32(4, 64)}},
		opCase{name: "DequantizeLinear int8 block rows", op: "DequantizeLinear", attrs: attrs(i("axis", 0), i("block_size", 32)),
			in: []*onnx.Tensor{as(onnx.Int8, u8(64*4), 64, 4), f(2, 2, 4)}, fixed: []int{0, 1}, out: []shaped{f32(64, 4)}},
		opCase{name: "DequantizeLinear uint8 axis", op: "DequantizeLinear", attrs: attrs(i("axis", 0)),
			in: []*onnx.Tensor{u8(4, 6), f(2, 4), u8(4)}, fixed: []int{0, 1, 2}, out: []shaped{f32(4, 6)}},
		opCase{name: "DequantizeLinear scalar", op: "DequantizeLinear",
			in: []*onnx.Tensor{as(onnx.Int8, u8(12), 3, 4), f(2)}, fixed: []int{0, 1}, out: []shaped{f32(3, 4)}},
	)
}

// noDouble are operators that the library has in float32 only.
var noDouble = []string{"Erf", "SimplifiedLayerNormalization", "DequantizeLinear"}

// double is the same case in float64, false where there is none.
func (c opCase) double() (opCase, bool) {
	floats := false
	wide := func(t onnx.DataType) onnx.DataType {
		if t == onnx.Float {
			floats = true
			return onnx.Double
		}
		return t
	}
	c.in, c.out, c.attrs = slices.Clone(c.in), slices.Clone(c.out), slices.Clone(c.attrs)
	for i, x := range c.in {
		if x != nil && x.Type == onnx.Float {
			c.in[i] = widened(x)
		}
	}
	for i := range c.out {
		c.out[i].t = wide(c.out[i].t)
	}
	for i, a := range c.attrs {
		switch {
		case c.op == "Cast":
			c.attrs[i].I = int64(wide(onnx.DataType(a.I)))
		case a.T != nil && a.T.Type == onnx.Float:
			c.attrs[i].T = widened(a.T)
		}
	}
	c.name += " float64"
	return c, floats && !strings.Contains(c.op, "::") && !slices.Contains(noDouble, c.op)
}

func widened(x *onnx.Tensor) *onnx.Tensor {
	wide := *x
	wide.Type, wide.Raw = onnx.Double, nil
	for b := range slices.Chunk(x.Raw, 4) {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		wide.Raw = binary.LittleEndian.AppendUint64(wide.Raw, math.Float64bits(v))
	}
	return &wide
}

// TestOperators compares every operator of refexec with the library.
func TestOperators(t *testing.T) {
	rt, ref := orttest.Open(t), refexec.New()
	tested := map[string]bool{"com.microsoft::GroupQueryAttention": true} // by TestGroupQueryAttention
	cases := slices.Concat(elementwiseCases(), shapeCases(), matrixCases(), quantCases())
	for _, c := range cases {
		if wide, ok := c.double(); ok {
			cases = append(cases, wide)
		}
	}
	for _, c := range cases {
		tested[c.op] = true
		t.Run(c.name, func(t *testing.T) {
			got, want := c.run(t, rt), c.run(t, ref)
			for i, o := range c.out {
				switch o.t {
				case 0:
				case onnx.Double:
					closeDouble(t, i, got[i].Bytes(), want[i].Bytes())
				case onnx.Float:
					computetest.Close(t, fmt.Sprintf("output %d", i), computetest.Floats(got[i]), computetest.Floats(want[i]), max(c.tol, 2e-6))
				default:
					if string(got[i].Bytes()) != string(want[i].Bytes()) {
						t.Errorf("output %d: got % x, want % x", i, got[i].Bytes(), want[i].Bytes())
					}
				}
			}
		})
	}
	for _, op := range refexec.Operators() {
		if !tested[op] {
			t.Errorf("%s has no case here", op)
		}
	}
}

// closeDouble compares float64 outputs to 14 digits of the largest.
func closeDouble(t *testing.T, output int, got, want []byte) {
	t.Helper()
	g, w := tensor.View[float64](got), tensor.View[float64](want)
	scale := 1e-6
	for _, v := range w {
		scale = max(scale, math.Abs(v))
	}
	for i := range w {
		if !(math.Abs(g[i]-w[i]) <= 1e-14*scale) {
			t.Errorf("output %d: element %d: got %v, want %v", output, i, g[i], w[i])
		}
	}
}

var dtypes = map[onnx.DataType]tensor.DType{
	onnx.Double: tensor.F64,
	onnx.Float:  tensor.F32, onnx.Float16: tensor.F16, onnx.Int64: tensor.I64, onnx.Int32: tensor.I32,
	onnx.Uint8: tensor.U8, onnx.Int8: tensor.I8, onnx.BoolType: tensor.Bool,
}

// run makes a model of the one node and runs it.
func (c *opCase) run(t *testing.T, rt compute.Runtime) []compute.Buffer {
	t.Helper()
	g := &onnx.Graph{}
	n := computetest.Node(c.op, nil, nil, c.attrs...)
	var in, out []compute.Buffer
	for i, x := range c.in {
		if x == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		x := *x
		x.Name = fmt.Sprintf("x%d", i)
		n.Inputs = append(n.Inputs, x.Name)
		if slices.Contains(c.fixed, i) {
			g.Initializers = append(g.Initializers, &x)
			continue
		}
		v := onnx.ValueInfo{Name: x.Name, Type: x.Type, Dims: []onnx.Dim{}}
		var shape []int
		for d, size := range x.Dims {
			v.Dims = append(v.Dims, onnx.Dim{Symbol: fmt.Sprintf("d%d_%d", i, d)})
			shape = append(shape, int(size))
		}
		g.Inputs = append(g.Inputs, v)
		b := computetest.MustNew(t, rt, dtypes[x.Type], shape...)
		copy(b.Bytes(), x.Raw)
		in = append(in, b)
	}
	all := make([]compute.Buffer, len(c.out))
	for i, o := range c.out {
		name := fmt.Sprintf("y%d", i)
		if o.t == 0 {
			n.Outputs = append(n.Outputs, "")
			continue
		}
		n.Outputs = append(n.Outputs, name)
		v := onnx.ValueInfo{Name: name, Type: o.t, Dims: []onnx.Dim{}}
		for d := range o.shape {
			v.Dims = append(v.Dims, onnx.Dim{Symbol: fmt.Sprintf("o%d_%d", i, d)})
		}
		g.Outputs = append(g.Outputs, v)
		all[i] = computetest.MustNew(t, rt, dtypes[o.t], o.shape...)
		out = append(out, all[i])
	}
	g.Nodes = []*onnx.Node{n}
	p := computetest.MustCompile(t, rt, computetest.Model(g), compute.Options{Threads: 1})
	if err := p.Run(t.Context(), in, out); err != nil {
		t.Fatalf("%s: %v", strings.Fields(rt.Name())[0], err)
	}
	return all
}
