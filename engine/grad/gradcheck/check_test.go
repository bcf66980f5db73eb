package gradcheck_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/onnx"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

type value = *graph.Value

func square(g *graph.Graph, stop bool) ([]value, []value) {
	x := g.Input("x", tensor.F32, graph.Symbol("B"), graph.Fixed(3))
	other := x
	if stop {
		other = g.StopGradient(x)
	}
	return []value{g.Mul(x, other)}, []value{x}
}

// TestCheckFindsMistakes gives it gradients and kernels that are wrong.
func TestCheckFindsMistakes(t *testing.T) {
	sizes := map[string]int{"B": 2}
	rt := refexec.New()
	for _, c := range []struct {
		name string
		p    gradcheck.Problem
		rt   compute.Runtime
		want string // of the error, "" for none
	}{
		{"right", gradcheck.Problem{Sizes: sizes, Build: func(g *graph.Graph) ([]value, []value) { return square(g, false) }}, rt, ""},
		{"a gradient without half of it", gradcheck.Problem{Sizes: sizes, Build: func(g *graph.Graph) ([]value, []value) { return square(g, true) }}, rt, "gradient of x: slope in a random direction is"},
		{"another function in float32", gradcheck.Problem{Sizes: sizes, Build: func(g *graph.Graph) ([]value, []value) { return square(g, false) }}, wrong{rt}, "float32 on refexec: output 0: element"},
		{"no size", gradcheck.Problem{Build: func(g *graph.Graph) ([]value, []value) { return square(g, false) }}, rt, "x: symbol B has no size"},
		{"independent", gradcheck.Problem{Build: func(g *graph.Graph) ([]value, []value) {
			return []value{g.Exp(g.Input("x", tensor.F32))}, []value{g.Input("z", tensor.F32)}
		}}, rt, "no output depends on z"},
		{"no indices", gradcheck.Problem{Build: func(g *graph.Graph) ([]value, []value) {
			x := g.Input("x", tensor.F32, graph.Fixed(2))
			return []value{g.Gather(x, g.Input("ids", tensor.I64, graph.Fixed(1)))}, []value{x}
		}}, rt, "input ids needs values"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := gradcheck.Check(t.Context(), rt, c.rt, c.p)
			if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
				t.Errorf("got %v, want %q (%+v)", err, c.want, report)
			}
		})
	}
}

// wrong is a runtime that adds where it should multiply.
type wrong struct{ compute.Runtime }

func (w wrong) Compile(m *onnx.Model, opt compute.Options) (compute.Program, error) {
	m.Graph.Nodes[0].OpType = "Add"
	return w.Runtime.Compile(m, opt)
}

// TestDouble compares a model of every kind of node that changes with its
// float64 form.
func TestDouble(t *testing.T) {
	model, err := graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, graph.Fixed(4))
		codes := g.Input("codes", tensor.I4, graph.Fixed(4))
		w := g.Dequantize(codes, g.Floats("scales", []int{2}, []float32{0.1, 0.3}), nil, 0, 2)
		g.Output("y", g.Mul(g.Add(x, w), g.Scalar(0.1, tensor.F32)))
		g.Output("z", g.Cast(g.Cast(x, tensor.BF16), tensor.F32))
	})
	if err != nil {
		t.Fatal(err)
	}
	double, err := gradcheck.Double(model)
	if err != nil {
		t.Fatal(err)
	}
	var results []gradcheck.Values
	for _, m := range []*onnx.Model{model, double} {
		p, err := gradcheck.Open(refexec.New(), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		in, err := p.Fill(rand.New(rand.NewPCG(1, 2)), gradcheck.Values{"codes": {-8, 7, 0, -1}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, out)
	}
	if e, err := gradcheck.Compare("y", results[0]["y"], results[1]["y"], 1e-7); err != nil || e == 0 {
		t.Errorf("difference %v, %v: want a little", e, err)
	}
	if !slices.Equal(results[0]["z"], results[1]["z"]) {
		t.Errorf("bfloat16 %v and %v", results[0]["z"], results[1]["z"])
	}
}
