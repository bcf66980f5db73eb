package family_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/nn"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

const llamaConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,"num_hidden_layers":2,
	"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":96,"max_position_embeddings":128,"bos_token_id":1,"eos_token_id":2}`

// edit is a config with fields set, or removed where the value is nil.
func edit(t testing.TB, base string, fields map[string]any) string {
	t.Helper()
	c := map[string]any{}
	if err := json.Unmarshal([]byte(base), &c); err != nil {
		t.Fatal(err)
	}
	maps.Copy(c, fields)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func folder(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, content := range files {
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

func mustOpen(t testing.TB, files map[string]string) family.Decoder {
	t.Helper()
	f, err := family.Open(folder(files))
	if err != nil {
		t.Fatal(err)
	}
	return f.Decoder()
}

func TestOpenReadsConfigs(t *testing.T) {
	type obj = map[string]any
	cases := []struct {
		name   string
		fields obj
		check  func(family.Decoder) bool
	}{
		{"plain", obj{}, func(d family.Decoder) bool {
			return d.Architecture == "LlamaForCausalLM" && d.HeadDim == 16 && d.Heads == 4 && d.KVHeads == 2 && !d.Tied && d.BOS == 1 &&
				slices.Equal(d.EOS, []int32{2}) && d.Rope.Theta == 10000 && d.Epsilon == 1e-6 && !d.QKVBias && d.ContextLength == 128
		}},
		{"heads without groups", obj{"num_key_value_heads": nil}, func(d family.Decoder) bool { return d.KVHeads == 4 }},
		{"null groups and head size", obj{"num_key_value_heads": json.RawMessage("null"), "head_dim": json.RawMessage("null")},
			func(d family.Decoder) bool { return d.KVHeads == 4 && d.HeadDim == 16 }},
		{"explicit head size", obj{"head_dim": 32}, func(d family.Decoder) bool { return d.HeadDim == 32 }},
		{"whole number as float", obj{"intermediate_size": json.RawMessage("96.0")}, func(d family.Decoder) bool { return d.FFN == 96 }},
		{"only model_type", obj{"architectures": nil, "model_type": "llama"}, func(d family.Decoder) bool { return d.Architecture == "LlamaForCausalLM" }},
		{"biases", obj{"attention_bias": true, "mlp_bias": true}, func(d family.Decoder) bool { return d.QKVBias && d.OutputBias && d.MLPBias }},
		{"list of ends", obj{"eos_token_id": []int{2, 3, -1}}, func(d family.Decoder) bool { return slices.Equal(d.EOS, []int32{2, 3}) }},
		{"no tokens", obj{"eos_token_id": nil, "bos_token_id": -1}, func(d family.Decoder) bool { return d.BOS == -1 && len(d.EOS) == 0 }},
		{"new-style rope", obj{"rope_parameters": obj{"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
			func(d family.Decoder) bool {
				return d.Rope == nn.Rope{Theta: 5e5, Dim: 16, Scaling: nn.RopeScaling{Kind: nn.Llama3Scaling, Factor: 32, Low: 1, High: 4, Original: 8192}}
			}},
		{"old-style rope type", obj{"rope_theta": 1e6, "rope_scaling": obj{"type": "linear", "factor": 2.0}},
			func(d family.Decoder) bool {
				return d.Rope == nn.Rope{Theta: 1e6, Dim: 16, Scaling: nn.RopeScaling{Kind: nn.LinearScaling, Factor: 2}}
			}},
		{"dynamic rope", obj{"rope_scaling": obj{"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}},
			func(d family.Decoder) bool { return d.Rope.Scaling.Kind == nn.NoScaling && d.ContextLength == 64 }},
		{"qwen2", obj{"architectures": []string{"Qwen2ForCausalLM"}, "sliding_window": 16, "use_sliding_window": false, "max_window_layers": 1},
			func(d family.Decoder) bool { return d.QKVBias && !d.OutputBias && !d.QKNorm }},
		{"qwen2 with windows on no layer", obj{"architectures": []string{"Qwen2ForCausalLM"}, "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 2},
			func(d family.Decoder) bool { return d.QKVBias }},
		{"qwen3", obj{"architectures": []string{"Qwen3ForCausalLM"}}, func(d family.Decoder) bool { return d.HeadDim == 128 && d.QKNorm && !d.QKVBias }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := mustOpen(t, map[string]string{"config.json": edit(t, llamaConfig, c.fields)}); !c.check(d) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestGenerationConfig(t *testing.T) {
	files := map[string]string{"config.json": llamaConfig,
		"generation_config.json": `{"bos_token_id":7,"eos_token_id":[8,9],"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":20,"repetition_penalty":1.05,"transformers_version":"4"}`}
	if d := mustOpen(t, files); d.BOS != 7 || !slices.Equal(d.EOS, []int32{8, 9}) {
		t.Errorf("tokens %d, %v: generation_config.json must win", d.BOS, d.EOS)
	}
	g, err := family.Generation(folder(files))
	if err != nil || g.DoSample == nil || !*g.DoSample || *g.Temperature != 0.6 || *g.TopP != 0.9 || *g.TopK != 20 || *g.RepetitionPenalty != 1.05 || g.MinP != nil {
		t.Errorf("got %+v, %v", g, err)
	}
	if g, err := family.Generation(folder(nil)); err != nil || g != (family.GenerationConfig{}) {
		t.Errorf("without a file: %+v, %v", g, err)
	}
	for _, bad := range []string{`{"temperature":-1}`, `{"top_p":"x"}`, `{"top_k":1.5}`, `{"do_sample":1}`, `[]`, `{"top_p":1,"top_p":2}`, `{"temperature":NaN}`} {
		_, err := family.Generation(folder(map[string]string{"generation_config.json": bad}))
		var e *family.ConfigError
		if !errors.As(err, &e) || e.File != "generation_config.json" {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestOpenRefusesBadConfigs(t *testing.T) {
	type obj = map[string]any
	cases := []struct {
		name   string
		fields obj
		want   string
	}{
		{"no layers", obj{"num_hidden_layers": nil}, "num_hidden_layers: is missing"},
		{"zero layers", obj{"num_hidden_layers": 0}, "num_hidden_layers: must be a whole number from 1 to 1000, is 0"},
		{"many layers", obj{"num_hidden_layers": 1001}, "num_hidden_layers"},
		{"wide", obj{"hidden_size": 1 << 18}, "hidden_size"},
		{"fraction", obj{"hidden_size": 64.5}, "hidden_size: must be a whole number"},
		{"text", obj{"hidden_size": "64"}, `hidden_size: must be a whole number from 1 to 131072, is "64"`},
		{"huge number", obj{"vocab_size": json.RawMessage("1e999")}, "vocab_size"},
		{"negative vocabulary", obj{"vocab_size": -5}, "vocab_size"},
		{"large vocabulary", obj{"vocab_size": 5 << 20}, "vocab_size"},
		{"long context", obj{"max_position_embeddings": 1 << 25}, "max_position_embeddings"},
		{"groups", obj{"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide"},
		{"uneven heads", obj{"num_attention_heads": 6, "num_key_value_heads": 6}, "hidden_size: 64 is no multiple"},
		{"odd head", obj{"head_dim": 20}, "head_dim: 20 is no multiple of 8"},
		{"end outside of the vocabulary", obj{"eos_token_id": 100}, "eos_token_id: token 100 is outside"},
		{"end as text", obj{"eos_token_id": "</s>"}, "eos_token_id: must be a token id"},
		{"negative theta", obj{"rope_theta": -1}, "rope_theta"},
		{"rope of a wrong type", obj{"rope_scaling": "linear"}, "rope_scaling: must be an object"},
		{"rope factor of zero", obj{"rope_scaling": obj{"type": "linear", "factor": 0}}, "rope_scaling.factor"},
		{"rope bands upside down", obj{"rope_scaling": obj{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}}, "high_freq_factor: 4 is not above"},
		{"tied as text", obj{"tie_word_embeddings": "yes"}, "tie_word_embeddings: must be true or false"},
		{"architectures as text", obj{"architectures": "LlamaForCausalLM"}, "architectures: must be a list of texts"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := family.Open(folder(map[string]string{"config.json": edit(t, llamaConfig, c.fields)}))
			var e *family.ConfigError
			if !errors.As(err, &e) || e.File != "config.json" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a *ConfigError with %q", err, c.want)
			}
		})
	}
	for name, text := range map[string]string{
		"not JSON": "hello", "cut": llamaConfig[:40], "array": "[1]", "twice": `{"vocab_size":1,"vocab_size":2}`,
		"deep": strings.Repeat(`{"a":`, 100_000), "invalid UTF-8": "{\"\xff\":1}", "long": `{"a":"` + strings.Repeat("x", 17<<20) + `"}`,
	} {
		_, err := family.Open(folder(map[string]string{"config.json": text}))
		var e *family.ConfigError
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOpenNamesWhatIsNotSupported(t *testing.T) {
	type obj = map[string]any
	withConfig := func(fields obj) map[string]string {
		return map[string]string{"config.json": edit(t, llamaConfig, fields)}
	}
	cases := []struct {
		files map[string]string
		want  string
	}{
		{withConfig(obj{"architectures": []string{"MambaForCausalLM"}}), `architecture "MambaForCausalLM" is not supported; supported: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM`},
		{withConfig(obj{"architectures": nil, "model_type": "gpt2"}), `architecture "gpt2"`},
		{withConfig(obj{"hidden_act": "gelu"}), `activation "gelu"`},
		{withConfig(obj{"rope_scaling": obj{"rope_type": "yarn", "factor": 4}}), `rotary scaling "yarn"`},
		{withConfig(obj{"rope_scaling": obj{"type": "longrope"}}), `rotary scaling "longrope"`},
		{withConfig(obj{"partial_rotary_factor": 0.5}), "partial rotary"},
		{withConfig(obj{"rope_interleaved": true}), "interleaved pairs"},
		{withConfig(obj{"quantization_config": obj{"quant_method": "gptq"}}), `quantised checkpoint "gptq"`},
		{withConfig(obj{"layer_types": []string{"full_attention", "conv"}}), `layer type "conv"`},
		{withConfig(obj{"architectures": []string{"Qwen2ForCausalLM"}, "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1}), "sliding-window attention"},
		{map[string]string{"model_index.json": "{}"}, "diffusion pipeline"},
		{map[string]string{"adapter_config.json": "{}", "config.json": llamaConfig}, "PEFT adapter"},
		{map[string]string{"modules.json": "[]", "config.json": llamaConfig}, "sentence-transformers"},
		{map[string]string{"genai_config.json": "{}"}, "onnxruntime-genai"},
		{map[string]string{"voice.onnx": "", "voice.onnx.json": ""}, "Piper voice"},
		{map[string]string{"model.onnx": ""}, "lone ONNX file"},
		{map[string]string{"model.gguf": ""}, "GGUF"},
	}
	for _, c := range cases {
		_, err := family.Open(folder(c.files))
		var e *family.UnsupportedError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an *UnsupportedError with %q", err, c.want)
		}
	}
	if _, err := family.Open(folder(nil)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folder: %v", err)
	}
}

// tiny is the smallest model that the weight tests use.
var tiny = enginetest.DecoderShape{
	Architecture: "LlamaForCausalLM", Vocabulary: 40, Hidden: 32, Layers: 1, Heads: 2, KVHeads: 1, FFN: 32, Context: 16, DType: tensor.F32,
}

func check(t testing.TB, dir string) error {
	t.Helper()
	f, a := openModel(t, dir)
	return f.Check(a)
}

// rewrite changes the header of a single-file model.
func rewrite(t testing.TB, dir string, change func(header string) string) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := int(content[0]) | int(content[1])<<8 | int(content[2])<<16
	header := change(string(content[8 : 8+n]))
	out := append([]byte{byte(len(header)), byte(len(header) >> 8), byte(len(header) >> 16), 0, 0, 0, 0, 0}, header...)
	if err := os.WriteFile(path, append(out, content[8+n:]...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCheckNamesBadWeights(t *testing.T) {
	cases := []struct {
		name, old, new, want string
	}{
		{"missing", `"model.layers.0.mlp.up_proj.weight"`, `"other"`, `tensor "model.layers.0.mlp.up_proj.weight" is missing`},
		{"missing norm", `"model.norm.weight"`, `"other"`, `"model.norm.weight" is missing`},
		{"no layer", `"model.layers.0.input_layernorm.weight"`, `"other"`, `"model.layers.0.input_layernorm.weight" is missing`},
		{"missing output", `"lm_head.weight"`, `"other"`, `"lm_head.weight" is missing`},
		{"wrong shape", `"shape":[16,32]`, `"shape":[32,16]`, "has shape [32 16], the config asks for [16 32]"},
		{"integers", `"F32"`, `"I32"`, "stored as I32"},
		{"two prefixes", `"model.layers.0.mlp.up_proj.weight"`, `"layers.0.input_layernorm.weight"`, "several prefixes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := writeDecoder(t, tiny, 1)
			if err := check(t, dir); err != nil {
				t.Fatal(err)
			}
			rewrite(t, dir, func(h string) string {
				if !strings.Contains(h, c.old) {
					t.Fatalf("header has no %s", c.old)
				}
				return strings.Replace(h, c.old, c.new, 1)
			})
			if err := check(t, dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to contain %q", err, c.want)
			}
		})
	}
}

// TestOtherNames finds weights under other prefixes, and either of the two
// names of a shared matrix.
func TestOtherNames(t *testing.T) {
	for _, prefix := range []string{"", "language_model.model.", "model.language_model.", "transformer."} {
		dir := writeDecoder(t, tiny, 1)
		rewrite(t, dir, func(h string) string { return strings.ReplaceAll(h, `"model.`, `"`+prefix) })
		if err := check(t, dir); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	shape := tiny
	shape.Tied = true
	want := newReference(t, writeDecoder(t, shape, 1), nil).logits([]int{1, 2, 3})
	for _, stored := range []string{"model.embed_tokens.weight", "lm_head.weight"} {
		dir := writeDecoder(t, shape, 1)
		rewrite(t, dir, func(h string) string { return strings.Replace(h, "model.embed_tokens.weight", stored, 1) })
		runOnOracle(t, dir, []int{1, 2, 3}, want)
	}
}

// TestDifferentOutputWins has a config that says "tied" and a file with two
// different matrices: the stored output projection counts.
func TestDifferentOutputWins(t *testing.T) {
	shape := tiny
	shape.Config = map[string]any{"tie_word_embeddings": true}
	dir := writeDecoder(t, shape, 1) // written with Tied false: both matrices
	runOnOracle(t, dir, []int{5, 6, 7}, newReference(t, dir, nil).logits([]int{5, 6, 7}))
}

func TestGraphRefusesOptions(t *testing.T) {
	dir := writeDecoder(t, tiny, 1)
	f, a := openModel(t, dir)
	w, err := weights.NewWriter(t.Context(), filepath.Join(t.TempDir(), "w"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for want, opt := range map[string]family.GraphOptions{
		`quantization "int3" is not supported; supported: none, int8, int4`: {Quantization: "int3"},
		"block of 48":    {Quantization: family.Int4, BlockSize: 48},
		"capacity of 17": {KVCapacity: 17},
		"capacity of -1": {KVCapacity: -1},
	} {
		if _, err := f.Graph(a, opt, w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v", opt, err)
		}
	}
	if w.Size() != 0 {
		t.Errorf("%d bytes were written", w.Size())
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(llamaConfig), []byte(`{"eos_token_id":[1,2],"temperature":0.5}`))
	f.Add([]byte(strings.Replace(llamaConfig, "Llama", "Qwen3", 1)), []byte(`{}`))
	f.Add([]byte(strings.Replace(llamaConfig, `"bos`, `"rope_scaling":{"type":"llama3","factor":2},"layer_types":["full_attention"],"bos`, 1)), []byte(`[`))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		fsys := fstest.MapFS{"config.json": {Data: config}, "generation_config.json": {Data: generation}}
		_, _ = family.Generation(fsys)
		m, err := family.Open(fsys)
		if err != nil {
			var c *family.ConfigError
			var u *family.UnsupportedError
			if m != nil || !errors.As(err, &c) && !errors.As(err, &u) {
				t.Fatalf("%v with %v", m, err)
			}
			return
		}
		d := m.Decoder()
		if d.Vocabulary < 1 || d.Hidden < 1 || d.Layers < 1 || d.Heads < 1 || d.KVHeads < 1 || d.Heads%d.KVHeads != 0 ||
			d.HeadDim < 8 || d.HeadDim%8 != 0 || d.FFN < 1 || d.ContextLength < 1 || d.BOS < -1 || int(d.BOS) >= d.Vocabulary || m.Parameters() < 1 {
			t.Fatalf("accepted %+v", d)
		}
	})
}
