package decoder

import (
	"fmt"

	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// Model is a decoder that can be checked against its weights and turned into a
// serving graph. It is immutable.
type Model struct{ d Decoder }

// New makes a Model of a description that has passed the checks of Common.
func New(d Decoder) *Model { return &Model{d} }

// Decoder is the description.
func (m *Model) Decoder() Decoder { return m.d }

// Check compares presence, type and shape of every weight that the graph
// needs with the config. It reads no weight data.
func (m *Model) Check(a *weights.Archive) error {
	_, err := m.d.find(a)
	return err
}

// Graphs are the two forms of a serving graph, over the same weights.
type Graphs struct {
	Plain    *onnx.Model
	Adapters *onnx.Model // with low-rank adapters as inputs
}

// Graph converts the weights through w and builds the serving graphs over
// them. The ports are, in this order:
//
//	input_ids        [B, S] int64
//	rows             [B, R, 1] int64    positions of this step that get logits
//	seqlens_k        [B] int32          total length of each row minus one
//	total            [1] int32          the longest total length
//	past.<i>.key     [B, K, M, D] float32, then past.<i>.value, for each layer
//
//	logits           [B, R, V] float32
//	present.<i>.key  [B, K, M, D] float32, then present.<i>.value; may be bound
//	                 to the memory of the past ones
//
// The graph with adapters has these inputs after those, the pairs for each
// layer and each of Decoder.Linears:
//
//	adapter              [B] int64           the adapter of each row
//	lora.<i>.<module>.a  [P, In, Q] float32  all adapters, padded to one rank
//	lora.<i>.<module>.b  [P, Q, Out] float32 with the factor in it
func (m *Model) Graph(a *weights.Archive, opt GraphOptions, w *weights.Writer) (*Graphs, error) {
	names, err := m.d.find(a)
	if err != nil {
		return nil, err
	}
	format, err := opt.blockFormat()
	if err != nil {
		return nil, err
	}
	positions := opt.KVCapacity
	if positions == 0 {
		positions = m.d.ContextLength
	}
	if positions < 1 || positions > m.d.ContextLength {
		return nil, fmt.Errorf("a capacity of %d positions is not within the model's context of %d", positions, m.d.ContextLength)
	}
	c := &converter{
		archive: a, names: names, w: w, format: format, progress: opt.Progress,
		dense: map[string]*onnx.External{}, blocks: map[string]weights.Quantized{},
	}
	if err := c.all(&m.d); err != nil {
		return nil, err
	}
	if err := c.rotary(m.d.Rope, positions); err != nil {
		return nil, err
	}
	var g Graphs
	if g.Plain, err = graph.Build(func(g *graph.Graph) { m.d.build(g, serving{converter: c}, positions, false) }); err != nil {
		return nil, err
	}
	g.Adapters, err = graph.Build(func(g *graph.Graph) { m.d.build(g, serving{converter: c}, positions, true) })
	return &g, err
}

// serving is what the layers of one graph are made of.
type serving struct {
	*converter
	adapters map[string]*nn.Adapters // by canonical name of the module; nil for none
}

// The symbols of the ports.
var (
	symB = graph.Symbol("B")
	symS = graph.Symbol("S")
	symR = graph.Symbol("R")
	symM = graph.Symbol("M")
	symP = graph.Symbol("P")
	symQ = graph.Symbol("Q")
)

// build adds the whole decoder to g.
func (d *Decoder) build(g *graph.Graph, c serving, positions int, adapters bool) {
	fixed := graph.Fixed
	ids := g.Input("input_ids", tensor.I64, symB, symS)
	rows := g.Input("rows", tensor.I64, symB, symR, fixed(1))
	last := g.Input("seqlens_k", tensor.I32, symB)
	total := g.Input("total", tensor.I32, fixed(1))
	caches := make([]nn.Cache, d.Layers)
	for i := range caches {
		shape := []graph.Dim{symB, fixed(d.KVHeads), symM, fixed(d.HeadDim)}
		caches[i] = nn.Cache{
			Key:   g.Input(fmt.Sprintf("past.%d.key", i), tensor.F32, shape...),
			Value: g.Input(fmt.Sprintf("past.%d.value", i), tensor.F32, shape...),
			Last:  last, Total: total,
		}
	}
	if adapters {
		c.adapters = d.adapterInputs(g)
	}
	table := []int{positions, d.HeadDim / 2}
	rotation := nn.NewRotation(g.Scope("rotary"),
		g.External(cosName, tensor.F32, table, c.dense[cosName]),
		g.External(sinName, tensor.F32, table, c.dense[sinName]), ids, last)

	embedding := nn.Embedding{Table: c.table(g, embedName, d.Vocabulary, d.Hidden)}
	sum := embedding.Apply(g.Scope("embed"), ids).Dims(symB, symS, fixed(d.Hidden))
	var branch *graph.Value // what the last block adds to sum, nil before the first
	present := make([]*graph.Value, 0, 2*d.Layers)
	for i := range d.Layers {
		var key, value *graph.Value
		sum, branch, key, value = d.layer(g.Scope(fmt.Sprintf("layer%d", i)), c, i, sum, branch, rotation, caches[i])
		present = append(present, key, value)
	}

	// Only the wanted positions go on: the projection to the vocabulary is the
	// largest product of a short step.
	sum = g.GatherRows(sum, rows).Dims(symB, symR, fixed(d.Hidden))
	branch = g.GatherRows(branch, rows)
	normed, _ := d.norm(g, c, "norm.weight", d.Hidden).Skip(g.Scope("final"), sum, branch)
	head := nn.Linear{Weight: c.matrix(g, headName, d.Vocabulary, d.Hidden)}
	g.Output("logits", head.Apply(g.Scope("head"), normed).Dims(symB, symR, fixed(d.Vocabulary)))
	for i := range d.Layers {
		g.Output(fmt.Sprintf("present.%d.key", i), present[2*i])
		g.Output(fmt.Sprintf("present.%d.value", i), present[2*i+1])
	}
}

// adapterInputs declares the inputs of the adapters of all modules.
func (d *Decoder) adapterInputs(g *graph.Graph) map[string]*nn.Adapters {
	all := map[string]*nn.Adapters{}
	row := g.Input("adapter", tensor.I64, symB)
	for i := range d.Layers {
		for _, l := range d.Linears() {
			name := fmt.Sprintf("lora.%d.%s", i, l.Name)
			all[layerName(i)+l.Name] = &nn.Adapters{
				Row: row,
				A:   g.Input(name+".a", tensor.F32, symP, graph.Fixed(l.In), symQ),
				B:   g.Input(name+".b", tensor.F32, symP, symQ, graph.Fixed(l.Out)),
			}
		}
	}
	return all
}

// layer adds one block: norm, attention, norm, feed-forward, each reading the
// residual sum and adding to it. The last addition is left to the next norm,
// which does it in the same pass.
func (d *Decoder) layer(g *graph.Graph, c serving, i int, sum, branch *graph.Value, r nn.Rotation, cache nn.Cache) (_, _, key, value *graph.Value) {
	p := layerName(i)
	norm := d.norm(g, c, p+"input_layernorm.weight", d.Hidden)
	var x *graph.Value // [B, S, H]
	if branch == nil {
		x = norm.Apply(g, sum)
	} else {
		x, sum = norm.Skip(g, branch, sum)
	}
	branch, key, value = d.attention(g, c, p).Apply(g.Scope("attention"), x, r, cache)
	x, sum = d.norm(g, c, p+"post_attention_layernorm.weight", d.Hidden).Skip(g, branch, sum)
	mlp := nn.GatedMLP{
		Gate: d.linear(g, c, p+"mlp.gate_proj", d.FFN, d.Hidden, d.MLPBias),
		Up:   d.linear(g, c, p+"mlp.up_proj", d.FFN, d.Hidden, d.MLPBias),
		Down: d.linear(g, c, p+"mlp.down_proj", d.Hidden, d.FFN, d.MLPBias),
	}
	return sum, mlp.Apply(g.Scope("mlp"), x), key, value
}

func (d *Decoder) attention(g *graph.Graph, c serving, p string) nn.Attention {
	q, kv := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	a := nn.Attention{
		Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim,
		Q: d.linear(g, c, p+"self_attn.q_proj", q, d.Hidden, d.QKVBias),
		K: d.linear(g, c, p+"self_attn.k_proj", kv, d.Hidden, d.QKVBias),
		V: d.linear(g, c, p+"self_attn.v_proj", kv, d.Hidden, d.QKVBias),
		O: d.linear(g, c, p+"self_attn.o_proj", d.Hidden, q, d.OutputBias),
	}
	if d.QKNorm {
		qn := d.norm(g, c, p+"self_attn.q_norm.weight", d.HeadDim)
		kn := d.norm(g, c, p+"self_attn.k_norm.weight", d.HeadDim)
		a.QNorm, a.KNorm = &qn, &kn
	}
	return a
}

func (d *Decoder) norm(g *graph.Graph, c serving, name string, n int) nn.RMSNorm {
	return nn.RMSNorm{Weight: c.vector(g, name, n), Epsilon: float32(d.Epsilon)}
}

func (d *Decoder) linear(g *graph.Graph, c serving, name string, rows, cols int, bias bool) nn.Linear {
	l := nn.Linear{Weight: c.matrix(g, name+".weight", rows, cols), Adapters: c.adapters[name]}
	if bias {
		l.Bias = c.vector(g, name+".bias", rows)
	}
	return l
}
