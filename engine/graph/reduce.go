package graph

import (
	"slices"

	"athanor/engine/onnx"
)

// ReduceSum adds x up over some axes, which stay as dimensions of 1 if keep is
// set and vanish otherwise.
func (g *Graph) ReduceSum(x *Value, keep bool, axes ...int) *Value {
	return g.reduce("ReduceSum", x, keep, axes)
}

// ReduceMean is like ReduceSum for the mean.
func (g *Graph) ReduceMean(x *Value, keep bool, axes ...int) *Value {
	return g.reduce("ReduceMean", x, keep, axes)
}

// ReduceMax is like ReduceSum for the largest element.
func (g *Graph) ReduceMax(x *Value, keep bool, axes ...int) *Value {
	return g.reduce("ReduceMax", x, keep, axes)
}

// reduce takes negative axes as counted from the end.
func (g *Graph) reduce(op string, x *Value, keep bool, axes []int) *Value {
	wantReal(op, x)
	gone := make([]bool, x.Rank())
	if len(axes) == 0 {
		fail(op, "no axes of %s", x)
	}
	for _, axis := range axes {
		x.Dim(axis)
		if axis < 0 {
			axis += x.Rank()
		}
		gone[axis] = true
	}
	var list []int64
	shape := Shape{}
	for i, d := range x.shape {
		switch {
		case !gone[i]:
			shape = append(shape, d)
			continue
		case keep:
			shape = append(shape, Fixed(1))
		}
		list = append(list, int64(i))
	}
	attributes := []onnx.Attribute{integer("keepdims", truth(keep))}
	return g.one(op, onnx.DomainONNX, []*Value{x, g.Int64s(list...)}, attributes, x.dtype, shape)
}

// Softmax is exp(x) scaled to sum 1 over the last dimension.
func (g *Graph) Softmax(x *Value) *Value {
	wantReal("Softmax", x)
	x.Dim(-1)
	return g.one("Softmax", onnx.DomainONNX, []*Value{x}, []onnx.Attribute{integer("axis", -1)}, x.dtype, slices.Clone(x.shape))
}
