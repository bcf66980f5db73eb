package family_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine/weights"
)

// reference is a second implementation of the decoders, in float64 and with
// plain loops over whole texts. It shares with the engine only the reader of
// weight files.
type reference struct {
	hidden, layers, heads, kvHeads, headDim, vocab int
	eps                                            float64
	tied                                           bool
	freq                                           []float64
	w                                              map[string][]float64
}

// newReference reads a model. change, when not nil, replaces the values of a
// matrix: it gives the reference the weights that a quantised graph computes
// with.
func newReference(t testing.TB, dir string, change func(name string, shape []int64, v []float32)) *reference {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]any{}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	num := func(key string, fallback float64) float64 {
		if v, ok := c[key].(float64); ok {
			return v
		}
		return fallback
	}
	r := &reference{
		hidden: int(num("hidden_size", 0)), layers: int(num("num_hidden_layers", 0)), heads: int(num("num_attention_heads", 0)),
		vocab: int(num("vocab_size", 0)), eps: num("rms_norm_eps", 1e-6), w: map[string][]float64{},
	}
	r.kvHeads = int(num("num_key_value_heads", float64(r.heads)))
	r.headDim = int(num("head_dim", float64(r.hidden/r.heads)))
	r.tied, _ = c["tie_word_embeddings"].(bool)
	r.freq = referenceFrequencies(c, r.headDim, num("rope_theta", 10000))
	a, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, name := range a.Names() {
		e, _ := a.Tensor(name)
		n := int64(1)
		for _, d := range e.Shape {
			n *= d
		}
		values := make([]float32, n)
		if err := a.Float32(name, values); err != nil {
			t.Fatal(err)
		}
		if change != nil && len(e.Shape) == 2 {
			change(name, e.Shape, values)
		}
		wide := make([]float64, n)
		for i, v := range values {
			wide[i] = float64(v)
		}
		r.w[strings.TrimPrefix(name, "model.")] = wide
	}
	return r
}

// referenceFrequencies follows the text of the Hugging Face documentation,
// wave lengths and all.
func referenceFrequencies(c map[string]any, dim int, theta float64) []float64 {
	s, _ := c["rope_scaling"].(map[string]any)
	if p, ok := c["rope_parameters"].(map[string]any); ok {
		s = p
		theta = p["rope_theta"].(float64)
	}
	var out []float64
	for i := 0; i < dim; i += 2 {
		f := 1 / math.Pow(theta, float64(i)/float64(dim))
		kind, _ := s["rope_type"].(string)
		switch kind {
		case "linear":
			f /= s["factor"].(float64)
		case "llama3":
			factor, low, high := s["factor"].(float64), s["low_freq_factor"].(float64), s["high_freq_factor"].(float64)
			original := s["original_max_position_embeddings"].(float64)
			wave := 2 * math.Pi / f
			switch {
			case wave > original/low:
				f /= factor
			case wave >= original/high:
				smooth := (original/wave - low) / (high - low)
				f = (1-smooth)*f/factor + smooth*f
			}
		}
		out = append(out, f)
	}
	return out
}

// linear is rows of x times the transpose of the named weight, plus its bias.
func (r *reference) linear(x [][]float64, name string) [][]float64 {
	w, in := r.w[name+".weight"], len(x[0])
	out := len(w) / in
	bias := r.w[name+".bias"]
	y := make([][]float64, len(x))
	for t := range x {
		y[t] = make([]float64, out)
		for o := range out {
			sum := 0.0
			for i, v := range x[t] {
				sum += v * w[o*in+i]
			}
			if bias != nil {
				sum += bias[o]
			}
			y[t][o] = sum
		}
	}
	return y
}

func (r *reference) rms(x []float64, weight []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+r.eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * scale * weight[i]
	}
	return y
}

func (r *reference) rmsAll(x [][]float64, name string) [][]float64 {
	y := make([][]float64, len(x))
	for t := range x {
		y[t] = r.rms(x[t], r.w[name])
	}
	return y
}

// place norms (where there is a norm) and rotates each head of x in place.
func (r *reference) place(x [][]float64, norm string) {
	d := r.headDim
	for t := range x {
		for h := 0; h < len(x[t]); h += d {
			head := x[t][h : h+d]
			if w := r.w[norm]; w != nil {
				copy(head, r.rms(head, w))
			}
			for i := range d / 2 {
				sin, cos := math.Sincos(float64(t) * r.freq[i])
				a, b := head[i], head[i+d/2]
				head[i], head[i+d/2] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
}

func (r *reference) attend(q, k, v [][]float64) [][]float64 {
	d, group := r.headDim, r.heads/r.kvHeads
	out := make([][]float64, len(q))
	for t := range q {
		out[t] = make([]float64, r.heads*d)
		for h := range r.heads {
			kv := h / group * d
			scores, most := make([]float64, t+1), math.Inf(-1)
			for s := range scores {
				for i := range d {
					scores[s] += q[t][h*d+i] * k[s][kv+i]
				}
				scores[s] /= math.Sqrt(float64(d))
				most = math.Max(most, scores[s])
			}
			total := 0.0
			for s := range scores {
				scores[s] = math.Exp(scores[s] - most)
				total += scores[s]
			}
			for s := range scores {
				for i := range d {
					out[t][h*d+i] += scores[s] / total * v[s][kv+i]
				}
			}
		}
	}
	return out
}

// logits are those after each token of a text.
func (r *reference) logits(ids []int) [][]float64 {
	embed := r.w["embed_tokens.weight"]
	if embed == nil {
		embed = r.w["lm_head.weight"]
	}
	x := make([][]float64, len(ids))
	for t, id := range ids {
		x[t] = append([]float64{}, embed[id*r.hidden:(id+1)*r.hidden]...)
	}
	add := func(y [][]float64) {
		for t := range x {
			for i := range x[t] {
				x[t][i] += y[t][i]
			}
		}
	}
	for l := range r.layers {
		p := "layers." + string(rune('0'+l)) + "."
		n := r.rmsAll(x, p+"input_layernorm.weight")
		q, k, v := r.linear(n, p+"self_attn.q_proj"), r.linear(n, p+"self_attn.k_proj"), r.linear(n, p+"self_attn.v_proj")
		r.place(q, p+"self_attn.q_norm.weight")
		r.place(k, p+"self_attn.k_norm.weight")
		add(r.linear(r.attend(q, k, v), p+"self_attn.o_proj"))
		n = r.rmsAll(x, p+"post_attention_layernorm.weight")
		gate, up := r.linear(n, p+"mlp.gate_proj"), r.linear(n, p+"mlp.up_proj")
		for t := range gate {
			for i, g := range gate[t] {
				gate[t][i] = g / (1 + math.Exp(-g)) * up[t][i]
			}
		}
		add(r.linear(gate, p+"mlp.down_proj"))
	}
	if r.w["lm_head.weight"] == nil {
		r.w["lm_head.weight"] = embed
	}
	return r.linear(r.rmsAll(x, "norm.weight"), "lm_head")
}
