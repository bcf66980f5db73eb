package graph

import (
	"slices"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Reshape gives x other dimensions over the same elements. Symbols must keep
// their place, counted from the left, or be only one that moves.
func (g *Graph) Reshape(x *Value, to ...Dim) *Value {
	n, symbols := x.shape.product()
	m, wanted := Shape(to).product()
	if n != m || !slices.Equal(symbols, wanted) {
		fail("Reshape", "%s has other elements than %s", x, Shape(to))
	}
	target := make([]int64, len(to))
	moved := 0
	for i, d := range to {
		switch {
		case d.symbol == "":
			target[i] = int64(d.size)
		case i < len(x.shape) && x.shape[i] == d:
			target[i] = 0 // "the same as in the input"
		default:
			target[i] = -1
			moved++
		}
	}
	if moved > 1 {
		fail("Reshape", "%s to %s moves more than one symbol", x, Shape(to))
	}
	return g.one("Reshape", onnx.DomainONNX, []*Value{x, g.Int64s(target...)}, nil, x.dtype, to)
}

// Unsqueeze inserts a dimension of 1 at axis.
func (g *Graph) Unsqueeze(x *Value, axis int) *Value {
	if axis < 0 || axis > x.Rank() {
		fail("Unsqueeze", "%s has no place %d", x, axis)
	}
	return g.one("Unsqueeze", onnx.DomainONNX, []*Value{x, g.Int64s(int64(axis))}, nil, x.dtype, slices.Insert(slices.Clone(x.shape), axis, Fixed(1)))
}

// Concat joins values along an axis whose dimensions are fixed.
func (g *Graph) Concat(axis int, values ...*Value) *Value {
	shape := slices.Clone(values[0].shape)
	total := 0
	for _, v := range values {
		if v.Rank() != len(shape) || v.dtype != values[0].dtype {
			fail("Concat", "%s does not fit %s", v, values[0])
		}
		for i, d := range v.shape {
			if i != axis && d != shape[i] {
				fail("Concat", "%s does not fit %s", v, values[0])
			}
		}
		n, ok := v.Dim(axis).Size()
		if !ok {
			fail("Concat", "%s is open along axis %d", v, axis)
		}
		total += n
	}
	shape[axis] = Fixed(total)
	return g.one("Concat", onnx.DomainONNX, values, []onnx.Attribute{integer("axis", axis)}, values[0].dtype, shape)
}

// Split cuts x along an axis into parts of the given sizes.
func (g *Graph) Split(x *Value, axis int, sizes ...int) []*Value {
	var results []result
	var lengths []int64
	total := 0
	for _, n := range sizes {
		shape := slices.Clone(x.shape)
		shape[axis] = Fixed(n)
		results = append(results, result{x.dtype, shape})
		lengths = append(lengths, int64(n))
		total += n
	}
	if n, ok := x.Dim(axis).Size(); !ok || n != total {
		fail("Split", "%s into %v along axis %d", x, sizes, axis)
	}
	return g.add("Split", onnx.DomainONNX, []*Value{x, g.Int64s(lengths...)}, []onnx.Attribute{integer("axis", axis)}, results...)
}

// Gather picks rows of data [n, ...] by index: [ids..., ...].
func (g *Graph) Gather(data, ids *Value) *Value {
	if data.Rank() == 0 || (ids.dtype != tensor.I64 && ids.dtype != tensor.I32) {
		fail("Gather", "%s by %s", data, ids)
	}
	shape := append(slices.Clone(ids.shape), data.shape[1:]...)
	return g.one("Gather", onnx.DomainONNX, []*Value{data, ids}, []onnx.Attribute{integer("axis", 0)}, data.dtype, shape)
}

// GatherRows picks, in each batch row of data [B, S, ...], the positions that
// ids [B, R, 1] names: [B, R, ...].
func (g *Graph) GatherRows(data, ids *Value) *Value {
	if data.Rank() < 2 || ids.Rank() != 3 || ids.dtype != tensor.I64 || ids.shape[0] != data.shape[0] || ids.shape[2] != Fixed(1) {
		fail("GatherND", "%s by %s", data, ids)
	}
	shape := append(Shape{ids.shape[0], ids.shape[1]}, data.shape[2:]...)
	return g.one("GatherND", onnx.DomainONNX, []*Value{data, ids}, []onnx.Attribute{integer("batch_dims", 1)}, data.dtype, shape)
}

// Length is the size of one dimension of x as an int64 vector of one element.
func (g *Graph) Length(x *Value, axis int) *Value {
	x.Dim(axis)
	attributes := []onnx.Attribute{integer("start", axis), integer("end", axis+1)}
	return g.one("Shape", onnx.DomainONNX, []*Value{x}, attributes, tensor.I64, Shape{Fixed(1)})
}

// Range counts 0, 1, ... along one dimension of x: an int64 vector of that
// length.
func (g *Graph) Range(x *Value, axis int) *Value {
	length := g.one("Squeeze", onnx.DomainONNX, []*Value{g.Length(x, axis), g.Int64s(0)}, nil, tensor.I64, nil)
	return g.one("Range", onnx.DomainONNX, []*Value{g.Int64(0), length, g.Int64(1)}, nil, tensor.I64, Shape{x.Dim(axis)})
}
