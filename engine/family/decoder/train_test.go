package decoder_test

import (
	"fmt"
	"math"
	"testing"

	"athanor/engine/family/decoder"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/ort/orttest"
	"athanor/engine/tensor"
)

// inputs makes every weight and adapter of a layer an input of the graph.
type inputs struct {
	prefix string
	lora   bool
	wrt    []*graph.Value
}

func (s *inputs) input(g *graph.Graph, name string, shape ...int) *graph.Value {
	dims := make([]graph.Dim, len(shape))
	for i, n := range shape {
		dims[i] = graph.Fixed(n)
	}
	v := g.Input(s.prefix+name, tensor.F32, dims...)
	s.wrt = append(s.wrt, v)
	return v
}

func (s *inputs) Weight(g *graph.Graph, part string, shape ...int) *graph.Value {
	return s.input(g, part, shape...)
}

func (s *inputs) LowRank(g *graph.Graph, l decoder.Linear) *nn.LowRank {
	if !s.lora {
		return nil
	}
	return &nn.LowRank{A: s.input(g, l.Name+".lora_A", 2, l.In), B: s.input(g, l.Name+".lora_B", l.Out, 2), Scale: 1.5}
}

// TestGradientsByDifferences compares the gradients of the logits by every weight
// and every adapter of a whole decoder, in the variants that the families have,
// with finite differences in float64, and those in float32 with these.
func TestGradientsByDifferences(t *testing.T) {
	rt := orttest.Open(t)
	base := decoder.Decoder{Vocabulary: 11, Hidden: 16, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 12, Epsilon: 1e-5}
	variants := map[string]func(*decoder.Decoder){
		"llama":             func(*decoder.Decoder) {},
		"llama, all biases": func(d *decoder.Decoder) { d.QKVBias, d.OutputBias, d.MLPBias = true, true, true },
		"llama, one head for all": func(d *decoder.Decoder) {
			d.KVHeads = 1
		},
		"qwen2": func(d *decoder.Decoder) { d.QKVBias = true },
		"qwen3": func(d *decoder.Decoder) { d.QKNorm, d.HeadDim = true, 16 },
	}
	for name, change := range variants {
		for _, lora := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, adapters %v", name, lora), func(t *testing.T) {
				d := base
				change(&d)
				const rows, steps = 2, 5
				report, err := gradcheck.Check(t.Context(), rt, rt, gradcheck.Problem{
					Build: func(g *graph.Graph) (outputs, wrt []*graph.Value) { return decode(g, d, lora) },
					Sizes: map[string]int{"B": rows, "S": steps},
					Values: gradcheck.Values{
						"mask": packedMask(rows, steps), "cos": turns(rows, steps, d.HeadDim/2, math.Cos), "sin": turns(rows, steps, d.HeadDim/2, math.Sin),
					},
					Samples: 4, Seed: 7,
				})
				if err != nil {
					t.Error(err)
				}
				t.Logf("against differences %.1e, in float32 %.1e", report.Difference, report.Narrow)
			})
		}
	}
}

// decode is the decoder behind its embedding, with every float as an input.
func decode(g *graph.Graph, d decoder.Decoder, lora bool) (outputs, wrt []*graph.Value) {
	b, s, one := graph.Symbol("B"), graph.Symbol("S"), graph.Fixed(1)
	half := graph.Fixed(d.HeadDim / 2)
	at := nn.Places{
		Cos: g.Input("cos", tensor.F32, b, s, one, half), Sin: g.Input("sin", tensor.F32, b, s, one, half),
		Mask: g.Input("mask", tensor.F32, b, one, one, s, s),
	}
	x := g.Input("x", tensor.F32, graph.Product(b, s), graph.Fixed(d.Hidden))
	wrt = append(wrt, x)
	for i := range d.Layers {
		in := &inputs{prefix: fmt.Sprintf("layers.%d.", i), lora: lora}
		x = d.TrainLayer(g.Scope(fmt.Sprintf("layer%d", i)), in, x, at)
		wrt = append(wrt, in.wrt...)
	}
	in := &inputs{}
	norm, head := in.input(g, "norm", d.Hidden), in.input(g, "head", d.Vocabulary, d.Hidden)
	return []*graph.Value{d.TrainHead(g, x, norm, head)}, append(wrt, norm, head)
}

// packedMask has two texts in each row, the second from position 3 on.
func packedMask(rows, steps int) (mask []float64) {
	for range rows {
		for i := range steps {
			for j := range steps {
				if j <= i && (i < 3) == (j < 3) {
					mask = append(mask, 0)
				} else {
					mask = append(mask, -1e9)
				}
			}
		}
	}
	return mask
}

func turns(rows, steps, half int, f func(float64) float64) (table []float64) {
	for range rows {
		for i := range steps {
			for k := range half {
				table = append(table, f(float64(i%3)*math.Pow(100, -float64(k)/float64(half))))
			}
		}
	}
	return table
}
