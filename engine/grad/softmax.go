package grad

import (
	"slices"

	"athanor/engine/graph"
)

// softmax: dx = y * (dy - the sum of dy * y over the row).
func softmax(s *step) []*graph.Value {
	y, dy := s.Outputs[0], s.loose()
	sum := s.rowProduct(y)
	if sum == nil {
		sum = s.g.ReduceSum(s.g.Mul(dy, y), true, -1)
	}
	return one(s.g.Mul(y, s.g.Sub(dy, sum)))
}

// rowProduct is the sum of dy * y over the rows of y where y, perhaps reshaped,
// is used only as the left factor of a product o = y * v, as in attention. It
// is the same as the sum of do * o, whose rows are as long as a head and not as
// a text. (Dao and others 2022, arXiv:2205.14135.) It is nil elsewhere.
func (s *step) rowProduct(y *graph.Value) *graph.Value {
	for v := y; len(s.sources[v]) == 1; {
		user := s.sources[v][0]
		if user == nil || user.Inputs[0] != v {
			return nil
		}
		o := user.Outputs[0]
		switch {
		case user.Op == "Reshape" && o.Rank() > 0 && o.Dim(-1) == v.Dim(-1):
			v = o
		case user.Op == "MatMul":
			do := s.stretch(s.grads[o], o.Shape())
			shape := slices.Clone(y.Shape())
			shape[len(shape)-1] = graph.Fixed(1)
			return s.g.Reshape(s.g.ReduceSum(s.g.Mul(do, o), true, -1), shape...)
		default:
			return nil
		}
	}
	return nil
}
