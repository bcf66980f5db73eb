package decoder

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"athanor/engine/weights"
)

// need is a weight that the graph uses, under its canonical name: that of
// Llama checkpoints without the leading "model.".
type need struct {
	name  string
	shape []int64
}

// The two matrices that may be one.
const (
	embedName = "embed_tokens.weight"
	headName  = "lm_head.weight"
)

// prefixes are put before canonical names by the various checkpoints.
var prefixes = []string{"model.", "", "language_model.model.", "model.language_model.", "transformer."}

// headPrefixes are put before the name of the output projection, which lies
// outside of the inner model.
var headPrefixes = []string{"", "language_model.", "model.", "model.language_model.", "language_model.model."}

// needs lists all weights but embedding and output projection.
func (d *Decoder) needs() []need {
	h, f := int64(d.Hidden), int64(d.FFN)
	q, kv := int64(d.Heads*d.HeadDim), int64(d.KVHeads*d.HeadDim)
	var out []need
	for i := range d.Layers {
		p := layerName(i)
		linear := func(name string, rows, cols int64, bias bool) {
			out = append(out, need{p + name + ".weight", []int64{rows, cols}})
			if bias {
				out = append(out, need{p + name + ".bias", []int64{rows}})
			}
		}
		norm := func(name string, n int64) { out = append(out, need{p + name + ".weight", []int64{n}}) }
		norm("input_layernorm", h)
		linear("self_attn.q_proj", q, h, d.QKVBias)
		linear("self_attn.k_proj", kv, h, d.QKVBias)
		linear("self_attn.v_proj", kv, h, d.QKVBias)
		linear("self_attn.o_proj", h, q, d.OutputBias)
		if d.QKNorm {
			norm("self_attn.q_norm", int64(d.HeadDim))
			norm("self_attn.k_norm", int64(d.HeadDim))
		}
		norm("post_attention_layernorm", h)
		linear("mlp.gate_proj", f, h, d.MLPBias)
		linear("mlp.up_proj", f, h, d.MLPBias)
		linear("mlp.down_proj", h, f, d.MLPBias)
	}
	return append(out, need{"norm.weight", []int64{h}})
}

// Linear gives the sizes of one linear module of a layer by its canonical name,
// "layers.0.mlp.up_proj"; ok is false for other names.
func (d Decoder) Linear(name string) (out, in int, ok bool) {
	rest, found := strings.CutPrefix(name, "layers.")
	number, part, cut := strings.Cut(rest, ".")
	i, err := strconv.Atoi(number)
	if !found || !cut || err != nil || i < 0 || i >= d.Layers || strconv.Itoa(i) != number {
		return 0, 0, false
	}
	for _, l := range d.Linears() {
		if l.Name == part {
			return l.Out, l.In, true
		}
	}
	return 0, 0, false
}

func layerName(i int) string { return fmt.Sprintf("layers.%d.", i) }

// Parameters counts the weights of the model, a shared matrix once.
func (m *Model) Parameters() int64 {
	table := int64(m.d.Vocabulary) * int64(m.d.Hidden)
	n := table
	if !m.d.Tied {
		n += table
	}
	for _, w := range m.d.needs() {
		n += elements(w.shape)
	}
	return n
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d // bounded by the config's checks
	}
	return n
}

// found maps canonical names to the names in an archive.
type found map[string]string

// find resolves every weight that the graph needs and checks its shape.
func (d *Decoder) find(a *weights.Archive) (found, error) {
	prefix, err := innerPrefix(a)
	if err != nil {
		return nil, err
	}
	names := found{}
	for _, n := range d.needs() {
		if err := names.check(a, n.name, prefix+n.name, n.shape); err != nil {
			return nil, err
		}
	}
	table := []int64{int64(d.Vocabulary), int64(d.Hidden)}
	head := ""
	for _, p := range headPrefixes {
		if _, ok := a.Tensor(p + headName); ok {
			head = p + headName
			break
		}
	}
	_, hasEmbed := a.Tensor(prefix + embedName)
	embed := prefix + embedName
	switch {
	case head == "" && d.Tied:
		head = embed
	case head == "":
		head = headName // for the error
	case !hasEmbed && d.Tied:
		embed = head
	}
	if err := names.check(a, embedName, embed, table); err != nil {
		return nil, err
	}
	return names, names.check(a, headName, head, table)
}

// innerPrefix finds what this checkpoint puts before the names of its layers.
func innerPrefix(a *weights.Archive) (string, error) {
	const probe = "layers.0.input_layernorm.weight"
	var hits []string
	for _, p := range prefixes {
		if _, ok := a.Tensor(p + probe); ok {
			hits = append(hits, p)
		}
	}
	switch len(hits) {
	case 0:
		return "", fmt.Errorf("weights: tensor %q is missing, under this name and with any known prefix", prefixes[0]+probe)
	case 1:
		return hits[0], nil
	}
	return "", fmt.Errorf("weights: tensor %q is there with several prefixes: %q", probe, hits)
}

func (f found) check(a *weights.Archive, canonical, stored string, shape []int64) error {
	e, ok := a.Tensor(stored)
	if !ok {
		return fmt.Errorf("weights: tensor %q is missing", stored)
	}
	if !slices.Equal(e.Shape, shape) {
		return fmt.Errorf("weights: tensor %q in %s has shape %v, the config asks for %v", stored, e.File, e.Shape, shape)
	}
	if err := e.Usable(); err != nil {
		return err
	}
	f[canonical] = stored
	return nil
}

// shared says whether embedding and output projection are one matrix: stored
// once, or twice with the same content. Files that say "tied" and store two
// different matrices exist; the stored output projection counts then.
func (f found) shared(a *weights.Archive) (bool, error) {
	if f[embedName] == f[headName] {
		return true, nil
	}
	embed, _ := a.Tensor(f[embedName])
	head, _ := a.Tensor(f[headName])
	same := false
	err := a.Guard(func() error {
		same = embed.Storage == head.Storage && bytes.Equal(embed.Bytes(), head.Bytes())
		return nil
	})
	return same, err
}
