package peft_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"athanor/engine/peft"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// adapter has two layers with modules of two sizes and ranks.
func adapter() *peft.Adapter {
	rng := rand.New(rand.NewPCG(1, 2))
	a := &peft.Adapter{
		Config:  peft.Config{BaseModel: "some/base", Rank: 4, Alpha: 8, Dropout: 0.05, Modules: []string{"down_proj", "q_proj"}},
		Modules: map[string]*peft.Module{},
	}
	add := func(name string, in, out, rank int, alpha float64) {
		m := &peft.Module{In: in, Out: out, Rank: rank, Alpha: alpha, A: make([]float32, rank*in), B: make([]float32, out*rank)}
		for _, values := range [][]float32{m.A, m.B} {
			for i := range values {
				values[i] = float32(rng.NormFloat64())
			}
		}
		a.Modules[name] = m
	}
	add("layers.0.self_attn.q_proj", 16, 24, 4, 8)
	add("layers.0.mlp.down_proj", 32, 16, 4, 8)
	add("layers.1.self_attn.q_proj", 16, 24, 2, 8)
	add("layers.1.mlp.down_proj", 32, 16, 4, 1.5)
	return a
}

func TestRoundTrip(t *testing.T) {
	want := adapter()
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if err := peft.Write(first, want); err != nil {
		t.Fatal(err)
	}
	got, err := peft.Read(first)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got.Config, want.Config)
	}
	if got.MaxRank() != 4 {
		t.Errorf("largest rank %d", got.MaxRank())
	}
	if err := peft.Write(second, got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{peft.ConfigFile, peft.WeightsFile} {
		a, err1 := os.ReadFile(filepath.Join(first, name))
		b, err2 := os.ReadFile(filepath.Join(second, name))
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs between two writes: %v, %v", name, err1, err2)
		}
	}
	if err := peft.Write(first, want); err == nil {
		t.Error("an adapter was overwritten")
	}
}

// TestWrittenLayout reads what was written as other programs do.
func TestWrittenLayout(t *testing.T) {
	dir := t.TempDir()
	a := adapter()
	if err := peft.Write(dir, a); err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	text, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"peft_type": "LORA", "r": 4.0, "lora_alpha": 8.0, "bias": "none", "use_dora": false, "base_model_name_or_path": "some/base",
		"target_modules": []any{"down_proj", "q_proj"}, "task_type": "CAUSAL_LM",
		"rank_pattern":  map[string]any{"model.layers.1.self_attn.q_proj": 2.0},
		"alpha_pattern": map[string]any{"model.layers.1.mlp.down_proj": 1.5},
	} {
		if !reflect.DeepEqual(config[key], want) {
			t.Errorf("%s is %v, want %v", key, config[key], want)
		}
	}
	archive, err := weights.OpenFile(dir, "adapter_model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	e, ok := archive.Tensor("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight")
	if !ok || !slices.Equal(e.Shape, []int64{24, 2}) || e.Storage != "F32" || len(archive.Names()) != 8 {
		t.Errorf("tensors %v, the one looked for is %+v", archive.Names(), e)
	}

	delete(a.Modules, "layers.1.mlp.down_proj") // an end alone would name layers without an adapter
	dir = t.TempDir()
	if err := peft.Write(dir, a); err != nil {
		t.Fatal(err)
	}
	if _, err := peft.Read(dir); err != nil {
		t.Error(err)
	}
}

func TestScale(t *testing.T) {
	m := &peft.Module{Rank: 16, Alpha: 8}
	if got := (peft.Config{}).Scale(m); got != 0.5 {
		t.Errorf("scale %v", got)
	}
	if got := (peft.Config{RSLoRA: true}).Scale(m); got != 2 {
		t.Errorf("scale by the root of the rank %v", got)
	}
}

func TestCheckBase(t *testing.T) {
	a := adapter()
	sizes := func(out int) func(string) (int, int, bool) {
		return func(name string) (int, int, bool) {
			m, ok := a.Modules[name]
			if !ok {
				return 0, 0, false
			}
			if strings.HasSuffix(name, "1.self_attn.q_proj") {
				return out, m.In, true
			}
			return m.Out, m.In, true
		}
	}
	if err := a.CheckBase(sizes(24)); err != nil {
		t.Error(err)
	}
	if err := a.CheckBase(sizes(25)); err == nil || !strings.Contains(err.Error(), `"layers.1.self_attn.q_proj" is 24 x 16, the base model's is 25 x 16`) {
		t.Error(err)
	}
	if err := a.CheckBase(func(string) (int, int, bool) { return 0, 0, false }); err == nil || !strings.Contains(err.Error(), "does not have") {
		t.Error(err)
	}
}

// one is the tensors of one module, with prefix and infix as other trainers
// have them.
func one(prefix, infix string) []weights.Part {
	return []weights.Part{
		weights.Values(prefix+"layers.3.self_attn.v_proj.lora_A"+infix+".weight", tensor.F16, []int64{2, 3}, []float32{1, 2, 3, 4, 5, 6}),
		weights.Values(prefix+"layers.3.self_attn.v_proj.lora_B"+infix+".weight", tensor.BF16, []int64{4, 2}, make([]float32, 8)),
	}
}

const plain = "base_model.model.model."

func write(t testing.TB, config string, parts []weights.Part) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, peft.ConfigFile), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if parts == nil {
		return dir
	}
	if err := weights.Save(filepath.Join(dir, peft.WeightsFile), parts); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReadForms has the forms that a config and the names may take.
func TestReadForms(t *testing.T) {
	const name = "layers.3.self_attn.v_proj"
	for title, c := range map[string]struct {
		config, prefix, infix string
		alpha                 float64
	}{
		"list":          {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["v_proj"]}`, plain, "", 4},
		"longer end":    {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["self_attn.v_proj"]}`, plain, "", 4},
		"default infix": {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["v_proj"]}`, plain, ".default", 4},
		"no outer name": {`{"peft_type":"LORA","r":2,"target_modules":["v_proj"]}`, "model.", "", 8},
		"all-linear":    {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":"all-linear"}`, plain, "", 4},
		"expression":    {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":".*(?!x)v_proj"}`, plain, "", 4},
		"inner model":   {`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":"x"}`, "base_model.model.language_model.model.", "", 4},
		"patterns": {`{"peft_type":"LORA","r":64,"lora_alpha":4,"rank_pattern":{"v_proj":2},
			"alpha_pattern":{"k_proj":1,"layers\\.[0-4]\\..*v_proj":5,"v_proj":6}}`, plain, "", 5},
		"a modern file": {`{"peft_type":"LORA","r":2.0,"lora_alpha":4,"use_dora":false,"modules_to_save":null,"layers_to_transform":[3],"layers_pattern":null,
			"init_lora_weights":"gaussian","loftq_config":{},"megatron_core":"megatron.core","qalora_group_size":16,"bias":"none","peft_version":"0.18.0",
			"target_parameters":null,"something_new":false,"trainable_token_indices":null,"lora_dropout":0.1,"revision":"main"}`, plain, "", 4},
	} {
		t.Run(title, func(t *testing.T) {
			a, err := peft.Read(write(t, c.config, one(c.prefix, c.infix)))
			if err != nil {
				t.Fatal(err)
			}
			m := a.Modules[name]
			if m == nil || m.Check() != nil || m.In != 3 || m.Out != 4 || m.Rank != 2 || m.Alpha != c.alpha || m.A[5] != 6 {
				t.Fatalf("modules %v: %+v", slices.Collect(maps.Keys(a.Modules)), m)
			}
			if !slices.Equal(a.Config.Modules, []string{"v_proj"}) {
				t.Errorf("modules of the config %v", a.Config.Modules)
			}
		})
	}
}

// config is a good one with further fields.
func config(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"peft_type":"LORA","r":2,"lora_alpha":4` + more + `}`
}

func TestReadRefusesConfigs(t *testing.T) {
	for more, want := range map[string]string{
		`"use_dora":true`:                              "use_dora: weight-decomposed",
		`"modules_to_save":["lm_head"]`:                "modules_to_save: whole modules",
		`"bias":"all"`:                                 `bias: "all" is not supported`,
		`"lora_bias":true`:                             "lora_bias:",
		`"fan_in_fan_out":true`:                        "fan_in_fan_out: transposed",
		`"layer_replication":[[0,4],[2,5]]`:            "layer_replication: replicated",
		`"trainable_token_indices":[1]`:                "trainable_token_indices:",
		`"target_parameters":["experts"]`:              "target_parameters:",
		`"init_lora_weights":"pissa_niter_16"`:         `init_lora_weights: an adapter that started from "pissa_niter_16"`,
		`"init_lora_weights":"loftq"`:                  "init_lora_weights: an adapter that",
		`"init_lora_weights":3`:                        "init_lora_weights: must be a text",
		`"something_new":"x"`:                          "something_new: is not known",
		`"use_rslora":1`:                               "use_rslora: must be true or false",
		`"lora_dropout":2`:                             "lora_dropout: must be a number from 0 to 1",
		`"target_modules":[1]`:                         "target_modules: must be a text or a list",
		`"target_modules":["q_proj","v_proj"]`:         "target_modules: names q_proj, of which",
		`"target_modules":["_proj"]`:                   "target_modules: does not name model.layers.3.self_attn.v_proj",
		`"rank_pattern":{"v_proj":3}`:                  "shapes [2 3] and [4 2] do not fit rank 3",
		`"rank_pattern":{"v_proj":1.5}`:                `rank_pattern: "v_proj" must be a number`,
		`"alpha_pattern":{"v_proj":1e300}`:             `alpha_pattern: "v_proj" must be a number`,
		`"alpha_pattern":{"(?!x)v":1}`:                 "alpha_pattern: the pattern (?!x)v is not supported",
		`"alpha_pattern":[1]`:                          "alpha_pattern: must be an object",
		`"r":3`:                                        "is no JSON object", // the field is there twice
		`"base_model_name_or_path":["x"]`:              "base_model_name_or_path: must be a text",
		`"alpha_pattern":{"` + big(2000) + `":1}`:      "longer than 1024 bytes",
		`"revision":"` + big(1<<20) + `"`:              "longer than 1048576 bytes",
		`"alpha_pattern":{"a":1,"a":2}`:                "duplicate object member",
		`"nested":` + strings.Repeat("[", 1<<14) + `1`: "is no JSON object",
	} {
		_, err := peft.Read(write(t, config(more), one(plain, "")))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", more, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"r":2}`: `peft_type: "" is not supported`, `{"peft_type":"IA3"}`: `peft_type: "IA3"`, `[]`: "is no JSON object", ``: "is no JSON object",
		`{"peft_type":"LORA","r":0}`: "r: must be a number from 1 to 1024", `{"peft_type":"LORA","r":2.5}`: "r: must be a whole number", `{"peft_type":"LORA"} x`: "is no JSON object",
		`{"peft_type":"LORA"}`: "do not fit rank 8",
	} {
		if _, err := peft.Read(write(t, text, one(plain, ""))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func big(n int) string { return strings.Repeat("a", n) }

func TestReadRefusesTensors(t *testing.T) {
	zeros := func(name string, shape ...int64) weights.Part {
		n, _ := tensor.Elements(shape)
		return weights.Values(name, tensor.F32, shape, make([]float32, n))
	}
	const a, b = plain + "layers.0.mlp.up_proj.lora_A.weight", plain + "layers.0.mlp.up_proj.lora_B.weight"
	for want, parts := range map[string][]weights.Part{
		"its other matrix is missing":           {zeros(a, 2, 3)},
		"[2 3] and [4 3] do not fit rank 2":     {zeros(a, 2, 3), zeros(b, 4, 3)},
		"[3 3] and [4 3] do not fit rank 2":     {zeros(a, 3, 3), zeros(b, 4, 3)},
		"shape [6] is that of no matrix":        {zeros(a, 6), zeros(b, 4, 2)},
		"shape [2 0] is that of no matrix":      {zeros(a, 2, 0), zeros(b, 4, 2)},
		"this matrix twice":                     {zeros(a, 2, 3), zeros(b, 4, 2), zeros(plain+"layers.0.mlp.up_proj.lora_A.default.weight", 2, 3)},
		"holds no adapter":                      {},
		"adapters of embeddings":                {zeros(plain+"embed_tokens.lora_embedding_A", 2, 3)},
		"is in no layer of the model":           {zeros("base_model.model.lm_head.lora_A.weight", 2, 3)},
		"(DoRA) are not supported":              {zeros(plain+"layers.0.mlp.up_proj.lora_magnitude_vector.weight", 3)},
		"whole tensors beside it":               {zeros(plain+"layers.0.mlp.up_proj.weight", 3)},
		"does not end in weight":                {zeros(plain+"layers.0.mlp.up_proj.lora_A.other.weight", 2, 3)},
		"is neither lora_A nor lora_B":          {zeros(plain+"layers.0.mlp.up_proj.lora_C.weight", 2, 3)},
		"holds a value that is not finite":      {zeros(a, 2, 3), weights.Values(b, tensor.F32, []int64{4, 2}, []float32{float32(math.NaN()), 0, 0, 0, 0, 0, 0, 0})},
		"weights stored as I16 are not support": {zeros(a, 2, 3), {Name: b, Storage: "I16", Shape: []int64{4, 2}, Write: zeros("", 4).Write}},
	} {
		if _, err := peft.Read(write(t, config(""), parts)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestReadRefusesFolders(t *testing.T) {
	if _, err := peft.Read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	dir := write(t, config(""), nil)
	if _, err := peft.Read(dir); !errors.Is(err, weights.ErrNoWeights) {
		t.Errorf("no weights: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "adapter_model.bin"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := peft.Read(dir); !errors.Is(err, weights.ErrPickle) {
		t.Errorf("pickle: %v", err)
	}
}
