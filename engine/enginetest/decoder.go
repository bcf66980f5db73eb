package enginetest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"athanor/engine/tensor"
)

// DecoderShape describes a decoder with random weights, for WriteDecoder.
type DecoderShape struct {
	Architecture                               string // LlamaForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM
	Vocabulary, Hidden, Layers, Heads, KVHeads int
	HeadDim                                    int // 0 = Hidden/Heads, and not in the config
	FFN, Context                               int
	Tied                                       bool // the file then has no output projection
	AttentionBias, MLPBias                     bool // as the family's config fields; Qwen2 always has its biases
	DType                                      tensor.DType
	Shards                                     int            // 0 or 1 = one file without an index
	Config                                     map[string]any // further fields of config.json
}

// Llama1B is the shape of Llama 3.2 1B, the one that benchmarks use.
func Llama1B() DecoderShape {
	return DecoderShape{
		Architecture: "LlamaForCausalLM", Vocabulary: 128256, Hidden: 2048, Layers: 16, Heads: 32, KVHeads: 8, HeadDim: 64,
		FFN: 8192, Context: 4096, Tied: true, DType: tensor.BF16,
		Config: map[string]any{"rope_theta": 500000, "bos_token_id": 128000, "eos_token_id": []int{128001, 128009}},
	}
}

// tensorSpec is one tensor to write.
type tensorSpec struct {
	name  string
	shape []int
}

func (t tensorSpec) values() int64 {
	n := int64(1)
	for _, d := range t.shape {
		n *= int64(d)
	}
	return n
}

// WriteDecoder writes config.json and safetensors of a decoder with random
// weights into dir, in the layout of Hugging Face. Matrices are normal with a
// variance that keeps activations near one; the numbers come from one random
// block that repeats, so that gigabytes are written at the speed of the disk.
func WriteDecoder(dir string, s DecoderShape, seed uint64) error {
	if err := writeJSON(filepath.Join(dir, "config.json"), s.config()); err != nil {
		return err
	}
	tensors := s.tensors()
	var total int64
	for _, t := range tensors {
		total += t.values()
	}
	noise := newNoise(seed, s.DType, int(min(total, noisePeriod)))
	if s.Shards <= 1 {
		return writeSafetensors(filepath.Join(dir, "model.safetensors"), tensors, noise)
	}
	index := map[string]string{}
	for i := range s.Shards {
		part := tensors[len(tensors)*i/s.Shards : len(tensors)*(i+1)/s.Shards]
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, s.Shards)
		if err := writeSafetensors(filepath.Join(dir, name), part, noise); err != nil {
			return err
		}
		for _, t := range part {
			index[t.name] = name
		}
	}
	return writeJSON(filepath.Join(dir, "model.safetensors.index.json"), map[string]any{"metadata": map[string]any{}, "weight_map": index})
}

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, text, 0o644)
}

func (s DecoderShape) config() map[string]any {
	c := map[string]any{
		"architectures": []string{s.Architecture}, "model_type": strings.ToLower(strings.TrimSuffix(s.Architecture, "ForCausalLM")),
		"vocab_size": s.Vocabulary, "hidden_size": s.Hidden, "num_hidden_layers": s.Layers, "num_attention_heads": s.Heads,
		"num_key_value_heads": s.KVHeads, "intermediate_size": s.FFN, "max_position_embeddings": s.Context,
		"tie_word_embeddings": s.Tied, "rms_norm_eps": 1e-5, "hidden_act": "silu",
	}
	if s.HeadDim != 0 {
		c["head_dim"] = s.HeadDim
	}
	if s.AttentionBias {
		c["attention_bias"] = true
	}
	if s.MLPBias {
		c["mlp_bias"] = true
	}
	for k, v := range s.Config {
		c[k] = v
	}
	return c
}

// tensors lists the weights under the names of the checkpoints.
func (s DecoderShape) tensors() []tensorSpec {
	d := s.HeadDim
	if d == 0 {
		d = s.Hidden / s.Heads
	}
	out := []tensorSpec{{"model.embed_tokens.weight", []int{s.Vocabulary, s.Hidden}}}
	add := func(name string, bias bool, shape ...int) {
		out = append(out, tensorSpec{name + ".weight", shape})
		if bias {
			out = append(out, tensorSpec{name + ".bias", shape[:1]})
		}
	}
	qkvBias := s.AttentionBias || s.Architecture == "Qwen2ForCausalLM"
	for i := range s.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm", false, s.Hidden)
		add(p+"self_attn.q_proj", qkvBias, s.Heads*d, s.Hidden)
		add(p+"self_attn.k_proj", qkvBias, s.KVHeads*d, s.Hidden)
		add(p+"self_attn.v_proj", qkvBias, s.KVHeads*d, s.Hidden)
		add(p+"self_attn.o_proj", s.AttentionBias, s.Hidden, s.Heads*d)
		if s.Architecture == "Qwen3ForCausalLM" {
			add(p+"self_attn.q_norm", false, d)
			add(p+"self_attn.k_norm", false, d)
		}
		add(p+"post_attention_layernorm", false, s.Hidden)
		add(p+"mlp.gate_proj", s.MLPBias, s.FFN, s.Hidden)
		add(p+"mlp.up_proj", s.MLPBias, s.FFN, s.Hidden)
		add(p+"mlp.down_proj", s.MLPBias, s.Hidden, s.FFN)
	}
	add("model.norm", false, s.Hidden)
	if !s.Tied {
		add("lm_head", false, s.Vocabulary, s.Hidden)
	}
	return out
}

// writeSafetensors writes one file.
func writeSafetensors(path string, tensors []tensorSpec, noise *noise) (err error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, offset := map[string]entry{}, int64(0)
	for _, t := range tensors {
		end := offset + t.values()*int64(noise.dtype.Size())
		header[t.name] = entry{strings.ToUpper(noise.dtype.String()), t.shape, [2]int64{offset, end}}
		offset = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	// As the reference implementation does, so that values are aligned.
	text = append(text, strings.Repeat(" ", (8-len(text)%8)%8)...)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	// Errors of a bufio.Writer stay: Flush reports the first.
	_ = binary.Write(w, binary.LittleEndian, uint64(len(text)))
	_, _ = w.Write(text)
	for _, t := range tensors {
		noise.write(w, t)
	}
	return w.Flush()
}

// noise is an endless supply of random weights.
type noise struct {
	dtype  tensor.DType
	unit   []float32
	blocks map[[2]float32][]byte // encoded, by mean and deviation
	at     int                   // next value of the block
}

// noisePeriod, a prime, keeps rows from repeating in step.
const noisePeriod = 1<<20 - 3

func newNoise(seed uint64, dtype tensor.DType, period int) *noise {
	if dtype == tensor.Invalid {
		dtype = tensor.F32
	}
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	n := &noise{dtype: dtype, unit: make([]float32, period), blocks: map[[2]float32][]byte{}}
	for i := range n.unit {
		n.unit[i] = float32(r.NormFloat64())
	}
	return n
}

// block is the whole period at one mean and deviation.
func (n *noise) block(mean, deviation float32) []byte {
	key := [2]float32{mean, deviation}
	if b, ok := n.blocks[key]; ok {
		return b
	}
	values := make([]float32, len(n.unit))
	for i, u := range n.unit {
		values[i] = mean + deviation*u
	}
	b := make([]byte, len(values)*n.dtype.Size())
	if err := tensor.PutFloat32s(b, values, n.dtype); err != nil {
		panic(err) // a type that PutFloat32s does not know: a mistake in the test
	}
	n.blocks[key] = b
	return b
}

// write sends the values of one tensor: norms near one, small biases, matrices
// that keep the size of what they are applied to.
func (n *noise) write(w *bufio.Writer, t tensorSpec) {
	mean, deviation := float32(0), float32(0.1)
	switch {
	case len(t.shape) == 2:
		deviation = float32(1 / math.Sqrt(float64(t.shape[1])))
	case strings.HasSuffix(t.name, "norm.weight"):
		mean = 1
	}
	block := n.block(mean, deviation)
	size := n.dtype.Size()
	for left := int(t.values()); left > 0; {
		take := min(left, len(n.unit)-n.at)
		_, _ = w.Write(block[n.at*size : (n.at+take)*size])
		n.at = (n.at + take) % len(n.unit)
		left -= take
	}
}
