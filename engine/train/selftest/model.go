package selftest

import (
	"fmt"

	"athanor/engine/grad"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// The dimensions of the model, which are small but not multiples of anything
// that a kernel may like.
const (
	hidden, ffn      = 12, 20
	heads, kv, size  = 3, 1, 6
	rank, vocabulary = 2, 9
)

var (
	symB, symS = graph.Symbol("B"), graph.Symbol("S")
	rows       = graph.Product(symB, symS)
	sizes      = map[string]int{"B": 2, "S": 5}
)

// given are the inputs that cannot be random.
var given = gradcheck.Values{
	"ids":     {0, 3, 3, 8, 1, 2, 3, 5, 0, 7},
	"targets": {3, 3, 8, 1, 0, 3, 5, 0, 7, 2},
	"codes4":  cycle(16, 0, 2*hidden),
	"codes8":  cycle(256, -128, hidden*hidden),
	"keep":    cycle(2, 0, sizes["B"]*sizes["S"]*hidden),
	"mask":    mask(sizes["B"], sizes["S"]),
}

// mask is causal for each of n rows of s positions.
func mask(n, s int) []float64 {
	m := make([]float64, n*s*s)
	for i := range m {
		if query, key := i/s%s, i%s; key > query {
			m[i] = -1e9
		}
	}
	return m
}

// cycle is n integers below m in some order, plus from.
func cycle(m, from, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = float64(i*i*7%m + from)
	}
	return list
}

// builder declares the inputs of the model.
type builder struct {
	g   *graph.Graph
	wrt []*graph.Value // inputs with a gradient
}

func (b *builder) input(name string, shape ...graph.Dim) *graph.Value {
	return b.g.Input(name, tensor.F32, shape...)
}

// weight is an input [dims...] to train.
func (b *builder) weight(name string, dims ...int) *graph.Value {
	var shape []graph.Dim
	for _, n := range dims {
		shape = append(shape, graph.Fixed(n))
	}
	v := b.input(name, shape...)
	b.wrt = append(b.wrt, v)
	return v
}

// plain is a linear map without anything else.
func (b *builder) plain(name string, n, k int) nn.TrainLinear {
	return nn.TrainLinear{Weight: b.weight(name+".weight", n, k)}
}

// adapted is a linear map with everything that one can have.
func (b *builder) adapted(name string, n, k int) nn.TrainLinear {
	return nn.TrainLinear{
		Weight: b.weight(name+".weight", n, k), Bias: b.weight(name+".bias", n),
		LoRA: &nn.LowRank{
			A: b.weight(name+".lora_a", rank, k), B: b.weight(name+".lora_b", n, rank), Scale: 2,
			Keep: b.g.Cast(b.g.Input("keep", tensor.U8, rows, graph.Fixed(k)), tensor.F32),
		},
	}
}

func (b *builder) norm(name string, n int) *nn.RMSNorm {
	return &nn.RMSNorm{Weight: b.weight(name, n), Epsilon: 1e-5}
}

// build writes a model with one layer, its loss and all gradients. With all
// set, every intermediate result is an output too.
func build(all bool) (*onnx.Model, error) {
	return graph.Build(func(g *graph.Graph) {
		b := &builder{g: g}
		outputs := b.function()
		var seeds []*graph.Value
		for i, y := range outputs {
			seeds = append(seeds, b.input(fmt.Sprintf("seed %d", i), y.Shape()...))
		}
		names := map[*graph.Value]string{}
		for i, y := range outputs {
			names[y] = fmt.Sprintf("result %d", i)
		}
		for i, dx := range grad.Of(g, outputs, seeds, b.wrt) {
			names[dx] = "gradient of " + b.wrt[i].Name()
		}
		declare(g, names, all)
	})
}

// function is the forward part of the model.
func (b *builder) function() (outputs []*graph.Value) {
	y := b.layer(b.embed())
	return []*graph.Value{b.loss(b.g.Scope("loss"), y), b.others(b.g.Scope("others"), y)}
}

// declare makes outputs of the named values, or of all in float32.
func declare(g *graph.Graph, names map[*graph.Value]string, all bool) {
	for _, n := range g.Nodes() {
		for i, v := range n.Outputs {
			name, named := names[v]
			if !named {
				name = fmt.Sprintf("output %d of %s", i, n.Name)
			}
			if named || all && v != nil && v.DType() == tensor.F32 {
				g.Output(fmt.Sprintf("%s (%s)", name, n.Op), v)
			}
		}
	}
}

// embed looks tokens up: [B*S, H].
func (b *builder) embed() *graph.Value {
	table := b.weight("table", vocabulary, hidden)
	x := b.g.Scope("embed").Gather(table, b.g.Input("ids", tensor.I64, symB, symS)) // [B, S, H]
	return b.g.Reshape(x, rows, graph.Fixed(hidden))
}

// layer maps x [B*S, H] to [B*S, H].
func (b *builder) layer(x *graph.Value) *graph.Value {
	angles := []graph.Dim{symB, symS, graph.Fixed(1), graph.Fixed(size / 2)}
	at := nn.Places{
		Cos: b.input("cos", angles...), Sin: b.input("sin", angles...),
		Mask: b.input("mask", symB, graph.Fixed(1), graph.Fixed(1), symS, symS),
	}
	attention := nn.TrainAttention{
		Heads: heads, KVHeads: kv, HeadDim: size,
		Q: b.adapted("q", heads*size, hidden), K: b.plain("k", kv*size, hidden), V: b.plain("v", kv*size, hidden),
		O: b.plain("o", hidden, heads*size), QNorm: b.norm("q_norm", size),
	}
	mlp := nn.TrainMLP{Gate: b.plain("gate", ffn, hidden), Up: b.plain("up", ffn, hidden), Down: b.plain("down", hidden, ffn)}
	g := b.g.Scope("layer")
	x = g.Add(x, attention.Apply(g.Scope("attention"), b.norm("norm1", hidden).Train(g.Scope("norm1"), x), at))
	return g.Add(x, mlp.Apply(g.Scope("mlp"), b.norm("norm2", hidden).Train(g.Scope("norm2"), x)))
}

// loss is the log-probability of each target, found in both usual ways:
// [B*S, 1] and once more by a mask.
func (b *builder) loss(g *graph.Graph, x *graph.Value) *graph.Value {
	logits := g.Gemm(x, b.weight("head", vocabulary, hidden), false, true) // [B*S, V]
	logits = g.Sub(logits, g.StopGradient(g.ReduceMax(logits, true, -1)))
	p := g.Sub(logits, g.Log(g.ReduceSum(g.Exp(logits), true, -1)))
	targets := g.Reshape(g.Input("targets", tensor.I64, symB, symS), rows, graph.Fixed(1))
	number := make([]int64, vocabulary)
	for i := range number {
		number[i] = int64(i)
	}
	masked := g.Where(g.Equal(targets, g.Int64s(number...)), p, g.Scalar(0, p.DType()))
	return g.Add(g.GatherElements(p, targets, 1), g.ReduceSum(masked, true, 1))
}

// others uses weights in all types and the operators of other layers and
// losses: [B*S, H].
func (b *builder) others(g *graph.Graph, x *graph.Value) *graph.Value {
	h := graph.Fixed(hidden)
	x = g.Gemm(x, g.Cast(g.Input("bfloat16", tensor.BF16, h, h), tensor.F32), false, true) // [B*S, H]
	x = g.Gemm(x, b.quantized("codes8", tensor.I8, hidden), false, true)                   // [B*S, H]
	y := g.Gemm(g.Tanh(x), b.quantized("codes4", tensor.U4, 2), false, true)               // [B*S, 2]
	y = g.Neg(g.Div(y, g.Add(g.Exp(y), g.Scalar(1, y.DType()))))
	first, second := g.Slice(y, 1, 0, 1), g.Slice(y, 1, 1, 2)
	return g.Mul(g.Max(first, second), b.weight("others", hidden))
}

// quantized is a weight [n, H] in blocks.
func (b *builder) quantized(name string, dtype tensor.DType, n int) *graph.Value {
	const block = hidden / 2
	codes := b.g.Input(name, dtype, graph.Fixed(n), graph.Fixed(hidden))
	scales := b.g.Mul(b.input(name+".scales", graph.Fixed(n), graph.Fixed(2)), b.g.Scalar(0.02, tensor.F32))
	return b.g.Dequantize(codes, scales, nil, 1, block)
}
