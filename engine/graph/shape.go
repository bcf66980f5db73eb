package graph

import (
	"fmt"
	"slices"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Reshape gives x other dimensions over the same elements. Dimensions are
// joined with Product and may be taken apart again. Where two or more symbols
// come to stand at other places than in x, all but one must be a dimension of
// an input of the model, which then tells its size.
func (g *Graph) Reshape(x *Value, to ...Dim) *Value {
	n, symbols := x.shape.product()
	m, wanted := Shape(to).product()
	if n != m || !slices.Equal(symbols, wanted) {
		fail("Reshape", "%s has other elements than %s", x, Shape(to))
	}
	target := make([]int64, len(to))
	var moved []int
	for i, d := range to {
		switch {
		case d.symbol == "":
			target[i] = int64(d.size)
		case i < len(x.shape) && x.shape[i] == d:
			target[i] = 0 // "the same as in the input"
		default:
			target[i] = -1 // "whatever is left"
			moved = append(moved, i)
		}
	}
	if len(moved) < 2 {
		return g.one("Reshape", onnx.DomainONNX, []*Value{x, g.Int64s(target...)}, nil, x.dtype, to)
	}
	left := moved[0] // the one that no input tells, if there is such
	for _, i := range moved {
		if _, _, ok := g.inputWith(to[i]); !ok {
			left = i
		}
	}
	return g.one("Reshape", onnx.DomainONNX, []*Value{x, g.sizes("Reshape", to, target, left)}, nil, x.dtype, to)
}

// Expand repeats x, lined up from the right, to a shape. Its symbols must be
// dimensions of inputs of the model.
func (g *Graph) Expand(x *Value, to ...Dim) *Value {
	if shape, ok := broadcast(x.shape, to); !ok || !slices.Equal(shape, Shape(to)) {
		fail("Expand", "%s does not stretch to %s", x, Shape(to))
	}
	target := make([]int64, len(to))
	for i, d := range to {
		target[i] = int64(d.size)
		if d.symbol != "" {
			target[i] = -1
		}
	}
	return g.one("Expand", onnx.DomainONNX, []*Value{x, g.sizes("Expand", to, target, -1)}, nil, x.dtype, to)
}

// sizes is a vector of target, with the sizes of dimensions in place of -1
// except at index left. Equal vectors are computed once.
func (g *Graph) sizes(op string, to Shape, target []int64, left int) *Value {
	if !slices.Contains(target, -1) {
		return g.Int64s(target...)
	}
	key := fmt.Sprint(to, target, left)
	if v := g.b.sizes[key]; v != nil {
		return v
	}
	var parts []*Value
	for i, n := range target {
		if n != -1 || i == left {
			parts = append(parts, g.Int64s(n))
		} else {
			parts = append(parts, g.size(op, to[i]))
		}
	}
	v := g.Concat(0, parts...)
	g.b.sizes[key] = v
	return v
}

// size is the size of a symbol as a vector of one element.
func (g *Graph) size(op string, d Dim) *Value {
	if v := g.b.sizes[d.symbol]; v != nil {
		return v
	}
	n, names := d.factors()
	var size *Value
	for _, name := range names {
		v, axis, ok := g.inputWith(Symbol(name))
		if !ok {
			fail(op, "no input has the dimension %s", name)
		}
		if length := g.Length(v, axis); size == nil {
			size = length
		} else {
			size = g.Mul(size, length)
		}
	}
	if n != 1 {
		size = g.Mul(size, g.Int64s(int64(n)))
	}
	g.b.sizes[d.symbol] = size
	return size
}

// inputWith finds an input of the model that has a dimension.
func (g *Graph) inputWith(d Dim) (v *Value, axis int, ok bool) {
	for _, in := range g.b.inputs {
		if axis := slices.Index(in.shape, d); axis >= 0 {
			return in, axis, true
		}
	}
	return nil, 0, false
}

// Transpose reorders the dimensions: dimension i of the result is dimension
// perm[i] of x.
func (g *Graph) Transpose(x *Value, perm ...int) *Value {
	shape := make(Shape, len(perm))
	sorted := slices.Sorted(slices.Values(perm))
	for i, p := range perm {
		if len(perm) != x.Rank() || sorted[i] != i {
			fail("Transpose", "%s by %v", x, perm)
		}
		shape[i] = x.shape[p]
	}
	return g.one("Transpose", onnx.DomainONNX, []*Value{x}, []onnx.Attribute{integers("perm", perm...)}, x.dtype, shape)
}

// Slice keeps the elements from..to-1 along one axis, whose dimension is fixed.
func (g *Graph) Slice(x *Value, axis, from, to int) *Value {
	if n, ok := x.Dim(axis).Size(); !ok || axis < 0 || from < 0 || from > to || to > n {
		fail("Slice", "%s from %d to %d along axis %d", x, from, to, axis)
	}
	shape := slices.Clone(x.shape)
	shape[axis] = Fixed(to - from)
	in := []*Value{x, g.Int64s(int64(from)), g.Int64s(int64(to)), g.Int64s(int64(axis))}
	return g.one("Slice", onnx.DomainONNX, in, nil, x.dtype, shape)
}

// Unsqueeze inserts a dimension of 1 at axis.
func (g *Graph) Unsqueeze(x *Value, axis int) *Value {
	if axis < 0 || axis > x.Rank() {
		fail("Unsqueeze", "%s has no place %d", x, axis)
	}
	return g.one("Unsqueeze", onnx.DomainONNX, []*Value{x, g.Int64s(int64(axis))}, nil, x.dtype, slices.Insert(slices.Clone(x.shape), axis, Fixed(1)))
}

// Squeeze drops a dimension of 1.
func (g *Graph) Squeeze(x *Value, axis int) *Value {
	if axis < 0 || x.Dim(axis) != Fixed(1) {
		fail("Squeeze", "dimension %d of %s is not 1", axis, x)
	}
	return g.one("Squeeze", onnx.DomainONNX, []*Value{x, g.Int64s(int64(axis))}, nil, x.dtype, slices.Delete(slices.Clone(x.shape), axis, axis+1))
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

// GatherElements picks along one axis: ids has the rank of x and is lined up
// with it in the other dimensions; the result has the shape of ids.
func (g *Graph) GatherElements(x, ids *Value, axis int) *Value {
	wantElements("GatherElements", x, ids, axis)
	return g.one("GatherElements", onnx.DomainONNX, []*Value{x, ids}, []onnx.Attribute{integer("axis", axis)}, x.dtype, ids.shape)
}

// ScatterElements adds updates, shaped like ids, to x at the places that
// GatherElements would pick. Places may repeat.
func (g *Graph) ScatterElements(x, ids, updates *Value, axis int) *Value {
	wantElements("ScatterElements", x, ids, axis)
	updates.Dims(ids.shape...)
	wantReal("ScatterElements", x, updates)
	attributes := []onnx.Attribute{integer("axis", axis), text("reduction", "add")}
	return g.one("ScatterElements", onnx.DomainONNX, []*Value{x, ids, updates}, attributes, x.dtype, x.shape)
}

func wantElements(op string, x, ids *Value, axis int) {
	if ids.dtype != tensor.I64 || ids.Rank() != x.Rank() || axis < 0 || axis >= x.Rank() {
		fail(op, "%s by %s along axis %d", x, ids, axis)
	}
	for i, d := range ids.shape {
		if i != axis && d != x.shape[i] {
			fail(op, "%s by %s along axis %d", x, ids, axis)
		}
	}
}

// ScatterRows adds updates [ids..., ...] to the rows of x [n, ...] that ids
// name, the counterpart of Gather. Rows may repeat.
func (g *Graph) ScatterRows(x, ids, updates *Value) *Value {
	const op = "ScatterND"
	wantReal(op, x, updates)
	if x.Rank() == 0 || ids.dtype != tensor.I64 {
		fail(op, "%s by %s", x, ids)
	}
	updates.Dims(append(slices.Clone(ids.shape), x.shape[1:]...)...)
	at := g.Unsqueeze(ids, ids.Rank())
	return g.one(op, onnx.DomainONNX, []*Value{x, at, updates}, []onnx.Attribute{text("reduction", "add")}, x.dtype, x.shape)
}

// Zeros is a tensor of zeros, float32 or float64. Symbols of the shape must be
// dimensions of inputs of the model.
func (g *Graph) Zeros(dtype tensor.DType, shape ...Dim) *Value {
	return g.Expand(g.Scalar(0, dtype), shape...)
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
