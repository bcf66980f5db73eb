package graph_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/onnx"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

var (
	symB = graph.Symbol("B")
	symS = graph.Symbol("S")
	symR = graph.Symbol("R")
)

func fixed(n int) graph.Dim { return graph.Fixed(n) }

// TestMistakes checks that every operator refuses what does not fit, with its
// name in the error.
func TestMistakes(t *testing.T) {
	f := func(g *graph.Graph, name string, shape ...graph.Dim) *graph.Value {
		return g.Input(name, tensor.F32, shape...)
	}
	w := func(g *graph.Graph, name string, shape ...int) *graph.Value {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return g.Floats(name, shape, make([]float32, n))
	}
	cases := map[string]func(*graph.Graph){
		"Build: the graph has no output":   func(g *graph.Graph) { f(g, "x", symB) },
		"Input: name \"x\" is empty or ta": func(g *graph.Graph) { f(g, "x"); f(g, "x") },
		"weight: name \"w\" is empty or t": func(g *graph.Graph) { f(g, "w"); w(g, "w", 1) },
		"Output: x f32[B] cannot be outpu": func(g *graph.Graph) { g.Output("y", f(g, "x", symB)) },
		"Dims: x f32[B,4], want shape [4,": func(g *graph.Graph) { f(g, "x", symB, fixed(4)).Dims(fixed(4), symB) },
		"Dim: x f32[B] has no dimension 1": func(g *graph.Graph) { f(g, "x", symB).Dim(1) },
		"Add: shapes of":                   func(g *graph.Graph) { g.Add(f(g, "x", symB), f(g, "y", symS)) },
		"Mul: types of":                    func(g *graph.Graph) { g.Mul(f(g, "x"), g.Input("y", tensor.I64)) },
		"Reshape: x f32[B,6] has other el": func(g *graph.Graph) { g.Reshape(f(g, "x", symB, fixed(6)), symB, fixed(5)) },
		"Reshape: no input has the dimens": func(g *graph.Graph) { g.Reshape(f(g, "x", graph.Product(symB, symS)), symB, symS) },
		"Gather: w f32[2,2] by x f32[B]":   func(g *graph.Graph) { g.Gather(w(g, "w", 2, 2), f(g, "x", symB)) },
		"GatherND: x f32[B,S]": func(g *graph.Graph) {
			g.GatherRows(f(g, "x", symB, symS), g.Input("i", tensor.I64, symR, symR, fixed(1)))
		},
		"Concat: y f32[S,2] does not fit ": func(g *graph.Graph) { g.Concat(1, f(g, "x", symB, fixed(2)), f(g, "y", symS, fixed(2))) },
		"Split: x f32[B,6] into [2 3] alo": func(g *graph.Graph) { g.Split(f(g, "x", symB, fixed(6)), 1, 2, 3) },
		"Unsqueeze: x f32[B] has no place": func(g *graph.Graph) { g.Unsqueeze(f(g, "x", symB), 2) },
		"FusedMatMul: x f32[B,3] by the t": func(g *graph.Graph) { g.MatMulTransposed(f(g, "x", symB, fixed(3)), w(g, "w", 2, 4)) },
		"Dims: w f32[3], want shape [4]":   func(g *graph.Graph) { g.RMSNorm(f(g, "x", symB, fixed(4)), w(g, "w", 3), 1e-5) },
		"Silu: x i64[] is not float32":     func(g *graph.Graph) { g.Silu(g.Input("x", tensor.I64)) },
		"External: w f32[2,2] needs 16 by": func(g *graph.Graph) { g.External("w", tensor.F32, []int{2, 2}, &onnx.External{Length: 15}) },
		"Floats: w f32[2] from 3 values":   func(g *graph.Graph) { g.Floats("w", []int{2}, make([]float32, 3)) },
		"Fixed: dimension of -1":           func(g *graph.Graph) { f(g, "x", graph.Fixed(-1)) },
		"weight: w f32[4294967296,4294967": func(g *graph.Graph) { g.External("w", tensor.F32, []int{1 << 32, 1 << 32}, &onnx.External{}) },
		"Input: element type invalid has ": func(g *graph.Graph) { g.Input("x", tensor.Invalid) },
		"MatMulNBits: x f32[B,3] by a mat": func(g *graph.Graph) { g.MatMulBlocks(f(g, "x", symB, fixed(3)), graph.Blocks{K: 4}) },
		"MatMulNBits: codes w f32[1], wan": func(g *graph.Graph) {
			g.MatMulBlocks(f(g, "x", symB, fixed(32)), graph.Blocks{N: 1, K: 32, Bits: 4, Block: 32, Codes: w(g, "w", 1)})
		},
		"GatherBlockQuantized: 33 columns": func(g *graph.Graph) { g.GatherBlocks(graph.Blocks{K: 33, Block: 32}, g.Input("i", tensor.I64, symB)) },
		"GroupQueryAttention: query": func(g *graph.Graph) {
			g.GroupQueryAttention(graph.Attention{Heads: 3, KVHeads: 2, Query: f(g, "q"), Key: f(g, "k"), Value: f(g, "v"), PastKey: f(g, "pk"), PastValue: f(g, "pv")})
		},
	}
	for want, build := range cases {
		t.Run(want, func(t *testing.T) {
			m, err := graph.Build(build)
			var e *graph.Error
			if m != nil || !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "graph: "+want) {
				t.Errorf("got %v, want it to start with %q", err, "graph: "+want)
			}
		})
	}
}

func TestBuildDoesNotHideOtherPanics(t *testing.T) {
	defer func() {
		if p := recover(); p != "other" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = graph.Build(func(*graph.Graph) { panic("other") })
}

// TestShapes runs a graph of every shape operator, and compares the inferred
// shapes with those that come out.
func TestShapes(t *testing.T) {
	var values []*graph.Value
	model, err := graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, symB, symS, fixed(6))
		pick := g.Input("pick", tensor.I64, symB, symR, fixed(1))
		keep := func(v *graph.Value) *graph.Value {
			g.Output(fmt.Sprintf("out%d", len(values)), v)
			values = append(values, v)
			return v
		}
		y := keep(g.Reshape(x, symB, symS, fixed(2), fixed(3)).Dims(symB, symS, fixed(2), fixed(3)))
		parts := g.Split(y, 3, 1, 2)
		keep(g.Concat(3, parts[1], parts[0]).Dims(symB, symS, fixed(2), fixed(3)))
		keep(g.Add(g.Mul(x, x), g.Floats("w", []int{6}, []float32{1, 2, 3, 4, 5, 6})).Dims(symB, symS, fixed(6)))
		keep(g.GatherRows(x, pick).Dims(symB, symR, fixed(6)))
		keep(g.Gather(g.Floats("table", []int{3, 2}, []float32{1, 2, 3, 4, 5, 6}), g.Cast(pick, tensor.I32)).Dims(symB, symR, fixed(1), fixed(2)))
		keep(g.Range(x, 1).Dims(symS))
		keep(g.Max(g.Sub(g.Length(x, 0), g.Int64(3)), g.Int64(-1)).Dims(fixed(1)))
		keep(g.Unsqueeze(x, 1).Dims(symB, fixed(1), symS, fixed(6)))
		keep(g.MatMulTransposed(x, g.Floats("m", []int{2, 6}, make([]float32, 12))).Dims(symB, symS, fixed(2)))
		keep(g.Silu(g.RMSNorm(x, g.Floats("n", []int{6}, make([]float32, 6)), 1e-5)).Dims(symB, symS, fixed(6)))
	})
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[graph.Dim]int{symB: 2, symS: 5, symR: 3}
	in := []compute.Buffer{newBuffer(t, tensor.F32, 2, 5, 6), newBuffer(t, tensor.I64, 2, 3, 1)}
	for i := range 60 {
		binary.LittleEndian.PutUint32(in[0].Bytes()[4*i:], math.Float32bits(float32(i)))
	}
	binary.LittleEndian.PutUint64(in[1].Bytes()[8*4:], 2)
	var out []compute.Buffer
	for _, v := range values {
		var shape []int
		for _, d := range v.Shape() {
			n, ok := d.Size()
			if !ok {
				n = sizes[d]
			}
			shape = append(shape, n)
		}
		out = append(out, newBuffer(t, v.DType(), shape...))
	}
	program, err := refexec.New().Compile(model, compute.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Run(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	at := func(output, i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(out[output].Bytes()[4*i:]))
	}
	// Row 1 picks position 0, 2, 0; value 12 of row 1 is 30 + 2*6.
	if got := at(3, 4*6); got != 42 {
		t.Errorf("picked row starts with %v, want 42", got)
	}
	if a, b, c := at(1, 0), at(1, 1), at(1, 2); a != 1 || b != 2 || c != 0 {
		t.Errorf("split and joined: %v %v %v", a, b, c)
	}
	if got := at(2, 7); got != 7*7+2 {
		t.Errorf("x*x+w is %v, want 51", got)
	}
	if got := int64(binary.LittleEndian.Uint64(out[5].Bytes()[8*4:])); got != 4 {
		t.Errorf("range ends with %d", got)
	}
	if got := int64(binary.LittleEndian.Uint64(out[6].Bytes())); got != -1 {
		t.Errorf("max(2-3, -1) is %d", got)
	}
}

func newBuffer(t *testing.T, d tensor.DType, shape ...int) compute.Buffer {
	t.Helper()
	b, err := refexec.New().NewBuffer(d, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSameCallsSameModel(t *testing.T) {
	build := func() *onnx.Model {
		m, err := graph.Build(func(g *graph.Graph) {
			x := g.Input("x", tensor.F32, symB, fixed(4))
			for i := range 3 {
				x = g.Scope(fmt.Sprintf("layer%d", i)).Scope("mlp").Add(g.Silu(x), x)
			}
			g.Output("y", g.Reshape(g.Reshape(x, symB, fixed(2), fixed(2)), symB, fixed(4)))
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	one := build()
	if !reflect.DeepEqual(one, build()) {
		t.Error("two builds differ")
	}
	if got := one.Graph.Nodes[1].Name; got != "layer0/mlp/Add.1" {
		t.Errorf("node is called %q", got)
	}
	if len(one.Graph.Initializers) != 2 {
		t.Errorf("%d initializers, want the two shapes", len(one.Graph.Initializers))
	}
}

func ExampleBuild() {
	model, err := graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, graph.Symbol("B"), graph.Fixed(2))
		w := g.Floats("w", []int{3, 2}, []float32{1, 0, 0, 1, 1, 1})
		g.Output("y", g.MatMulTransposed(x, w).Dims(graph.Symbol("B"), graph.Fixed(3)))
	})
	fmt.Println(err, len(model.Graph.Nodes), model.Graph.Outputs[0].Name)
	_, err = graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, graph.Symbol("B"), graph.Fixed(2))
		g.Output("y", g.Add(x, g.Floats("w", []int{3}, make([]float32, 3))))
	})
	fmt.Println(err)
	// Output:
	// <nil> 1 y
	// graph: Add: shapes of x f32[B,2] and w f32[3] do not fit
}
