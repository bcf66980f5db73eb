package peft

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"athanor/engine/durable"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// Write writes a into the folder dir, which it makes when missing and which
// must not hold an adapter yet. The same adapter gives the same bytes. Making
// the folder appear atomically is up to the caller.
//
// Modules go by the names that Llama-shaped models have in the Hugging Face
// libraries, "model." before the canonical one.
func Write(dir string, a *Adapter) error {
	if err := a.check(); err != nil {
		return fmt.Errorf("write adapter: %w", err)
	}
	text, err := json.MarshalIndent(a.file(), "", "  ")
	if err != nil {
		return fmt.Errorf("write adapter: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write adapter: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, ConfigFile), append(text, '\n')); err != nil {
		return err
	}
	var parts []weights.Part
	for name, m := range a.Modules {
		prefix := outerPrefix + module(name)
		parts = append(parts,
			weights.Values(prefix+".lora_A.weight", tensor.F32, []int64{int64(m.Rank), int64(m.In)}, m.A),
			weights.Values(prefix+".lora_B.weight", tensor.F32, []int64{int64(m.Out), int64(m.Rank)}, m.B))
	}
	return weights.Save(filepath.Join(dir, WeightsFile), parts)
}

// module is the name of a module in the Hugging Face libraries.
func module(canonical string) string { return "model." + canonical }

// check finds what Read would refuse.
func (a *Adapter) check() error {
	c := a.Config
	if c.Rank < 1 || c.Rank > maxRank || !(math.Abs(c.Alpha) <= maxAlpha) || !(c.Dropout >= 0 && c.Dropout <= 1) {
		return fmt.Errorf("rank %d, alpha %g or dropout %g is out of bounds", c.Rank, c.Alpha, c.Dropout)
	}
	if len(a.Modules) == 0 {
		return fmt.Errorf("it changes no module")
	}
	for name, m := range a.Modules {
		if !strings.HasPrefix(name, "layers.") {
			return fmt.Errorf("module %q is in no layer", name)
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("module %q: %w", name, err)
		}
		if m.Rank > maxRank || !(math.Abs(m.Alpha) <= maxAlpha) {
			return fmt.Errorf("module %q: rank %d or alpha %g is out of bounds", name, m.Rank, m.Alpha)
		}
	}
	return nil
}

// configJSON is adapter_config.json as it is written, in alphabetical order.
type configJSON struct {
	AlphaPattern  map[string]float64 `json:"alpha_pattern"`
	BaseModel     *string            `json:"base_model_name_or_path"`
	Bias          string             `json:"bias"`
	FanInFanOut   bool               `json:"fan_in_fan_out"`
	InferenceMode bool               `json:"inference_mode"`
	InitWeights   bool               `json:"init_lora_weights"`
	Alpha         float64            `json:"lora_alpha"`
	Dropout       float64            `json:"lora_dropout"`
	ModulesToSave []string           `json:"modules_to_save"`
	PEFTType      string             `json:"peft_type"`
	Rank          int                `json:"r"`
	RankPattern   map[string]int     `json:"rank_pattern"`
	Targets       []string           `json:"target_modules"`
	TaskType      string             `json:"task_type"`
	DoRA          bool               `json:"use_dora"`
	RSLoRA        bool               `json:"use_rslora"`
}

func (a *Adapter) file() configJSON {
	f := configJSON{
		AlphaPattern: map[string]float64{}, Bias: "none", InferenceMode: true, InitWeights: true,
		Alpha: a.Config.Alpha, Dropout: a.Config.Dropout, PEFTType: "LORA", Rank: a.Config.Rank,
		RankPattern: map[string]int{}, Targets: a.targets(), TaskType: "CAUSAL_LM", RSLoRA: a.Config.RSLoRA,
	}
	if a.Config.BaseModel != "" {
		f.BaseModel = &a.Config.BaseModel
	}
	for name, m := range a.Modules {
		if m.Rank != a.Config.Rank {
			f.RankPattern[module(name)] = m.Rank
		}
		if m.Alpha != a.Config.Alpha {
			f.AlphaPattern[module(name)] = m.Alpha
		}
	}
	return f
}

// targets are the last parts of the modules' names, as is usual, when each of
// them is changed in every layer that has any, else the whole names.
func (a *Adapter) targets() []string {
	layers, ends := map[string]bool{}, map[string]bool{}
	for name := range a.Modules {
		parts := strings.SplitN(name, ".", 3)
		layers[parts[1]] = true
		ends[parts[len(parts)-1]] = true
	}
	if len(layers)*len(ends) == len(a.Modules) {
		last := map[string]bool{}
		for end := range ends {
			last[end[strings.LastIndexByte(end, '.')+1:]] = true
		}
		return slices.Sorted(maps.Keys(last))
	}
	var whole []string
	for name := range a.Modules {
		whole = append(whole, module(name))
	}
	slices.Sort(whole)
	return whole
}
