package exec_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/enginetest"
	"athanor/engine/ort/orttest"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
	train "athanor/engine/train/exec"
)

// shapes are tiny models that together use everything the families know.
func shapes() map[string]enginetest.DecoderShape {
	base := enginetest.DecoderShape{
		Architecture: "LlamaForCausalLM", Vocabulary: 61, Hidden: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 48, Context: 96, DType: tensor.F32,
	}
	with := func(change func(*enginetest.DecoderShape)) enginetest.DecoderShape {
		s := base
		change(&s)
		return s
	}
	return map[string]enginetest.DecoderShape{
		"llama": base,
		"llama tied, llama3 rope, bf16": with(func(s *enginetest.DecoderShape) {
			s.Tied, s.DType = true, tensor.BF16
			s.Config = map[string]any{"rope_theta": 10000, "rope_scaling": map[string]any{
				"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}}
		}),
		"llama with all biases, linear rope": with(func(s *enginetest.DecoderShape) {
			s.AttentionBias, s.MLPBias = true, true
			s.Config = map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "rope_theta": 5000.0, "factor": 4}}
		}),
		"qwen2": with(func(s *enginetest.DecoderShape) {
			s.Architecture, s.Tied, s.DType = "Qwen2ForCausalLM", true, tensor.F16
		}),
		"qwen3": with(func(s *enginetest.DecoderShape) {
			s.Architecture, s.HeadDim, s.KVHeads, s.AttentionBias = "Qwen3ForCausalLM", 24, 1, true
		}),
	}
}

// packed is a batch with several samples in a row, padding, and positions and
// weights of every kind.
func packed(vocabulary int) *data.Batch {
	b := &data.Batch{Rows: 2, Length: 14}
	lengths := [][]int{{5, 9}, {3, 4, 2}} // the second row ends in padding
	for _, row := range lengths {
		at := 0
		for segment, n := range row {
			for i := range n {
				token := int32((len(b.Tokens)*len(b.Tokens)*7 + 3*i + 11) % vocabulary)
				b.Tokens = append(b.Tokens, token)
				b.Targets = append(b.Targets, int32((int(token)*5+i+1)%vocabulary))
				b.Weights = append(b.Weights, float32((i*3+segment)%4)/2)
				b.Positions = append(b.Positions, int32(i))
				b.Segments = append(b.Segments, int32(segment))
			}
			at += n
		}
		for ; at < b.Length; at++ {
			b.Tokens, b.Targets, b.Weights = append(b.Tokens, 0), append(b.Targets, 0), append(b.Weights, 0)
			b.Positions, b.Segments = append(b.Positions, 0), append(b.Segments, -1)
		}
	}
	return b
}

func writeModel(t testing.TB, s enginetest.DecoderShape) string {
	t.Helper()
	dir := t.TempDir()
	if err := enginetest.WriteDecoder(dir, s, 7); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t testing.TB, rt compute.Runtime, cfg train.Config) *train.Executor {
	t.Helper()
	cfg.Threads = cmp.Or(cfg.Threads, 1) // the models are too small for more
	e, err := train.New(t.Context(), rt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// modes are the three ways to the same numbers: every layer twice, every layer
// once, and one program.
func modes() []train.Config {
	return []train.Config{{Layered: true, Recompute: true}, {Layered: true}, {}}
}

func lora(rank int, modules ...string) *engine.LoRA {
	return &engine.LoRA{Rank: rank, Alpha: 2 * float64(rank), Modules: modules}
}

func floats(b compute.Buffer) []float32 { return tensor.View[float32](b.Bytes()) }

// fill gives the second matrices of adapters values, without which half of the
// gradients is zero.
func fill(e *train.Executor) {
	for _, p := range e.Params() {
		if filepath.Ext(p.Name) != ".lora_B" {
			continue
		}
		for i, v := 0, floats(p.Value); i < len(v); i++ {
			v[i] = float32((i*7+len(p.Name)*3)%13-6) / 40
		}
	}
}

// gradients are copies of all gradients by name.
func gradients(e *train.Executor) map[string][]float64 {
	out := map[string][]float64{}
	for _, p := range e.Params() {
		out[p.Name] = widen(floats(p.Grad))
	}
	return out
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// distance is the largest difference relative to the largest value of want.
func distance(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	worst, scale := 0.0, 0.0
	for i, w := range want {
		worst, scale = max(worst, math.Abs(got[i]-w)), max(scale, math.Abs(w))
		if math.IsNaN(got[i]) {
			return math.Inf(1)
		}
	}
	if worst == 0 {
		return 0
	}
	return worst / scale
}

// compareAll checks every tensor of want.
func compareAll(t *testing.T, what string, got, want map[string][]float64, tolerance float64) {
	t.Helper()
	worst, at := 0.0, ""
	for name, w := range want {
		if d := distance(got[name], w); d > worst || at == "" {
			worst, at = d, name
		}
	}
	t.Logf("%s: %d tensors, largest relative error %.2e (%s)", what, len(want), worst, at)
	if worst > tolerance || len(got) != len(want) {
		t.Errorf("%s: relative error %.2e of %s, %d and %d tensors", what, worst, at, len(got), len(want))
	}
}

// reference is a case of scripts/trainbench/reference.py.
type reference struct {
	Model   string         `json:"model"`
	Rank    int            `json:"rank,omitempty"`
	Scale   float64        `json:"scale,omitempty"`
	LoRA    string         `json:"lora,omitempty"` // file of the adapter's values
	Modules []string       `json:"modules,omitempty"`
	Batch   map[string]any `json:"batch"`
	Out     string         `json:"out"`
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func writeFile(t testing.TB, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeFloats(t testing.TB, path string, values []float32) {
	t.Helper()
	raw, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, raw)
}

// python runs the reference over cases, or skips where there is no torch.
func python(t *testing.T, cases []reference) {
	t.Helper()
	const interpreter = "/usr/bin/python3"
	const find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)" // without loading it, which takes seconds
	if err := exec.Command(interpreter, "-c", find).Run(); err != nil {
		t.Skipf("no PyTorch to compare with: %v", err)
	}
	raw, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cases.json")
	writeFile(t, file, raw)
	out, err := exec.Command(interpreter, "../../../scripts/trainbench/reference.py", "grads", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// read gives the tensors that the reference wrote.
func (r reference) read(t *testing.T) map[string][]float64 {
	t.Helper()
	raw, text := readFile(t, r.Out), readFile(t, r.Out+".json")
	var index map[string][2]int
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	values := tensor.View[float64](raw)
	out := map[string][]float64{}
	for name, at := range index {
		out[name] = values[at[0] : at[0]+at[1]]
	}
	return out
}

func batchJSON(b *data.Batch) map[string]any {
	return map[string]any{"rows": b.Rows, "length": b.Length, "tokens": b.Tokens, "targets": b.Targets,
		"weights": b.Weights, "positions": b.Positions, "segments": b.Segments}
}

// newReference describes what an executor computes.
func newReference(t *testing.T, dir string, e *train.Executor, b *data.Batch) reference {
	r := reference{Model: dir, Batch: batchJSON(b), Out: filepath.Join(t.TempDir(), "gradients")}
	a := e.Adapter()
	if a == nil {
		return r
	}
	r.Rank, r.LoRA = a.Config.Rank, filepath.Join(t.TempDir(), "adapter")
	var values []float32
	for _, p := range e.Params() {
		if name := p.Name; filepath.Ext(name) == ".lora_A" {
			name = name[:len(name)-len(".lora_A")]
			r.Modules = append(r.Modules, name)
			m := a.Modules[name]
			values = append(append(values, m.A...), m.B...)
			r.Scale = a.Config.Scale(m)
		}
	}
	writeFloats(t, r.LoRA, values)
	return r
}

// TestGradients compares the gradient of every trainable tensor of every
// family with PyTorch in float64: LoRA and all weights, layer by layer and
// whole. That layers computed twice give the same bytes is said by TestModes.
func TestGradients(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	type result struct {
		name    string
		ref     int
		logp    []float64
		weights []float32
		grads   map[string][]float64
	}
	var cases []reference
	var results []result
	for name, shape := range shapes() {
		dir := writeModel(t, shape)
		adapters := []*engine.LoRA{lora(4), nil}
		if !strings.Contains(name, " ") { // one of each family
			adapters = append(adapters, lora(3, "q_proj", "down_proj"))
		}
		for _, l := range adapters {
			for mode, cfg := range modes()[1:] {
				cfg.ModelDir, cfg.LoRA, cfg.BaseFormat = dir, l, "none"
				e := open(t, rt, cfg)
				fill(e)
				b := packed(shape.Vocabulary)
				if mode == 0 {
					cases = append(cases, newReference(t, dir, e, b))
				}
				logp, err := e.Accumulate(t.Context(), b, nil)
				if err != nil {
					t.Fatalf("%s, %+v: %v", name, cfg, err)
				}
				what := fmt.Sprintf("%s, LoRA %v, layered %v", name, l != nil, cfg.Layered)
				results = append(results, result{what, len(cases) - 1, widen(logp), b.Weights, gradients(e)})
			}
		}
	}
	python(t, cases)
	for _, r := range results {
		want := cases[r.ref].read(t)
		logp := want["logprobs"]
		delete(want, "logprobs")
		for i, w := range r.weights {
			if w == 0 {
				logp[i] = 0
			}
		}
		if d := distance(r.logp, logp); d > 1e-5 {
			t.Errorf("%s: log-probabilities differ by %.2e", r.name, d)
		}
		named := map[string][]float64{}
		for name, v := range r.grads {
			if cases[r.ref].Rank == 0 && len(name) > 6 && name[:6] == "model." {
				name = name[6:]
			}
			named[name] = v
		}
		compareAll(t, r.name, named, want, 1e-4)
	}
}
