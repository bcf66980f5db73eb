package demo_test

import (
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"

	"athanor/engine/demo"
)

// config is the part of config.json that the other files must agree with.
type config struct {
	Architectures []string `json:"architectures"`
	HiddenSize    int      `json:"hidden_size"`
	Intermediate  int      `json:"intermediate_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       int      `json:"num_key_value_heads"`
	Context       int      `json:"max_position_embeddings"`
	VocabSize     int      `json:"vocab_size"`
	EOS           int      `json:"eos_token_id"`
}

// tokenizer is the part of tokenizer.json that the tests look at.
type tokenizer struct {
	Added []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
	} `json:"added_tokens"`
	Model struct {
		Vocab  map[string]int `json:"vocab"`
		Merges []string       `json:"merges"`
	} `json:"model"`
}

func mustRead(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := fs.ReadFile(demo.FS(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustDecode(tb testing.TB, b []byte, v any) {
	tb.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		tb.Fatal(err)
	}
}

func mustConfig(tb testing.TB) config {
	tb.Helper()
	var c config
	mustDecode(tb, mustRead(tb, "config.json"), &c)
	return c
}

func TestFiles(t *testing.T) {
	total := 0
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"model.safetensors", "README.md"} {
		n := len(mustRead(t, name))
		if n == 0 {
			t.Errorf("%s is empty", name)
		}
		total += n
	}
	if total < 2<<20 || total > 6<<20 {
		t.Errorf("the files have %d bytes, want 2 to 6 MiB", total)
	}
}

func TestConfig(t *testing.T) {
	c := mustConfig(t)
	if len(c.Architectures) != 1 || c.Architectures[0] != "Qwen2ForCausalLM" {
		t.Errorf("architectures are %v", c.Architectures)
	}
	if c.Layers < 1 || c.Heads < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 {
		t.Fatalf("layers %d, heads %d, kv heads %d", c.Layers, c.Heads, c.KVHeads)
	}
	if c.HiddenSize%64 != 0 || c.Intermediate%64 != 0 || c.HiddenSize%(8*c.Heads) != 0 {
		t.Errorf("hidden %d, intermediate %d: want multiples of 64, and heads of a multiple of 8", c.HiddenSize, c.Intermediate)
	}
	if c.Context != 1024 {
		t.Errorf("context is %d, want 1024", c.Context)
	}
}

func TestTokenizer(t *testing.T) {
	c := mustConfig(t)
	var k tokenizer
	mustDecode(t, mustRead(t, "tokenizer.json"), &k)
	ids := map[int]string{}
	for s, id := range k.Model.Vocab {
		ids[id] = s
	}
	for _, a := range k.Added {
		ids[a.ID] = a.Content
	}
	if len(ids) != c.VocabSize {
		t.Errorf("the tokenizer has %d ids, the config %d", len(ids), c.VocabSize)
	}
	for i := range c.VocabSize {
		if _, ok := ids[i]; !ok {
			t.Errorf("id %d has no token", i)
		}
	}
	if ids[c.EOS] != "<|im_end|>" {
		t.Errorf("eos %d is %q", c.EOS, ids[c.EOS])
	}
	for _, m := range k.Model.Merges {
		a, b, ok := strings.Cut(m, " ")
		if _, made := k.Model.Vocab[a+b]; !ok || !made {
			t.Errorf("merge %q makes no token", m)
		}
	}
	var tc struct {
		ChatTemplate string `json:"chat_template"`
	}
	mustDecode(t, mustRead(t, "tokenizer_config.json"), &tc)
	if !strings.Contains(tc.ChatTemplate, "<|im_start|>") {
		t.Errorf("chat template is %q", tc.ChatTemplate)
	}
}

// wantShapes lists the tensors that the config asks for.
func wantShapes(c config) map[string][2]int {
	q, kv := c.HiddenSize, c.HiddenSize/c.Heads*c.KVHeads
	want := map[string][2]int{"model.embed_tokens.weight": {c.VocabSize, c.HiddenSize}, "model.norm.weight": {c.HiddenSize}}
	for i := range c.Layers {
		p := "model.layers." + string(rune('0'+i)) + "."
		want[p+"input_layernorm.weight"] = [2]int{c.HiddenSize}
		want[p+"post_attention_layernorm.weight"] = [2]int{c.HiddenSize}
		want[p+"self_attn.q_proj.bias"] = [2]int{q}
		want[p+"self_attn.k_proj.bias"] = [2]int{kv}
		want[p+"self_attn.v_proj.bias"] = [2]int{kv}
		want[p+"self_attn.q_proj.weight"] = [2]int{q, c.HiddenSize}
		want[p+"self_attn.k_proj.weight"] = [2]int{kv, c.HiddenSize}
		want[p+"self_attn.v_proj.weight"] = [2]int{kv, c.HiddenSize}
		want[p+"self_attn.o_proj.weight"] = [2]int{c.HiddenSize, q}
		want[p+"mlp.gate_proj.weight"] = [2]int{c.Intermediate, c.HiddenSize}
		want[p+"mlp.up_proj.weight"] = [2]int{c.Intermediate, c.HiddenSize}
		want[p+"mlp.down_proj.weight"] = [2]int{c.HiddenSize, c.Intermediate}
	}
	return want
}

func TestWeights(t *testing.T) {
	c, raw := mustConfig(t), mustRead(t, "model.safetensors")
	n := binary.LittleEndian.Uint64(raw)
	if n > uint64(len(raw)-8) {
		t.Fatalf("header of %d bytes in a file of %d", n, len(raw))
	}
	var head map[string]json.RawMessage
	mustDecode(t, raw[8:8+n], &head)
	delete(head, "__metadata__")
	want, data, sum := wantShapes(c), len(raw)-8-int(n), 0
	if len(head) != len(want) {
		t.Errorf("%d tensors, want %d", len(head), len(want))
	}
	for name, entry := range head {
		var x struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		mustDecode(t, entry, &x)
		size, shape := 2, [2]int{}
		for i, d := range x.Shape {
			size *= d
			shape[i] = d
		}
		if x.DType != "F16" || shape != want[name] {
			t.Errorf("%s is %s %v, want F16 %v", name, x.DType, x.Shape, want[name])
		}
		if x.Offsets[0] < 0 || x.Offsets[1] > data || x.Offsets[1]-x.Offsets[0] != size {
			t.Errorf("%s has offsets %v for %d bytes in %d", name, x.Offsets, size, data)
		}
		sum += size
	}
	if sum != data {
		t.Errorf("tensors have %d bytes of %d", sum, data)
	}
}

func TestReference(t *testing.T) {
	b, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Cases []struct {
			Prompt string       `json:"prompt"`
			IDs    []int        `json:"prompt_ids"`
			Top    [][2]float64 `json:"next_token_top5"`
			Greedy []int        `json:"greedy_ids"`
		} `json:"cases"`
	}
	mustDecode(t, b, &r)
	if len(r.Cases) == 0 {
		t.Fatal("no cases")
	}
	vocab := mustConfig(t).VocabSize
	for _, c := range r.Cases {
		if len(c.Top) != 5 || len(c.Greedy) == 0 || int(c.Top[0][0]) != c.Greedy[0] {
			t.Errorf("%q: best tokens %v, greedy %v", c.Prompt, c.Top, c.Greedy)
		}
		for _, id := range append(c.IDs, c.Greedy...) {
			if id < 0 || id >= vocab {
				t.Errorf("%q: id %d outside the vocabulary", c.Prompt, id)
			}
		}
	}
}
