package grad

import (
	"athanor/engine/graph"
	"athanor/engine/tensor"
)

// reshape also undoes Unsqueeze and Squeeze.
func reshape(s *step) []*graph.Value {
	x := s.Inputs[0]
	switch axes := func() []int64 { return s.Inputs[1].Int64s() }; s.Op {
	case "Unsqueeze":
		return one(s.g.Squeeze(s.dy(), int(axes()[0])))
	case "Squeeze":
		return one(s.g.Unsqueeze(s.dy(), int(axes()[0])))
	}
	return one(s.g.Reshape(s.dy(), x.Shape()...))
}

func transpose(s *step) []*graph.Value {
	perm := s.Ints("perm")
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	return one(s.g.Transpose(s.dy(), back...))
}

func expand(s *step) []*graph.Value { return one(s.fold(s.dy(), s.Inputs[0].Shape())) }

func concat(s *step) []*graph.Value {
	axis := s.Int("axis")
	return s.g.Split(s.dy(), axis, lengths(axis, s.Inputs)...)
}

// lengths are the fixed sizes of values along an axis.
func lengths(axis int, values []*graph.Value) []int {
	list := make([]int, len(values))
	for i, v := range values {
		list[i], _ = v.Dim(axis).Size()
	}
	return list
}

func split(s *step) []*graph.Value {
	var parts []*graph.Value
	for _, y := range s.Outputs {
		if dy := s.grads[y]; dy != nil {
			parts = append(parts, s.stretch(dy, y.Shape()))
		} else {
			parts = append(parts, s.g.Zeros(y.DType(), y.Shape()...))
		}
	}
	return one(s.g.Concat(s.Int("axis"), parts...))
}

// slice fills what was cut off with zeros.
func slice(s *step) []*graph.Value {
	x, axis := s.Inputs[0], int(s.Inputs[3].Int64s()[0])
	from, to := int(s.Inputs[1].Int64s()[0]), int(s.Inputs[2].Int64s()[0])
	n, _ := x.Dim(axis).Size()
	var parts []*graph.Value
	zeros := func(n int) {
		if n > 0 {
			shape := append(graph.Shape{}, x.Shape()...)
			shape[axis] = graph.Fixed(n)
			parts = append(parts, s.g.Zeros(x.DType(), shape...))
		}
	}
	zeros(from)
	parts = append(parts, s.dy())
	zeros(n - to)
	return one(s.g.Concat(axis, parts...))
}

// gather adds the rows of dy to those of a table of zeros.
func gather(s *step) []*graph.Value {
	data, ids := s.Inputs[0], s.Inputs[1]
	if ids.DType() != tensor.I64 {
		ids = s.g.Cast(ids, tensor.I64)
	}
	return one(s.g.ScatterRows(s.g.Zeros(data.DType(), data.Shape()...), ids, s.dy()))
}

// gatherRows: data [B, S, ...] by ids [B, R, 1] is dy [B, R, ...]; the places
// along S are the same for all that follows.
func gatherRows(s *step) []*graph.Value {
	data, ids, dy := s.Inputs[0], s.Inputs[1], s.dy()
	if data.Rank() == 2 {
		ids = s.g.Squeeze(ids, 2)
	}
	for ids.Rank() < data.Rank() {
		ids = s.g.Unsqueeze(ids, ids.Rank())
	}
	ids = s.stretch(ids, dy.Shape())
	return one(s.g.ScatterElements(s.g.Zeros(data.DType(), data.Shape()...), ids, dy, 1))
}

func gatherElements(s *step) []*graph.Value {
	x := s.Inputs[0]
	return one(s.g.ScatterElements(s.g.Zeros(x.DType(), x.Shape()...), s.Inputs[1], s.dy(), s.Int("axis")))
}

func scatterElements(s *step) []*graph.Value {
	d := []*graph.Value{s.dy(), nil, nil}
	if s.wants(2) {
		d[2] = s.g.GatherElements(d[0], s.Inputs[1], s.Int("axis"))
	}
	return d
}
