package grad

import "athanor/engine/graph"

func reduceSum(s *step) []*graph.Value { return one(s.kept(s.dy())) }

func reduceMean(s *step) []*graph.Value {
	dx, size := s.kept(s.dy()), 1
	for _, axis := range s.Inputs[1].Int64s() {
		n, ok := s.Inputs[0].Dim(int(axis)).Size()
		if !ok {
			dx = s.g.Div(dx, s.g.Cast(s.g.Length(s.Inputs[0], int(axis)), dx.DType()))
			n = 1
		}
		size *= n
	}
	if size != 1 {
		dx = s.g.Mul(dx, s.scalar(1/float64(size)))
	}
	return one(dx)
}

// reduceMax shares dy out evenly among equal largest elements.
func reduceMax(s *step) []*graph.Value {
	x, axes := s.Inputs[0], []int{}
	for _, axis := range s.Inputs[1].Int64s() {
		axes = append(axes, int(axis))
	}
	top := s.g.Cast(s.g.Equal(x, s.kept(s.Outputs[0])), x.DType())
	share := s.g.Div(s.kept(s.dy()), s.g.ReduceSum(top, true, axes...))
	return one(s.g.Mul(top, share))
}

// kept gives a value shaped like the output of a reduction the dimensions of 1
// that keepdims would have kept.
func (s *step) kept(v *graph.Value) *graph.Value {
	if s.Int("keepdims") == 0 {
		for _, axis := range s.Inputs[1].Int64s() { // ascending
			v = s.g.Unsqueeze(v, int(axis))
		}
	}
	return v
}
