package grad_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/grad"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

var (
	symB = graph.Symbol("B")
	symS = graph.Symbol("S")
	symR = graph.Symbol("R")
	symT = graph.Product(symB, symS)
)

var sizes = map[string]int{"B": 2, "S": 3, "R": 4}

func fixed(n int) graph.Dim { return graph.Fixed(n) }

type value = *graph.Value

func values(v ...value) []value { return v }

// in declares a float32 input.
func in(g *graph.Graph, name string, shape ...graph.Dim) value {
	return g.Input(name, tensor.F32, shape...)
}

// unary is a function of x [B, 3].
func unary(op func(*graph.Graph, value) value) func(*graph.Graph) ([]value, []value) {
	return func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, fixed(3))
		return values(op(g, x)), values(x)
	}
}

// binary is a function of operands of several shapes that broadcast.
func binary(op func(*graph.Graph, value, value) value) func(*graph.Graph) ([]value, []value) {
	return func(g *graph.Graph) (y, wrt []value) {
		a := in(g, "a", symB, symS, fixed(4))
		for i, shape := range []graph.Shape{{symB, symS, fixed(4)}, {fixed(4)}, {symB, fixed(1), fixed(4)}, {symS, fixed(1)}, {}} {
			b := in(g, fmt.Sprintf("b%d", i), shape...)
			y = append(y, op(g, a, b), op(g, b, a))
			wrt = append(wrt, b)
		}
		return append(y, op(g, a, a)), append(wrt, a)
	}
}

// positive moves values of [-1, 1) away from zero.
func positive(g *graph.Graph, x value) value { return g.Add(g.Mul(x, x), g.Scalar(0.5, x.DType())) }

// problems has at least one function for each rule, by the operator.
var problems = map[string]gradcheck.Problem{
	"Add":        {Build: binary((*graph.Graph).Add)},
	"Sub":        {Build: binary((*graph.Graph).Sub)},
	"Mul":        {Build: binary((*graph.Graph).Mul)},
	"Div":        {Build: binary(func(g *graph.Graph, a, b value) value { return g.Div(a, positive(g, b)) })},
	"Max":        {Build: binary((*graph.Graph).Max)},
	"Where":      {Build: binary(func(g *graph.Graph, a, b value) value { return g.Where(g.LessOrEqual(a, b), g.Mul(a, a), b) })},
	"Neg":        {Build: unary((*graph.Graph).Neg)},
	"Exp":        {Build: unary((*graph.Graph).Exp)},
	"Sigmoid":    {Build: unary((*graph.Graph).Sigmoid)},
	"Tanh":       {Build: unary((*graph.Graph).Tanh)},
	"Log":        {Build: unary(func(g *graph.Graph, x value) value { return g.Log(positive(g, x)) })},
	"Sqrt":       {Build: unary(func(g *graph.Graph, x value) value { return g.Sqrt(positive(g, x)) })},
	"Reciprocal": {Build: unary(func(g *graph.Graph, x value) value { return g.Reciprocal(positive(g, x)) })},
	"Erf":        {Build: unary((*graph.Graph).Erf)},
	"Identity": {Build: unary(func(g *graph.Graph, x value) value {
		return g.Mul(g.Identity(x), g.StopGradient(g.Scalar(3, x.DType())))
	})},
	"Cast": {Build: unary(func(g *graph.Graph, x value) value { return g.Cast(g.Exp(x), tensor.F32) })},
	"Softmax": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, symS, fixed(5))
		return values(g.Softmax(x), g.ReduceSum(g.Softmax(g.Mul(x, x)), false, 2)), values(x)
	}},
	"MatMul": {Build: func(g *graph.Graph) (y, wrt []value) {
		a, b := in(g, "a", symB, fixed(3), symS, fixed(4)), in(g, "b", symB, fixed(3), fixed(4), symR)
		k := in(g, "k", symB, fixed(3), symR, fixed(4))
		m, n := in(g, "m", symS, symR), in(g, "n", symR, fixed(2))
		return values(g.MatMul(a, b), g.MatMul(a, g.Transpose(k, 0, 1, 3, 2)), g.MatMul(m, n)), values(a, b, k, m, n)
	}},
	"Gemm": {Build: func(g *graph.Graph) (y, wrt []value) {
		a, at := in(g, "a", symS, fixed(4)), in(g, "at", fixed(4), symS)
		b, bt := in(g, "b", fixed(4), symR), in(g, "bt", symR, fixed(4))
		return values(g.Gemm(a, b, false, false), g.Gemm(at, b, true, false), g.Gemm(a, bt, false, true), g.Gemm(at, bt, true, true)), values(a, at, b, bt)
	}},
	"ReduceSum":  {Build: reductions((*graph.Graph).ReduceSum)},
	"ReduceMean": {Build: reductions((*graph.Graph).ReduceMean)},
	"ReduceMax":  {Build: reductions((*graph.Graph).ReduceMax)},
	"Reshape": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, w := in(g, "x", symB, symS, fixed(4)), in(g, "w", fixed(6), fixed(4))
		flat := g.Gemm(g.Reshape(x, symT, fixed(4)), w, false, true)                                 // [B*S, 6]
		heads := g.Transpose(g.Reshape(flat, symB, symS, fixed(2), fixed(3)), 0, 2, 1, 3)            // [B, 2, S, 3]
		return values(g.Reshape(heads, graph.Product(symB, fixed(2)), symS, fixed(3))), values(x, w) // [2*B, S, 3]
	}},
	"Transpose": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, symS, fixed(4))
		return values(g.Transpose(x, 2, 0, 1)), values(x)
	}},
	"Unsqueeze": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, z := in(g, "x", symB, symS, fixed(4)), in(g, "z", symB, symS, fixed(4))
		return values(g.Mul(g.Unsqueeze(x, 2), g.Unsqueeze(z, 1))), values(x, z)
	}},
	"Squeeze": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, fixed(1), symS)
		return values(g.Exp(g.Squeeze(x, 1))), values(x)
	}},
	"Expand": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symS, fixed(1))
		g.Input("like", tensor.F32, symB)
		return values(g.Exp(g.Expand(x, symB, symS, fixed(4)))), values(x)
	}, Values: gradcheck.Values{"like": {0, 0}}},
	"Concat": {Build: func(g *graph.Graph) (y, wrt []value) {
		a, b := in(g, "a", symB, fixed(2), symS), in(g, "b", symB, fixed(3), symS)
		return values(g.Concat(1, a, b, g.Exp(a))), values(a, b)
	}},
	"Split": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, symS, fixed(6))
		parts := g.Split(x, 2, 1, 2, 3)
		return values(g.Mul(parts[0], parts[2])), values(x) // part 1 is not used
	}},
	"Slice": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, fixed(6), symS)
		return values(g.Exp(g.Slice(x, 1, 1, 4)), g.Slice(x, 1, 0, 2), g.Slice(x, 1, 5, 6)), values(x)
	}},
	"Gather": {Build: func(g *graph.Graph) (y, wrt []value) {
		table := in(g, "table", fixed(5), fixed(3))
		ids := g.Input("ids", tensor.I64, symB, symS)
		return values(g.Exp(g.Gather(table, ids)), g.Gather(table, g.Cast(ids, tensor.I32))), values(table)
	}, Values: gradcheck.Values{"ids": {0, 4, 4, 1, 0, 4}}},
	"GatherND": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, z, u := in(g, "x", symB, symS, fixed(4)), in(g, "z", symB, symS), in(g, "u", symB, symS, fixed(2), fixed(2))
		ids := g.Input("ids", tensor.I64, symB, symR, fixed(1))
		return values(g.GatherRows(x, ids), g.GatherRows(z, ids), g.GatherRows(u, ids)), values(x, z, u)
	}, Values: gradcheck.Values{"ids": {0, 1, 1, 1, 2, 0, 2, 2}}},
	"GatherElements": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, ids := in(g, "x", symB, fixed(5)), g.Input("ids", tensor.I64, symB, fixed(3))
		return values(g.Exp(g.GatherElements(x, ids, 1))), values(x)
	}, Values: gradcheck.Values{"ids": {4, 0, 4, 1, 2, 3}}},
	"ScatterElements": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, u := in(g, "x", symB, fixed(5)), in(g, "u", symB, fixed(3))
		return values(g.Exp(g.ScatterElements(x, g.Input("ids", tensor.I64, symB, fixed(3)), u, 1))), values(x, u)
	}, Values: gradcheck.Values{"ids": {4, 0, 4, 1, 2, 3}}},
	"DequantizeLinear": {Build: func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symS, fixed(4))
		codes, zeros := g.Input("codes", tensor.U8, fixed(2), fixed(4)), g.Input("zeros", tensor.U8, fixed(2), fixed(2))
		w := g.Dequantize(codes, in(g, "scales", fixed(2), fixed(2)), zeros, 1, 2)
		packed := g.Dequantize(g.Input("packed", tensor.U4, fixed(2), fixed(4)), in(g, "scales4", fixed(2), fixed(2)), nil, 1, 2)
		return values(g.Gemm(x, w, false, true), g.Gemm(x, packed, false, true)), values(x)
	}, Values: gradcheck.Values{"codes": {1, 2, 3, 255, 5, 6, 7, 8}, "zeros": {1, 8, 128, 0}, "packed": {0, 15, 3, 4, 7, 8, 9, 1}}},
	// Loose gradients, several outputs, one value used often.
	"RMSNorm": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, w := in(g, "x", symB, symS, fixed(4)), in(g, "w", fixed(4))
		mean := g.ReduceMean(g.Mul(x, x), true, -1)
		inverse := g.Reciprocal(g.Sqrt(g.Add(mean, g.Scalar(1e-5, x.DType()))))
		return values(g.Mul(g.Mul(x, inverse), w), mean), values(x, w)
	}},
	"Silu": {Build: unary(func(g *graph.Graph, x value) value {
		s := g.Sigmoid(x)
		return g.Add(g.Mul(x, s), g.Mul(g.Exp(s), s))
	})},
	"attention": {Build: func(g *graph.Graph) (y, wrt []value) {
		q, k, v := in(g, "q", symB, fixed(3), symS, fixed(4)), in(g, "k", symB, symS, fixed(4)), in(g, "v", symB, symS, fixed(4))
		stacked := graph.Product(symS, fixed(3))
		scores := g.MatMul(g.Reshape(q, symB, stacked, fixed(4)), g.Transpose(k, 0, 2, 1)) // [B, 3*S, S]
		share := g.Softmax(g.Reshape(scores, symB, fixed(3), symS, symS))
		once := g.MatMul(g.Reshape(share, symB, stacked, symS), v)
		share = g.Softmax(g.Mul(scores, scores))
		return values(once, g.MatMul(share, v), g.MatMul(g.Exp(share), v)), values(q, k, v)
	}},
	"LogSoftmax": {Build: func(g *graph.Graph) (y, wrt []value) {
		x, ids := in(g, "x", symB, fixed(5)), g.Input("ids", tensor.I64, symB, fixed(1))
		x0 := g.Sub(x, g.StopGradient(g.ReduceMax(x, true, -1)))
		p := g.Sub(x0, g.Log(g.ReduceSum(g.Exp(x0), true, 1)))
		return values(g.ReduceMean(g.GatherElements(p, ids, 1), false, 0, 1)), values(x)
	}, Values: gradcheck.Values{"ids": {4, 1}}},
}

func reductions(op func(g *graph.Graph, x value, keep bool, axes ...int) value) func(*graph.Graph) ([]value, []value) {
	return func(g *graph.Graph) (y, wrt []value) {
		x := in(g, "x", symB, symS, fixed(4))
		return values(op(g, x, true, -1), op(g, x, false, 0, 2), op(g, g.Exp(x), false, 1), g.Mul(x, op(g, x, true, 1, 2)), op(g, x, false, 0, 1, 2)), values(x)
	}
}

// runtimes are those that the gradients must be right on.
func runtimes(t *testing.T) map[string]compute.Runtime {
	return map[string]compute.Runtime{"refexec": refexec.New(), "onnxruntime": orttest.Open(t)}
}

// TestRules checks every rule against finite differences.
func TestRules(t *testing.T) {
	for name, rt := range runtimes(t) {
		t.Run(name, func(t *testing.T) {
			for op, p := range problems {
				t.Run(op, func(t *testing.T) {
					p.Sizes = sizes
					exact := rt
					if op == "Erf" {
						exact = refexec.New() // ONNX Runtime has it in float32 only
					}
					report, err := gradcheck.Check(t.Context(), exact, rt, p)
					if err != nil {
						t.Error(err)
					}
					t.Logf("%.1e %.1e", report.Difference, report.Narrow)
				})
			}
		})
	}
}

func TestEveryRuleIsTested(t *testing.T) {
	for _, op := range grad.Operators() {
		if _, ok := problems[op]; !ok {
			t.Errorf("%s has no problem", op)
		}
	}
}

func TestMistakes(t *testing.T) {
	for want, build := range map[string]func(g *graph.Graph){
		"operator com.microsoft::QuickGelu of node layer/QuickGelu.1 has no rule": func(g *graph.Graph) {
			x := in(g, "x", symB)
			grad.Of(g, values(g.Scope("layer").Silu(x)), values(nil), values(x))
		},
		"1 outputs and 0 seeds":                           func(g *graph.Graph) { grad.Of(g, values(in(g, "x")), nil, nil) },
		"types of output x f32[] and seed s f64[] differ": func(g *graph.Graph) { grad.Of(g, values(in(g, "x")), values(g.Input("s", tensor.F64)), nil) },
		"x i64[] is not of floating-point numbers":        func(g *graph.Graph) { grad.Of(g, nil, nil, values(g.Input("x", tensor.I64))) },
		"Dims: s f32[B], want shape []":                   func(g *graph.Graph) { grad.Of(g, values(in(g, "x")), values(in(g, "s", symB)), nil) },
		"operator DequantizeLinear of node DequantizeLinear.1 has no ru": func(g *graph.Graph) {
			scales := in(g, "scales", fixed(1))
			w := g.Dequantize(g.Input("codes", tensor.I8, fixed(2)), scales, nil, 0, 2)
			grad.Of(g, values(w), values(nil), values(scales))
		},
	} {
		_, err := graph.Build(build)
		var e *graph.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestResults checks what Of promises about the values that it returns.
func TestResults(t *testing.T) {
	var d []value
	model, err := graph.Build(func(g *graph.Graph) {
		x, z, unused, seed := in(g, "x", symB), in(g, "z", symB), in(g, "unused"), in(g, "seed", symB)
		stopped := g.Exp(in(g, "stopped", symB))
		y := g.Add(g.Add(x, z), g.StopGradient(stopped))
		g.Output("y", y)
		d = grad.Of(g, values(y), values(seed), values(x, z, unused, x, stopped, y))
		for i, v := range d {
			if v != nil {
				g.Output(fmt.Sprintf("d%d", i), v)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true, false, true} {
		if (d[i] != nil) != want {
			t.Errorf("gradient %d is %v", i, d[i])
		}
	}
	for _, n := range model.Graph.Nodes {
		if n.Domain != "" {
			t.Errorf("node %s is not standard", n.Name)
		}
	}
}

// TestNothingIsWasted counts the operators that differentiation adds.
func TestNothingIsWasted(t *testing.T) {
	for name, c := range map[string]struct {
		build func(g *graph.Graph) (y, wrt []value)
		want  map[string]int
	}{
		"a linear layer": {func(g *graph.Graph) (y, wrt []value) {
			x, w := in(g, "x", symS, fixed(4)), in(g, "w", fixed(6), fixed(4))
			return values(g.Gemm(x, w, false, true)), values(x, w)
		}, map[string]int{"Gemm": 2}},
		"products by a transposed matrix": {func(g *graph.Graph) (y, wrt []value) {
			q, k := in(g, "q", symB, symS, fixed(4)), in(g, "k", symB, symS, fixed(4))
			return values(g.MatMul(q, g.Transpose(k, 0, 2, 1))), values(q)
		}, map[string]int{"MatMul": 1}},
		"a square": {func(g *graph.Graph) (y, wrt []value) {
			x := in(g, "x", symS)
			return values(g.Mul(x, x)), values(x)
		}, map[string]int{"Mul": 2}},
		"silu": {func(g *graph.Graph) (y, wrt []value) {
			x := in(g, "x", symS)
			return values(g.Mul(x, g.Sigmoid(x))), values(x)
		}, map[string]int{"Mul": 2, "Add": 1, "Sub": 1}},
		"attention, one Mul of which is small": {func(g *graph.Graph) (y, wrt []value) {
			x, v := in(g, "x", symS, symS), in(g, "v", symS, fixed(4))
			return values(g.MatMul(g.Softmax(x), v)), values(x)
		}, map[string]int{"MatMul": 1, "Transpose": 1, "Mul": 2, "ReduceSum": 1, "Reshape": 1, "Sub": 1}},
		"what is not asked for": {func(g *graph.Graph) (y, wrt []value) {
			x, z := in(g, "x", symS), in(g, "z", symS)
			return values(g.Mul(x, g.Exp(z)), g.Exp(z)), values(x)
		}, map[string]int{"Mul": 1}},
	} {
		got, large := map[string]int{}, 0
		_, err := graph.Build(func(g *graph.Graph) {
			y, wrt := c.build(g)
			var seeds []value
			for i, v := range y {
				seeds = append(seeds, in(g, fmt.Sprintf("seed%d", i), v.Shape()...))
			}
			first := len(g.Nodes())
			for i, d := range grad.Of(g, y, seeds, wrt) {
				g.Output(fmt.Sprintf("d%d", i), d)
			}
			for _, n := range g.Nodes()[first:] {
				got[n.Op]++
				if n.Op == "Mul" && n.Outputs[0].Shape().String() == "[S,S]" {
					large++
				}
			}
		})
		if err != nil || !maps.Equal(got, c.want) || large > 1 {
			t.Errorf("%s: got %v, %d large, %v; want %v", name, got, large, err, c.want)
		}
	}
}
