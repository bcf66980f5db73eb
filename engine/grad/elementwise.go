package grad

import (
	"math"
	"slices"

	"athanor/engine/graph"
)

// each makes the gradients of the two operands of an operator with
// broadcasting, from functions that give them in the shape of the result, or
// loose where fold need not add anything up.
func (s *step) each(da, db func() *graph.Value) []*graph.Value {
	d := make([]*graph.Value, 2)
	for i, fn := range []func() *graph.Value{da, db} {
		if s.wants(i) {
			d[i] = s.fold(fn(), s.Inputs[i].Shape())
		}
	}
	return d
}

func add(s *step) []*graph.Value {
	return s.each(func() *graph.Value { return s.same(0) }, func() *graph.Value { return s.same(1) })
}

// same is dy as the gradient of an operand, loose where that may be.
func (s *step) same(i int) *graph.Value {
	if slices.Equal(s.Inputs[i].Shape(), s.Outputs[0].Shape()) {
		return s.loose()
	}
	return s.dy()
}

func sub(s *step) []*graph.Value {
	d := add(s)
	if d[1] != nil {
		d[1] = s.g.Neg(d[1])
	}
	return d
}

func mul(s *step) []*graph.Value {
	a, b := s.Inputs[0], s.Inputs[1]
	if a == b {
		return one(s.g.Mul(s.g.Mul(s.loose(), s.scalar(2)), a))
	}
	if n := s.producer[b]; n != nil && n.Op == "Sigmoid" && n.Inputs[0] == a {
		return one(s.silu(b))
	}
	return s.each(
		func() *graph.Value { return s.times(b) },
		func() *graph.Value { return s.times(a) },
	)
}

// silu: y = x * sigma, where sigma is the sigmoid of x, has
// dx = dy * (sigma + y * (1 - sigma)) through both factors at once.
func (s *step) silu(sigma *graph.Value) *graph.Value {
	slope := s.g.Add(sigma, s.g.Mul(s.Outputs[0], s.g.Sub(s.scalar(1), sigma)))
	return s.g.Mul(s.loose(), slope)
}

// times is dy * v, in full.
func (s *step) times(v *graph.Value) *graph.Value {
	if slices.Equal(v.Shape(), s.Outputs[0].Shape()) {
		return s.g.Mul(s.loose(), v)
	}
	return s.g.Mul(s.dy(), v)
}

// div: y = a / b; da = dy / b, db = -da * y.
func div(s *step) []*graph.Value {
	da := s.g.Div(s.dy(), s.Inputs[1])
	d := s.each(
		func() *graph.Value { return da },
		func() *graph.Value { return s.g.Mul(da, s.Outputs[0]) },
	)
	if d[1] != nil {
		d[1] = s.g.Neg(d[1])
	}
	return d
}

// maximum gives ties to the first operand.
func maximum(s *step) []*graph.Value {
	first := s.g.LessOrEqual(s.Inputs[1], s.Inputs[0])
	return s.choose(first, 0)
}

func where(s *step) []*graph.Value { return s.choose(s.Inputs[0], 1) }

// choose sends dy to input i where the truth value is true and to input i+1
// elsewhere.
func (s *step) choose(truth *graph.Value, i int) []*graph.Value {
	d, dy, zero := make([]*graph.Value, i+2), s.dy(), s.scalar(0)
	if s.wants(i) {
		d[i] = s.fold(s.g.Where(truth, dy, zero), s.Inputs[i].Shape())
	}
	if s.wants(i + 1) {
		d[i+1] = s.fold(s.g.Where(truth, zero, dy), s.Inputs[i+1].Shape())
	}
	return d
}

func neg(s *step) []*graph.Value { return one(s.g.Neg(s.loose())) }

func exp(s *step) []*graph.Value { return one(s.g.Mul(s.loose(), s.Outputs[0])) }

func log(s *step) []*graph.Value { return one(s.g.Div(s.loose(), s.Inputs[0])) }

// sqrt: dx = dy / (2 * y).
func sqrt(s *step) []*graph.Value {
	return one(s.g.Div(s.g.Mul(s.loose(), s.scalar(0.5)), s.Outputs[0]))
}

// reciprocal: dx = -dy * y * y.
func reciprocal(s *step) []*graph.Value {
	y := s.Outputs[0]
	return one(s.g.Neg(s.g.Mul(s.loose(), s.g.Mul(y, y))))
}

// sigmoid: dx = dy * y * (1 - y).
func sigmoid(s *step) []*graph.Value {
	y := s.Outputs[0]
	return one(s.g.Mul(s.loose(), s.g.Mul(y, s.g.Sub(s.scalar(1), y))))
}

// tanh: dx = dy * (1 - y * y).
func tanh(s *step) []*graph.Value {
	y := s.Outputs[0]
	return one(s.g.Mul(s.loose(), s.g.Sub(s.scalar(1), s.g.Mul(y, y))))
}

// erf: dx = dy * 2/sqrt(pi) * exp(-x*x).
func erf(s *step) []*graph.Value {
	x := s.Inputs[0]
	slope := s.g.Mul(s.g.Exp(s.g.Neg(s.g.Mul(x, x))), s.scalar(2/math.Sqrt(math.Pi)))
	return one(s.g.Mul(s.loose(), slope))
}

func cast(s *step) []*graph.Value { return one(s.g.Cast(s.loose(), s.Inputs[0].DType())) }

func identity(s *step) []*graph.Value { return one(s.loose()) }
