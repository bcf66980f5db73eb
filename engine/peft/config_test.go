package peft

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzConfig parses any config: it must not panic, and what it accepts must be
// the same after it was written and parsed again.
func FuzzConfig(f *testing.F) {
	for _, more := range []string{
		"", `,"rank_pattern":{"v_proj":2}`, `,"alpha_pattern":{"v.*":-3}`, `,"use_rslora":true`, `,"target_modules":["v_proj"]`, `,"use_dora":true`, `,"r":1e0,"x":[{}]`,
	} {
		f.Add([]byte(`{"peft_type":"LORA","lora_alpha":4,"base_model_name_or_path":"a","lora_dropout":0.5` + more + `}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := parseConfig(text)
		if err != nil {
			return
		}
		find(d.ranks, "model.layers.0.self_attn.v_proj")
		module := &Module{In: 1, Out: 1, Rank: d.Rank, Alpha: d.Alpha, A: make([]float32, d.Rank), B: make([]float32, d.Rank)}
		a := &Adapter{Config: d.Config, Modules: map[string]*Module{"layers.0.mlp.up_proj": module}}
		if err := a.check(); err != nil {
			t.Fatalf("accepted and cannot be written: %v", err)
		}
		written, err := json.Marshal(a.file())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseConfig(written); err != nil || !reflect.DeepEqual(again.Config, d.Config) {
			t.Fatalf("parsed again %+v, %v; want %+v", again, err, d.Config)
		}
	})
}
