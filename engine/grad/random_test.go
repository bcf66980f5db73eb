package grad_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/ort/orttest"
	"athanor/engine/tensor"
)

// composer writes random functions over values [B, S, 4].
type composer struct {
	*rand.Rand
	g         *graph.Graph
	pool, wrt []value
}

func (c *composer) pick() value { return c.pool[c.IntN(len(c.pool))] }

// input declares an input to differentiate by.
func (c *composer) input(shape ...graph.Dim) value {
	v := in(c.g, fmt.Sprintf("x%d", len(c.wrt)), shape...)
	c.wrt = append(c.wrt, v)
	return v
}

var moves = []func(c *composer) value{
	func(c *composer) value { return c.g.Tanh(c.pick()) },
	func(c *composer) value { return c.g.Sigmoid(c.pick()) },
	func(c *composer) value { return c.g.Exp(c.g.Neg(c.g.Tanh(c.pick()))) },
	func(c *composer) value { return c.g.Log(positive(c.g, c.pick())) },
	func(c *composer) value { return c.g.Reciprocal(c.g.Sqrt(positive(c.g, c.pick()))) },
	func(c *composer) value { return c.g.Add(c.pick(), c.pick()) },
	func(c *composer) value { return c.g.Sub(c.pick(), c.pick()) },
	func(c *composer) value { return c.g.Mul(c.pick(), c.g.Tanh(c.pick())) },
	func(c *composer) value { return c.g.Div(c.pick(), positive(c.g, c.pick())) },
	func(c *composer) value { return c.g.Max(c.pick(), c.pick()) },
	func(c *composer) value {
		a, b := c.pick(), c.pick()
		return c.g.Where(c.g.LessOrEqual(a, b), c.g.Tanh(b), a)
	},
	func(c *composer) value { return c.g.Softmax(c.pick()) },
	func(c *composer) value { return c.g.Mul(c.pick(), c.input(fixed(4))) },
	func(c *composer) value { return c.g.Add(c.pick(), c.input(symB, fixed(1), fixed(4))) },
	(*composer).centre,
	(*composer).linear,
	(*composer).attend,
	(*composer).lookUp,
	(*composer).cut,
}

// centre takes a mean or the largest element away, or scales by a sum.
func (c *composer) centre() value {
	axes := [][]int{{0}, {1}, {2}, {0, 2}, {1, 2}}[c.IntN(5)]
	x := c.pick()
	switch c.IntN(3) {
	case 0:
		return c.g.Sub(x, c.g.ReduceMean(c.pick(), true, axes...))
	case 1:
		return c.g.Sub(x, c.g.ReduceMax(c.pick(), true, axes...))
	}
	return c.g.Mul(x, c.g.Tanh(c.g.ReduceSum(c.pick(), true, axes...)))
}

func (c *composer) linear() value {
	flat := c.g.Reshape(c.pick(), symT, fixed(4))
	y := c.g.Gemm(flat, c.input(fixed(4), fixed(4)), false, c.IntN(2) == 0)
	return c.g.Reshape(y, symB, symS, fixed(4))
}

func (c *composer) attend() value {
	share := c.g.Softmax(c.g.MatMul(c.pick(), c.g.Transpose(c.pick(), 0, 2, 1))) // [B, S, S]
	return c.g.MatMul(share, c.pick())
}

func (c *composer) lookUp() value {
	ids := c.g.Input(fmt.Sprintf("ids%d", len(c.g.Nodes())), tensor.I64, symB, symS)
	if c.IntN(2) == 0 {
		return c.g.GatherRows(c.pick(), c.g.Unsqueeze(ids, 2))
	}
	return c.g.Gather(c.g.Reshape(c.pick(), symT, fixed(4)), ids)
}

func (c *composer) cut() value {
	x := c.pick()
	if c.IntN(2) == 0 {
		return c.g.Concat(2, c.g.Slice(x, 2, 2, 4), c.g.Slice(c.pick(), 2, 1, 3))
	}
	parts := c.g.Split(x, 2, 1, 2, 1)
	return c.g.Concat(2, parts[1], parts[0], c.g.Mul(parts[0], parts[2]))
}

// TestRandomFunctions checks compositions of all kinds of operators.
func TestRandomFunctions(t *testing.T) {
	rt := orttest.Open(t)
	worst := gradcheck.Report{}
	for seed := range uint64(60) {
		ids := gradcheck.Values{}
		p := gradcheck.Problem{Sizes: sizes, Seed: seed, Samples: 4, Values: ids}
		p.Build = func(g *graph.Graph) ([]value, []value) {
			c := &composer{Rand: rand.New(rand.NewPCG(seed, 2)), g: g}
			c.pool = values(c.input(symB, symS, fixed(4)), c.input(symB, symS, fixed(4)))
			for range 4 + c.IntN(12) {
				c.pool = append(c.pool, moves[c.IntN(len(moves))](c))
			}
			outputs := c.pool[2:]
			for _, x := range c.wrt[:2] { // used by some output in any case
				outputs = append(outputs, g.Tanh(x))
			}
			return outputs, c.wrt
		}
		for n := range 400 { // any name that lookUp may have made
			ids[fmt.Sprintf("ids%d", n)] = []float64{0, 2, 1, 1, 2, 0}
		}
		report, err := gradcheck.Check(t.Context(), rt, rt, p)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		worst = gradcheck.Report{Difference: max(worst.Difference, report.Difference), Narrow: max(worst.Narrow, report.Narrow)}
	}
	t.Logf("largest relative errors: %.1e of finite differences, %.1e of float32", worst.Difference, worst.Narrow)
}
