package family_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine/family"
	"athanor/engine/nn"
	"athanor/engine/weights"
)

// published is what is known of a published model beside its configs, which lie
// in testdata/published: the names and shapes of its checkpoint.
type published struct {
	name    string
	tensors int   // in the checkpoint
	weights int64 // parameters, a shared matrix once
	layer   map[string][]int
	embed   []int
	head    bool // lm_head.weight is stored
	check   func(family.Decoder, family.GenerationConfig) bool
}

var publishedModels = []published{
	{"Llama-3.2-1B", 146, 1_235_814_400, llamaLayer(2048, 2048, 512, 8192), []int{128256, 2048}, false,
		func(d family.Decoder, g family.GenerationConfig) bool {
			return d.Tied && d.HeadDim == 64 && d.ContextLength == 131072 && d.BOS == 128000 && slices.Equal(d.EOS, []int32{128001}) && d.Epsilon == 1e-5 &&
				d.Rope == nn.Rope{Theta: 5e5, Dim: 64, Scaling: nn.RopeScaling{Kind: nn.Llama3Scaling, Factor: 32, Low: 1, High: 4, Original: 8192}} &&
				*g.DoSample && *g.Temperature == 0.6 && *g.TopP == 0.9 && g.TopK == nil
		}},
	{"Qwen2.5-0.5B", 290, 494_032_768, with(llamaLayer(896, 896, 128, 4864), map[string][]int{
		"self_attn.q_proj.bias": {896}, "self_attn.k_proj.bias": {128}, "self_attn.v_proj.bias": {128}}), []int{151936, 896}, false,
		func(d family.Decoder, g family.GenerationConfig) bool {
			return d.Tied && d.QKVBias && !d.OutputBias && !d.QKNorm && d.ContextLength == 32768 && slices.Equal(d.EOS, []int32{151643}) &&
				d.Rope == nn.Rope{Theta: 1e6, Dim: 64} && !*g.DoSample && g.Temperature == nil
		}},
	{"Qwen3-0.6B", 311, 596_049_920, with(llamaLayer(1024, 2048, 1024, 3072), map[string][]int{
		"self_attn.q_norm.weight": {128}, "self_attn.k_norm.weight": {128}}), []int{151936, 1024}, true, // tied, and stored nevertheless
		func(d family.Decoder, g family.GenerationConfig) bool {
			return d.Tied && !d.QKVBias && d.QKNorm && d.HeadDim == 128 && slices.Equal(d.EOS, []int32{151645, 151643}) &&
				d.Rope == nn.Rope{Theta: 1e6, Dim: 128} && *g.DoSample && *g.Temperature == 0.6 && *g.TopK == 20 && *g.TopP == 0.95
		}},
	{"SmolLM2-135M", 272, 134_515_008, llamaLayer(576, 576, 192, 1536), []int{49152, 576}, false,
		func(d family.Decoder, g family.GenerationConfig) bool {
			return d.Tied && d.Heads == 9 && d.KVHeads == 3 && d.HeadDim == 64 && d.BOS == 0 && slices.Equal(d.EOS, []int32{0}) &&
				d.Rope == nn.Rope{Theta: 1e5, Dim: 64} && g == family.GenerationConfig{}
		}},
	{"TinyLlama-1.1B-Chat-v1.0", 201, 1_100_048_384, llamaLayer(2048, 2048, 256, 5632), []int{32000, 2048}, true,
		func(d family.Decoder, g family.GenerationConfig) bool {
			return !d.Tied && d.KVHeads == 4 && d.ContextLength == 2048 && d.BOS == 1 && slices.Equal(d.EOS, []int32{2}) &&
				d.Rope == nn.Rope{Theta: 1e4, Dim: 64} && g == family.GenerationConfig{}
		}},
}

// llamaLayer lists the tensors of one layer: hidden size, widths of queries and
// of keys, width of the feed-forward part.
func llamaLayer(h, q, kv, f int) map[string][]int {
	return map[string][]int{
		"input_layernorm.weight": {h}, "post_attention_layernorm.weight": {h},
		"self_attn.q_proj.weight": {q, h}, "self_attn.k_proj.weight": {kv, h}, "self_attn.v_proj.weight": {kv, h}, "self_attn.o_proj.weight": {h, q},
		"mlp.gate_proj.weight": {f, h}, "mlp.up_proj.weight": {f, h}, "mlp.down_proj.weight": {h, f},
	}
}

func with(layer, more map[string][]int) map[string][]int {
	for name, shape := range more {
		layer[name] = shape
	}
	return layer
}

// checkpoint writes a sparse safetensors file in bfloat16 with p's names.
func (p published) checkpoint(t *testing.T, dir string, layers int) {
	t.Helper()
	shapes := map[string][]int{"model.embed_tokens.weight": p.embed, "model.norm.weight": p.embed[1:]}
	if p.head {
		shapes["lm_head.weight"] = p.embed
	}
	for i := range layers {
		for name, shape := range p.layer {
			shapes[fmt.Sprintf("model.layers.%d.%s", i, name)] = shape
		}
	}
	if len(shapes) != p.tensors {
		t.Fatalf("the test lists %d tensors, the checkpoint has %d", len(shapes), p.tensors)
	}
	header, end := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, 0
	for name, shape := range shapes {
		n := 2
		for _, d := range shape {
			n *= d
		}
		header[name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int{end, end + n}}
		end += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(8+len(text)+end)); err != nil { // holes take no space
		t.Fatal(err)
	}
}

// TestPublishedModels reads the configs of well-known models as they were
// published, and finds exactly the weights that their checkpoints have.
func TestPublishedModels(t *testing.T) {
	for _, p := range publishedModels {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/published", p.name))); err != nil {
				t.Fatal(err)
			}
			f, err := family.Open(os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			g, err := family.Generation(os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			d := f.Decoder()
			if !p.check(d, g) {
				t.Errorf("read %+v and %+v", d, g)
			}
			if f.Parameters() != p.weights {
				t.Errorf("%d parameters, want %d", f.Parameters(), p.weights)
			}
			p.checkpoint(t, dir, d.Layers)
			a, err := weights.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if err := f.Check(a); err != nil {
				t.Error(err)
			}
			// Nothing that the checkpoint has may be left unused: without it
			// Check must miss it. A stored copy of a tied matrix is the exception.
			for name := range p.layer {
				p.without(t, dir, f, "model.layers.0."+name)
			}
			p.without(t, dir, f, "model.norm.weight")
		})
	}
}

// without checks that f misses a tensor once it has another name.
func (p published) without(t *testing.T, dir string, f family.Family, name string) {
	t.Helper()
	rewriteSparse(t, dir, name)
	defer rewriteSparse(t, dir, name)
	a, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := f.Check(a); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("without %s: %v", name, err)
	}
}

// rewriteSparse swaps the first letter of a name in the header between m and x,
// in place.
func rewriteSparse(t *testing.T, dir, name string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "model.safetensors"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	header := make([]byte, 1<<16)
	n, _ := f.ReadAt(header, 0)
	at := strings.Index(string(header[:n]), name[1:]+`":{`) - 1
	if at < 0 {
		t.Fatalf("the header has no %s", name)
	}
	letter := []byte{'x'}
	if header[at] == 'x' {
		letter[0] = name[0]
	}
	if _, err := f.WriteAt(letter, int64(at)); err != nil {
		t.Fatal(err)
	}
}
