package llm_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"athanor/engine/llm"
)

// config is that of a small model with two layers.
const config = `{"architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
"num_key_value_heads":2,"intermediate_size":128,"max_position_embeddings":77,"rms_norm_eps":1e-5}`

func TestTrainable(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	want := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	for name, tt := range map[string]struct {
		files            fstest.MapFS
		tools, reasoning bool
	}{
		"no template":          {fstest.MapFS{"config.json": file(config)}, false, false},
		"template with tools":  {fstest.MapFS{"config.json": file(config), "chat_template.jinja": file("{% if tools %}")}, true, false},
		"template that thinks": {fstest.MapFS{"config.json": file(config), "tokenizer_config.json": file(`{"chat_template":"<think>"}`)}, false, true},
		"the first one counts": {fstest.MapFS{"config.json": file(config), "chat_template.jinja": file("x"), "tokenizer_config.json": file("tools <think>")}, false, false},
	} {
		got, err := llm.Trainable(tt.files)
		if err != nil || !slices.Equal(got.Modules, want) || got.Context != 77 || got.Tools != tt.tools || got.Reasoning != tt.reasoning {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := llm.Trainable(fstest.MapFS{"config.json": file(`{"architectures":["Unheard"]}`)}); err == nil {
		t.Error("an unknown architecture can be trained")
	}
	if _, err := llm.Trainable(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}
