package ort_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

// Sizes of the attention under test: query heads, key/value heads, head size,
// room in the cache.
const (
	gqaN, gqaK, gqaD, gqaM = 4, 2, 16, 24
)

// gqaModel is one GroupQueryAttention with caches in and out.
func gqaModel(packed bool, extra ...onnx.Attribute) *onnx.Model {
	half := gqaD / 2
	cos, sin := make([]float32, gqaM*half), make([]float32, gqaM*half)
	for pos := range gqaM {
		for i := range half {
			angle := float64(pos) * math.Pow(10000, -float64(i)/float64(half))
			cos[pos*half+i], sin[pos*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	val := computetest.Value
	g := &onnx.Graph{
		Initializers: []*onnx.Tensor{
			computetest.Tensor("cos", []int64{gqaM, int64(half)}, cos...),
			computetest.Tensor("sin", []int64{gqaM, int64(half)}, sin...),
		},
		Inputs: []onnx.ValueInfo{
			val("q", onnx.Float, "B", "S", "qkv"), val("pk", onnx.Float, "B", gqaK, "M", gqaD), val("pv", onnx.Float, "B", gqaK, "M", gqaD),
			val("last", onnx.Int32, "B"), val("total", onnx.Int32, 1),
		},
		Outputs: []onnx.ValueInfo{
			val("y", onnx.Float, "B", "S", gqaN*gqaD), val("k", onnx.Float, "B", gqaK, "M", gqaD), val("v", onnx.Float, "B", gqaK, "M", gqaD),
		},
	}
	inputs := []string{"q", "", "", "pk", "pv", "last", "total", "cos", "sin"}
	if !packed {
		inputs[1], inputs[2] = "nk", "nv"
		g.Inputs = append(g.Inputs, val("nk", onnx.Float, "B", "S", gqaK*gqaD), val("nv", onnx.Float, "B", "S", gqaK*gqaD))
	}
	g.Nodes = []*onnx.Node{computetest.Node("com.microsoft::GroupQueryAttention", inputs, []string{"y", "k", "v"},
		append([]onnx.Attribute{computetest.Int("num_heads", gqaN), computetest.Int("kv_num_heads", gqaK), computetest.Int("do_rotary", 1)}, extra...)...)}
	return computetest.Model(g)
}

// gqa is the model on one runtime with its caches, used in place.
type gqa struct {
	rt     compute.Runtime
	p      compute.Program
	packed bool
	k, v   compute.Buffer
}

func newGQA(t *testing.T, rt compute.Runtime, rows int, packed bool, extra ...onnx.Attribute) *gqa {
	t.Helper()
	return &gqa{
		rt: rt, packed: packed, p: computetest.MustCompile(t, rt, gqaModel(packed, extra...), compute.Options{Threads: 1}),
		k: computetest.MustNew(t, rt, tensor.F32, rows, gqaK, gqaM, gqaD),
		v: computetest.MustNew(t, rt, tensor.F32, rows, gqaK, gqaM, gqaD),
	}
}

// step runs S new positions of rows from..from+len(totals) of the cache and
// returns the results.
func (g *gqa) step(t *testing.T, seed uint64, from int, steps int, totals ...int) []float32 {
	t.Helper()
	rows, row := len(totals), gqaK*gqaM*gqaD
	k, err := g.k.View(from*row, rows, gqaK, gqaM, gqaD)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	v, err := g.v.View(from*row, rows, gqaK, gqaM, gqaD)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	last := make([]int32, rows)
	for i, n := range totals {
		last[i] = int32(n - 1)
	}
	width := gqaN * gqaD
	if g.packed {
		width += 2 * gqaK * gqaD
	}
	in := []compute.Buffer{
		computetest.MustBuffer(t, g.rt, []int{rows, steps, width}, computetest.Random(seed, rows*steps*width)...), k, v,
		computetest.MustBuffer(t, g.rt, []int{rows}, last...), computetest.MustBuffer(t, g.rt, []int{1}, int32(slices.Max(totals))),
	}
	if !g.packed {
		n := rows * steps * gqaK * gqaD
		in = append(in, computetest.MustBuffer(t, g.rt, []int{rows, steps, gqaK * gqaD}, computetest.Random(seed+100, n)...),
			computetest.MustBuffer(t, g.rt, []int{rows, steps, gqaK * gqaD}, computetest.Random(seed+200, n)...))
	}
	y := computetest.MustNew(t, g.rt, tensor.F32, rows, steps, gqaN*gqaD)
	if err := g.p.Run(t.Context(), in, []compute.Buffer{y, k, v}); err != nil {
		t.Fatalf("%s: %v", g.rt.Name(), err)
	}
	return computetest.Floats(y)
}

// positions are the first n positions of a row of a cache.
func positions(b compute.Buffer, row, n int) []float32 {
	all := computetest.Floats(b)
	var out []float32
	for h := range gqaK {
		out = append(out, all[(row*gqaK+h)*gqaM*gqaD:][:n*gqaD]...)
	}
	return out
}

// TestGroupQueryAttention walks both runtimes through the life of a cache: a
// padded batch of first prompts, ragged decoding, decoding a part of the rows,
// a new row by chunks, and compares results and caches.
func TestGroupQueryAttention(t *testing.T) {
	for name, c := range map[string]struct {
		packed bool
		extra  []onnx.Attribute
	}{
		"plain":       {false, nil},
		"packed":      {true, nil},
		"scale":       {false, attrs(computetest.Float("scale", 0.7))},
		"interleaved": {false, attrs(computetest.Int("rotary_interleaved", 1))},
		"window":      {false, attrs(computetest.Int("local_window_size", 4))},
		"softcap":     {false, attrs(computetest.Float("softcap", 0.5))},
	} {
		t.Run(name, func(t *testing.T) {
			rt := orttest.Open(t)
			a := newGQA(t, rt, 4, c.packed, c.extra...)
			b := newGQA(t, refexec.New(), 4, c.packed, c.extra...)
			lengths := make([]int, 4)
			step := func(what string, seed uint64, from, steps int, totals ...int) {
				t.Helper()
				got, want := a.step(t, seed, from, steps, totals...), b.step(t, seed, from, steps, totals...)
				width := gqaN * gqaD
				for i, total := range totals {
					valid := steps
					if slices.Max(totals) == steps { // a first prompt: the padding's results mean nothing
						valid = total
					}
					row := i * steps * width
					computetest.Close(t, fmt.Sprintf("%s, row %d", what, from+i), got[row:][:valid*width], want[row:][:valid*width], 2e-6)
					lengths[from+i] = total
				}
				for row, n := range lengths {
					computetest.Close(t, fmt.Sprintf("%s, keys of row %d", what, row), positions(a.k, row, n), positions(b.k, row, n), 2e-6)
					computetest.Close(t, fmt.Sprintf("%s, values of row %d", what, row), positions(a.v, row, n), positions(b.v, row, n), 2e-6)
				}
			}
			step("first prompts", 1, 0, 6, 6, 3, 5)
			step("ragged decode", 2, 0, 1, 7, 4, 6)
			step("decode of two rows", 3, 1, 1, 5, 7)
			step("new row, first chunk", 4, 3, 4, 4)
			step("new row, second chunk", 5, 3, 5, 9)
			step("everyone", 6, 0, 1, 8, 6, 8, 10)
		})
	}
}

// A cache that is written in place must not have moved.
func TestCacheStaysInPlace(t *testing.T) {
	a := newGQA(t, orttest.Open(t), 1, false)
	a.step(t, 1, 0, 3, 3)
	first := positions(a.k, 0, 3)
	a.step(t, 2, 0, 1, 4)
	if !slices.Equal(first, positions(a.k, 0, 3)) {
		t.Error("the first positions changed")
	}
	if p := positions(a.k, 0, 4); slices.Max(p[3*gqaD:4*gqaD]) == 0 {
		t.Error("the new position was not written into the bound memory")
	}
}
