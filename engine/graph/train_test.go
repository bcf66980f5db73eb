package graph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

// TestTrainingShapes runs the operators of training graphs; the outputs that
// come out must have the inferred shapes.
func TestTrainingShapes(t *testing.T) {
	rows := graph.Product(symS, symB) // the same as B*S
	model, err := graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, symB, symS, fixed(6))
		ids := g.Input("ids", tensor.I64, symB, symS, fixed(2))
		n := 0
		keep := func(v *graph.Value, shape ...graph.Dim) *graph.Value {
			g.Output(fmt.Sprintf("out%d", n), v.Dims(shape...))
			n++
			return v
		}
		flat := keep(g.Reshape(x, rows, fixed(6)), rows, fixed(6))
		keep(g.Gemm(flat, flat, true, false), fixed(6), fixed(6))
		wide := keep(g.Gemm(flat, g.Floats("w", []int{4, 6}, make([]float32, 24)), false, true), rows, fixed(4))
		heads := keep(g.Transpose(g.Reshape(wide, symB, symS, fixed(2), fixed(2)), 0, 2, 1, 3), symB, fixed(2), symS, fixed(2))
		stacked := keep(g.Reshape(heads, graph.Product(symB, fixed(2)), symS, fixed(2)), graph.Product(fixed(2), symB), symS, fixed(2))
		keep(g.MatMul(stacked, g.Transpose(stacked, 0, 2, 1)), graph.Symbol("2*B"), symS, symS)
		keep(g.Reshape(flat, symB, graph.Product(fixed(3), symS), fixed(2)), symB, graph.Product(symS, fixed(3)), fixed(2))
		keep(g.ReduceSum(x, true, -1), symB, symS, fixed(1))
		keep(g.ReduceMean(x, false, 0, 2), symS)
		keep(g.ReduceMax(x, false, 1, 0), fixed(6))
		keep(g.Div(g.Softmax(x), g.Scalar(2, tensor.F32)), symB, symS, fixed(6))
		keep(g.Where(g.And(g.Equal(x, x), g.LessOrEqual(x, g.Scalar(0, tensor.F32))), g.Neg(x), g.Sigmoid(x)), symB, symS, fixed(6))
		keep(g.Slice(x, 2, 1, 4), symB, symS, fixed(3))
		keep(g.Expand(g.ReduceSum(x, false, 1, 2), symS, symB), symS, symB)
		picked := keep(g.GatherElements(x, ids, 2), symB, symS, fixed(2))
		keep(g.ScatterElements(x, ids, picked, 2), symB, symS, fixed(6))
		keep(g.ScatterRows(g.Zeros(tensor.F32, fixed(6), fixed(4)), g.Squeeze(g.Slice(ids, 2, 0, 1), 2), g.Slice(x, 2, 0, 4)), fixed(6), fixed(4))
		keep(g.Dequantize(g.Input("codes", tensor.I4, fixed(3), fixed(5)), g.Floats("scales", []int{3, 3}, make([]float32, 9)), nil, 1, 2), fixed(3), fixed(5))
	})
	if err != nil {
		t.Fatal(err)
	}
	given := gradcheck.Values{"ids": {0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0, 0, 0, 1, 1, 2, 2, 3, 3}, "codes": make([]float64, 15)}
	var want gradcheck.Values
	for _, rt := range []compute.Runtime{refexec.New(), orttest.Open(t)} {
		p, err := gradcheck.Open(rt, model, map[string]int{"B": 2, "S": 5})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		in, err := p.Fill(rand.New(rand.NewPCG(1, 2)), given)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got["out0"], in["x"]) {
			t.Errorf("%s: joined rows are %v", rt.Name(), got["out0"])
		}
		for name, v := range got {
			if want == nil {
				break
			}
			if _, err := gradcheck.Compare(name, v, want[name], 1e-6); err != nil {
				t.Errorf("%s: %v", rt.Name(), err)
			}
		}
		want = got
	}
}

// TestTrainingMistakes is like TestMistakes.
func TestTrainingMistakes(t *testing.T) {
	f := func(g *graph.Graph, name string, shape ...graph.Dim) *graph.Value {
		return g.Input(name, tensor.F32, shape...)
	}
	for want, build := range map[string]func(g *graph.Graph){
		"MatMul: x f32[B,2] by y f32[B,2]": func(g *graph.Graph) { g.MatMul(f(g, "x", symB, fixed(2)), f(g, "y", symB, fixed(2))) },
		"MatMul: types of x f32[2,2] and y f64[2,2] dif": func(g *graph.Graph) {
			g.MatMul(f(g, "x", fixed(2), fixed(2)), g.Input("y", tensor.F64, fixed(2), fixed(2)))
		},
		"Gemm: x f32[B,2] by y f32[B,2], transposed: fa": func(g *graph.Graph) { g.Gemm(f(g, "x", symB, fixed(2)), f(g, "y", symB, fixed(2)), false, false) },
		"Gemm: x f32[B] by y f32[B]":                     func(g *graph.Graph) { g.Gemm(f(g, "x", symB), f(g, "y", symB), false, false) },
		"Transpose: x f32[B,S] by [0 0]":                 func(g *graph.Graph) { g.Transpose(f(g, "x", symB, symS), 0, 0) },
		"Transpose: x f32[B,S] by [0]":                   func(g *graph.Graph) { g.Transpose(f(g, "x", symB, symS), 0) },
		"Exp: x i64[] is neither float32 nor float64":    func(g *graph.Graph) { g.Exp(g.Input("x", tensor.I64)) },
		"ReduceSum: no axes of x f32[B]":                 func(g *graph.Graph) { g.ReduceSum(f(g, "x", symB), true) },
		"Dim: x f32[B] has no dimension 1":               func(g *graph.Graph) { g.ReduceMax(f(g, "x", symB), true, 1) },
		"Scalar: i64 is neither float32 nor float64":     func(g *graph.Graph) { g.Scalar(1, tensor.I64) },
		"Where: x f32[B] between":                        func(g *graph.Graph) { x := f(g, "x", symB); g.Where(x, x, x) },
		"And: x f32[B] is not of truth values":           func(g *graph.Graph) { x := f(g, "x", symB); g.And(x, x) },
		"Slice: x f32[B,4] from 1 to 5 along axis 1":     func(g *graph.Graph) { g.Slice(f(g, "x", symB, fixed(4)), 1, 1, 5) },
		"Slice: x f32[B,4] from 0 to 1 along axis 0":     func(g *graph.Graph) { g.Slice(f(g, "x", symB, fixed(4)), 0, 0, 1) },
		"Squeeze: dimension 0 of x f32[B] is not 1":      func(g *graph.Graph) { g.Squeeze(f(g, "x", symB), 0) },
		"Expand: x f32[B] does not stretch to [S]":       func(g *graph.Graph) { g.Expand(f(g, "x", symB), symS) },
		"Expand: no input has the dimension R":           func(g *graph.Graph) { g.Expand(f(g, "x", symB), symR, symB) },
		"GatherElements: x f32[B,4] by i i64[S,2] along": func(g *graph.Graph) {
			g.GatherElements(f(g, "x", symB, fixed(4)), g.Input("i", tensor.I64, symS, fixed(2)), 1)
		},
		"ScatterND: x f32[B] by x f32[B]": func(g *graph.Graph) { x := f(g, "x", symB); g.ScatterRows(x, x, x) },
		"DequantizeLinear: x f32[4] are no codes": func(g *graph.Graph) {
			g.Dequantize(f(g, "x", fixed(4)), f(g, "s", fixed(2)), nil, 0, 2)
		},
		"Dims: s f32[2], want shape [3]": func(g *graph.Graph) {
			g.Dequantize(g.Input("c", tensor.U4, fixed(5)), f(g, "s", fixed(2)), nil, 0, 2)
		},
	} {
		if _, err := graph.Build(build); err == nil || len(err.Error()) < len(want)+7 || err.Error()[7:7+len(want)] != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
