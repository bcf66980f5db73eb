package decoder

import (
	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/weights"
)

// Linear is one linear module of a layer.
type Linear struct {
	Name    string // within the layer: "self_attn.q_proj"
	Out, In int    // the weight is [Out, In]
	Bias    bool
}

// Linears lists the linear modules of every layer, in the order of their use.
func (d *Decoder) Linears() []Linear {
	h, q, kv := d.Hidden, d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	return []Linear{
		{"self_attn.q_proj", q, h, d.QKVBias}, {"self_attn.k_proj", kv, h, d.QKVBias}, {"self_attn.v_proj", kv, h, d.QKVBias},
		{"self_attn.o_proj", h, q, d.OutputBias},
		{"mlp.gate_proj", d.FFN, h, d.MLPBias}, {"mlp.up_proj", d.FFN, h, d.MLPBias}, {"mlp.down_proj", h, d.FFN, d.MLPBias},
	}
}

// Weight is one weight of a model.
type Weight struct {
	Name   string // canonical: "layers.0.mlp.up_proj.weight"
	Layer  int    // -1 for what belongs to no layer
	Part   string // within the layer: "mlp.up_proj.weight"; Name where there is none
	Stored string // in the archive
	Shape  []int
}

// The weights that belong to no layer, by their canonical names.
const (
	EmbedName = embedName
	NormName  = "norm.weight"
	HeadName  = headName
)

// Weights finds all weights of the model in an archive: the embedding, the
// layers, the last norm and, unless it is the embedding, the output
// projection.
func (d *Decoder) Weights(a *weights.Archive) ([]Weight, error) {
	names, err := d.find(a)
	if err != nil {
		return nil, err
	}
	shared := names[embedName] == names[headName]
	if !shared && d.Tied {
		if shared, err = names.shared(a); err != nil {
			return nil, err
		}
	}
	table := []int{d.Vocabulary, d.Hidden}
	list := []Weight{{Name: embedName, Layer: -1, Part: embedName, Stored: names[embedName], Shape: table}}
	for i := range d.Layers {
		p := layerName(i)
		for _, w := range d.layerParts() {
			w.Name, w.Layer, w.Stored = p+w.Part, i, names[p+w.Part]
			list = append(list, w)
		}
	}
	list = append(list, Weight{Name: NormName, Layer: -1, Part: NormName, Stored: names[NormName], Shape: []int{d.Hidden}})
	if !shared {
		list = append(list, Weight{Name: headName, Layer: -1, Part: headName, Stored: names[headName], Shape: table})
	}
	return list, nil
}

// layerParts lists the weights of one layer.
func (d *Decoder) layerParts() []Weight {
	list := []Weight{{Part: "input_layernorm.weight", Shape: []int{d.Hidden}}, {Part: "post_attention_layernorm.weight", Shape: []int{d.Hidden}}}
	if d.QKNorm {
		list = append(list, Weight{Part: "self_attn.q_norm.weight", Shape: []int{d.HeadDim}}, Weight{Part: "self_attn.k_norm.weight", Shape: []int{d.HeadDim}})
	}
	for _, l := range d.Linears() {
		list = append(list, Weight{Part: l.Name + ".weight", Shape: []int{l.Out, l.In}})
		if l.Bias {
			list = append(list, Weight{Part: l.Name + ".bias", Shape: []int{l.Out}})
		}
	}
	return list
}

// Source gives the values of one layer to its training graph.
type Source interface {
	// Weight is a weight by its name within the layer, in float32.
	Weight(g *graph.Graph, part string, shape ...int) *graph.Value
	// LowRank is the adapter of a linear module, nil where it has none.
	LowRank(g *graph.Graph, l Linear) *nn.LowRank
}

// TrainLayer adds one layer, made of standard operators, to a graph: x [B*S, H]
// to [B*S, H].
func (d *Decoder) TrainLayer(g *graph.Graph, s Source, x *graph.Value, at nn.Places) *graph.Value {
	linears := map[string]nn.TrainLinear{}
	for _, l := range d.Linears() {
		t := nn.TrainLinear{Weight: s.Weight(g, l.Name+".weight", l.Out, l.In), LoRA: s.LowRank(g, l)}
		if l.Bias {
			t.Bias = s.Weight(g, l.Name+".bias", l.Out)
		}
		linears[l.Name] = t
	}
	norm := func(name string, n int) *nn.RMSNorm {
		return &nn.RMSNorm{Weight: s.Weight(g, name+".weight", n), Epsilon: float32(d.Epsilon)}
	}
	attention := nn.TrainAttention{
		Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim,
		Q: linears["self_attn.q_proj"], K: linears["self_attn.k_proj"], V: linears["self_attn.v_proj"], O: linears["self_attn.o_proj"],
	}
	if d.QKNorm {
		attention.QNorm, attention.KNorm = norm("self_attn.q_norm", d.HeadDim), norm("self_attn.k_norm", d.HeadDim)
	}
	mlp := nn.TrainMLP{Gate: linears["mlp.gate_proj"], Up: linears["mlp.up_proj"], Down: linears["mlp.down_proj"]}
	normed := norm("input_layernorm", d.Hidden).Train(g.Scope("input_norm"), x)
	x = g.Add(x, attention.Apply(g.Scope("attention"), normed, at))
	normed = norm("post_attention_layernorm", d.Hidden).Train(g.Scope("post_norm"), x)
	return g.Add(x, mlp.Apply(g.Scope("mlp"), normed))
}

// TrainHead adds the last norm and the output projection: x [C, H] to the
// logits [C, V].
func (d *Decoder) TrainHead(g *graph.Graph, x, norm, head *graph.Value) *graph.Value {
	normed := nn.RMSNorm{Weight: norm, Epsilon: float32(d.Epsilon)}.Train(g.Scope("final"), x)
	return g.Gemm(normed, head, false, true)
}
