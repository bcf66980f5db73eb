package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/demo"
	"athanor/engine/enginetest"
	"athanor/engine/export"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/peft"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
	"athanor/engine/train/exec"
)

// shared finds a folder of the material beside the repository.
func shared(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "go.mod")) {
			break
		}
	}
	path := filepath.Join(dir, "..", "shared", name)
	if !exists(path) {
		t.Skipf("%s is absent", path)
	}
	return path
}

// dataset writes lines of JSON.
func dataset[T any](t testing.TB, lines ...T) engine.DataFile {
	t.Helper()
	var text []byte
	for _, l := range lines {
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, raw...), '\n')
	}
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return engine.DataFile{Path: path, Type: "jsonl", SHA256: hex.EncodeToString(sum[:])}
}

type textLine struct {
	Text string `json:"text"`
}

// plays are speeches of tinyshakespeare: n of 120 characters, from the given
// one on.
func plays(t testing.TB, from, n int) []textLine {
	t.Helper()
	raw, err := os.ReadFile(shared(t, "datasets/text/tinyshakespeare.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []textLine
	for _, speech := range strings.Split(string(raw), "\n\n") {
		if len(speech) < 120 {
			continue
		}
		if from--; from >= 0 {
			continue
		}
		if out = append(out, textLine{speech[:120]}); len(out) == n {
			break
		}
	}
	return out
}

// storiesSpec trains stories260K.
func storiesSpec(t testing.TB) *engine.TrainSpec {
	return &engine.TrainSpec{
		Job: "test", ModelName: "stories260K", ModelDir: shared(t, "models/stories260K"), WorkDir: filepath.Join(t.TempDir(), "work"),
		SFT: &engine.SFT{TrainOnInputs: "auto"}, LoRA: &engine.LoRA{Rank: 8, Alpha: 16},
		Epochs: 1, Checkpoints: 1, LearningRate: 5e-3, Schedule: engine.Schedule{Type: scheduleLinear}, MaxGradNorm: 1, Seed: 42, Threads: 1,
	}
}

// report is what a job told.
type report struct {
	result *engine.TrainResult
	plan   *engine.TrainPlan
	events []engine.TrainEvent
}

func (r *report) metric(kind engine.TrainEventType, name string) (out []float64) {
	for _, e := range r.events {
		if e.Type == kind {
			out = append(out, e.Metrics[name])
		}
	}
	return out
}

func run(ctx context.Context, rt compute.Runtime, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*report, error) {
	r := &report{}
	var err error
	hear := func(e *engine.TrainEvent) error {
		if e.Plan != nil {
			r.plan = e.Plan
		}
		r.events = append(r.events, *e)
		if emit != nil {
			return emit(e)
		}
		return nil
	}
	tested := func(context.Context, compute.Runtime) error { return nil } // once, by TestRunTestsFirst and by the child
	j := &job{rt: rt, spec: spec, emit: hear, selftest: tested, disk: realDisk{}, now: time.Now, saveEvery: saveEvery}
	r.result, err = j.runAndClose(ctx)
	return r, err
}

func mustTrain(t testing.TB, rt compute.Runtime, spec *engine.TrainSpec) *report {
	t.Helper()
	r, err := run(t.Context(), rt, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lossOf is what the model and the adapter of a spec lose on a dataset, without
// any training.
func lossOf(t testing.TB, rt compute.Runtime, spec *engine.TrainSpec, file engine.DataFile) float64 {
	t.Helper()
	spec.TrainFile = file
	j := &job{rt: rt, spec: spec, disk: realDisk{}}
	defer j.close()
	if err := errors.Join(j.open(), j.tokenize(t.Context()), j.openExecutor(t.Context(), exec.Config{Threads: 1})); err != nil {
		t.Fatal(err)
	}
	s, err := j.sampler(j.train, false, 4)
	if err != nil {
		t.Fatal(err)
	}
	var total tally
	for i := range s.Batches() {
		b, err := s.Batch(0, i)
		if err != nil {
			t.Fatal(err)
		}
		one, err := supervised{}.measure(t.Context(), j.executor, b)
		if err != nil {
			t.Fatal(err)
		}
		total.add(one)
	}
	return total.mean()
}

// TestRunTestsFirst: a runtime that fails the self-test trains nothing.
func TestRunTestsFirst(t *testing.T) {
	spec := tinySpec(t)
	spec.TrainFile = dataset(t, answers(2)...)
	_, err := Run(t.Context(), failing{refexec.New()}, spec, accept)
	if !errors.Is(err, errCrash) || exists(spec.WorkDir) {
		t.Errorf("error %v, work directory %v", err, exists(spec.WorkDir))
	}
}

// failing is a runtime that compiles nothing.
type failing struct{ compute.Runtime }

func (failing) Compile(*onnx.Model, compute.Options) (compute.Program, error) { return nil, errCrash }

// TestLearnsFromPlays fine-tunes a model of stories on plays: an adapter on
// packed rows, and all weights.
func TestLearnsFromPlays(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	train, eval := dataset(t, plays(t, 0, 32)...), dataset(t, plays(t, 1000, 8)...)
	base := math.Exp(lossOf(t, rt, storiesSpec(t), eval))
	for name, change := range map[string]func(*engine.TrainSpec){
		"adapter": func(s *engine.TrainSpec) { s.Packing, s.MaxSeqLength = true, 256 },
		"full":    func(s *engine.TrainSpec) { s.LoRA, s.LearningRate = nil, 3e-3 },
	} {
		t.Run(name, func(t *testing.T) {
			spec := storiesSpec(t)
			spec.TrainFile, spec.EvalFile = train, &eval
			change(spec)
			spec.Evals, spec.Quantization = 2, "int8"
			r := mustTrain(t, rt, spec)
			p := r.metric(engine.TrainEval, "eval/perplexity")
			t.Logf("perplexity %.4g, then %.4g, %d steps of %d, export %+v, in int8 %+v", base, p, r.plan.Steps, r.plan.BatchSize, r.result.Export, r.result.Quantized)
			loss := r.metric(engine.TrainEval, "eval/loss")
			if len(p) != 2 || p[1] >= 0.75*base || p[1] >= p[0] || math.Abs(math.Exp(loss[1])-p[1]) > 1e-9*p[1] {
				t.Errorf("perplexities %v after %v", p, base)
			}
			if r.plan.Steps < 8 || r.result.Tokens != r.plan.TrainTokens || r.result.Steps != r.plan.Steps || r.result.Epochs != 1 {
				t.Errorf("plan %+v, result %+v", r.plan, r.result)
			}
			if !exists(filepath.Join(r.result.ModelDir, "config.json")) || (spec.LoRA != nil) != exists(filepath.Join(r.result.AdapterDir, "adapter_model.safetensors")) {
				t.Errorf("results %+v", r.result)
			}
			// What was written has the loss that was measured.
			again := storiesSpec(t)
			again.ModelDir = r.result.ModelDir
			if got := lossOf(t, rt, again, eval); math.Abs(got-loss[1]) > 1e-5 {
				t.Errorf("the written model has the loss %g, want %g", got, loss[1])
			}
			if spec.LoRA != nil && (r.result.Export == nil || r.result.Export.Warning != "" || r.result.Export.Positions == 0) {
				t.Errorf("export %+v", r.result.Export)
			}
			if q := r.result.Quantized; q == nil || q.Positions == 0 || q.MeanKL <= 0 || q.MeanKL > 0.01 || q.MaxLogit < 1e-3 {
				t.Errorf("in int8 %+v", q)
			}
		})
	}
}

// TestOverfittingStops trains on two lines until others get worse.
func TestOverfittingStops(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	spec := storiesSpec(t)
	eval := dataset(t, plays(t, 1000, 6)...)
	spec.TrainFile, spec.EvalFile = dataset(t, plays(t, 0, 2)...), &eval
	spec.Epochs, spec.Evals, spec.BatchSize, spec.LearningRate = 40, 20, 2, 1e-3
	spec.EarlyStopping = &engine.EarlyStopping{Patience: 2, WarmupEvals: 1}
	r := mustTrain(t, rt, spec)
	losses := r.metric(engine.TrainEval, "eval/loss")
	t.Logf("losses %.4g, result %+v", losses, r.result)
	var rule stopping
	want := 0
	for i, l := range losses {
		if _, stop := rule.observe(*spec.EarlyStopping, 2*(i+1), l); stop {
			want = 2 * (i + 1)
		}
	}
	if !r.result.EarlyStopped || r.result.Steps != want || want != 2*len(losses) || r.result.BestStep != rule.BestStep || *r.result.BestMetric != *rule.Best {
		t.Fatalf("result %+v, want a stop at step %d with the best %d", r.result, want, rule.BestStep)
	}
	// The selected adapter has the loss that made it the best.
	again := storiesSpec(t)
	again.AdapterDir, again.LoRA = r.result.AdapterDir, nil
	if got := lossOf(t, rt, again, eval); math.Abs(got-*r.result.BestMetric) > 1e-5 {
		t.Errorf("the selected adapter has the loss %g, want %g", got, *r.result.BestMetric)
	}
}

// TestAccumulation compares two passes of two samples with one of four.
func TestAccumulation(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	lines := plays(t, 0, 4)
	lines[0].Text, lines[1].Text = lines[0].Text[:40], lines[1].Text[:90]
	train := dataset(t, lines...)
	var results []*report
	for _, split := range [][2]int{{4, 1}, {2, 2}} {
		spec := storiesSpec(t)
		spec.TrainFile, spec.BatchSize, spec.GradientAccumulation = train, split[0], split[1]
		spec.Epochs, spec.LearningRate = 2, 1e-3
		results = append(results, mustTrain(t, rt, spec))
	}
	for _, name := range []string{"train/loss", "train/grad_norm"} {
		want := results[0].metric(engine.TrainStep, name)
		for _, r := range results[1:] {
			got := r.metric(engine.TrainStep, name)
			for i := range want {
				if len(got) != 2 || math.Abs(got[i]-want[i]) > 1e-5*want[i] {
					t.Fatalf("%s %.8g, want %.8g", name, got, want)
				}
			}
		}
	}
	want, got := mustAdapter(t, results[0]), mustAdapter(t, results[1])
	for name, m := range want.Modules {
		for i, v := range m.B {
			if d := math.Abs(float64(v - got.Modules[name].B[i])); d > 1e-5 {
				t.Fatalf("%s: B[%d] differs by %g", name, i, d)
			}
		}
	}
}

func mustAdapter(t testing.TB, r *report) *peft.Adapter {
	t.Helper()
	a, err := peft.Read(r.result.AdapterDir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sha256Of(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// tinyShape is that of the model of tinySpec.
var tinyShape = enginetest.DecoderShape{
	Architecture: "LlamaForCausalLM", Vocabulary: 2048, Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1, FFN: 24, Context: 256, Tied: true, DType: tensor.F32,
}

// tinySpec trains a model with random weights and the tokenizer and template of
// the embedded one.
func tinySpec(t testing.TB) *engine.TrainSpec {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		raw, err := fs.ReadFile(demo.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := enginetest.WriteDecoder(dir, tinyShape, 3); err != nil {
		t.Fatal(err)
	}
	return &engine.TrainSpec{
		Job: "test", ModelName: "tiny", ModelDir: dir, WorkDir: filepath.Join(t.TempDir(), "work"),
		SFT: &engine.SFT{TrainOnInputs: "auto"}, LoRA: &engine.LoRA{Rank: 2, Alpha: 4},
		Epochs: 2, Checkpoints: 2, BatchSize: 2, LearningRate: 1e-2, Schedule: engine.Schedule{Type: scheduleCosine, NumCycles: 0.5}, MaxGradNorm: 1, Seed: 42, Threads: 1,
	}
}

// answers are conversations of different lengths.
func answers(n int) []chat {
	out := make([]chat, n)
	for i := range out {
		out[i].Messages = []message{{"user", "Count."}, {"assistant", strings.Repeat("one ", i+1)}}
	}
	return out
}

// TestInterruptedJobsEndTheSame breaks real jobs off at random events and
// compares the SHA-256 of their results with those of an unbroken one.
func TestInterruptedJobsEndTheSame(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	train, eval, preferences := dataset(t, answers(9)...), dataset(t, answers(3)...), dataset(t, pairs(7)...)
	for name, change := range map[string]func(*engine.TrainSpec){
		"adapter":     func(s *engine.TrainSpec) { s.LoRA.Dropout, s.GradientAccumulation = 0.1, 2 },
		"full":        func(s *engine.TrainSpec) { s.LoRA, s.EarlyStopping = nil, &engine.EarlyStopping{Patience: 1} },
		"preferences": func(s *engine.TrainSpec) { s.SFT, s.DPO, s.Evals = nil, &engine.DPO{Beta: 0.1}, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			base := tinySpec(t)
			base.TrainFile, base.EvalFile, base.Evals = train, &eval, 2
			if change(base); base.DPO != nil {
				base.TrainFile = preferences
			}
			want := mustTrain(t, rt, base)
			random := rand.New(rand.NewPCG(7, uint64(len(name))))
			spec := *base
			spec.WorkDir = filepath.Join(t.TempDir(), "work")
			for range 3 {
				left := 1 + random.IntN(8)
				_, err := run(t.Context(), rt, &spec, func(*engine.TrainEvent) error {
					if left--; left < 0 {
						return errCrash
					}
					return nil
				})
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
			}
			got := mustTrain(t, rt, &spec)
			for _, file := range []string{"result/model/model.safetensors", "result/adapter/adapter_model.safetensors"} {
				if base.LoRA == nil && strings.Contains(file, "adapter") {
					continue
				}
				if sha256Of(t, filepath.Join(spec.WorkDir, file)) != sha256Of(t, filepath.Join(base.WorkDir, file)) {
					t.Errorf("%s differs from that of an unbroken run", file)
				}
			}
			if got.result.Steps != want.result.Steps || got.result.Tokens != want.result.Tokens || got.result.BestStep != want.result.BestStep {
				t.Errorf("result %+v, want %+v", got.result, want.result)
			}
			spec.LearningRate *= 2
			if _, err := run(t.Context(), rt, &spec, nil); err == nil {
				t.Error("another job took the work directory up")
			}
		})
	}
}

type chat struct {
	Messages []message `json:"messages"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type pair struct {
	Input struct {
		Messages []message `json:"messages"`
	} `json:"input"`
	Preferred    []message `json:"preferred_output"`
	NonPreferred []message `json:"non_preferred_output"`
}

// pairs prefer a happy answer to a sad one.
func pairs(n int) []pair {
	out := make([]pair, n)
	for i := range out {
		out[i].Input.Messages = []message{{"user", fmt.Sprintf("Tell me a story about %d cats.", i+2)}}
		out[i].Preferred = []message{{"assistant", "They were happy and played all day."}}
		out[i].NonPreferred = []message{{"assistant", "They were sad."}}
	}
	return out
}

// TestPreferences teaches to prefer an answer, with each form of the loss.
func TestPreferences(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	train := dataset(t, pairs(8)...)
	for name, dpo := range map[string]engine.DPO{
		"plain":             {Beta: 0.5, RPOAlpha: 0.2},
		"by length":         {Beta: 2, NormalizeByLength: true},
		"simpo":             {Beta: 2, SimPOGamma: 0.5},
		"without reference": {Beta: 0.5, ReferenceFree: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tinySpec(t)
			spec.SFT, spec.DPO, spec.TrainFile, spec.EvalFile, spec.Evals = nil, &dpo, train, &train, 2
			spec.BatchSize, spec.Epochs, spec.Checkpoints = 8, 8, 1
			r := mustTrain(t, rt, spec)
			loss, margin := r.metric(engine.TrainEval, "eval/loss"), r.metric(engine.TrainEval, "eval/rewards/margins")
			t.Logf("loss %.4g margin %.4g accuracy %v", loss, margin, r.metric(engine.TrainEval, "eval/rewards/accuracies"))
			if loss[1] >= loss[0] || margin[1] <= margin[0] {
				t.Errorf("losses %v, margins %v", loss, margin)
			}
			// Before the first update the weights are their own reference.
			first := r.metric(engine.TrainStep, "train/rewards/margins")[0]
			if needsReference(&dpo) != (math.Abs(first) < 1e-6) {
				t.Errorf("the first margin is %g", first)
			}
		})
	}
}

// TestComparisonsThatFail: the result stands, with a warning.
func TestComparisonsThatFail(t *testing.T) {
	spec := &engine.TrainSpec{Quantization: "int4", MemoryBytes: 4 << 20}
	c := comparison{job: &job{spec: spec, plan: &plan{}}, parameters: 1 << 20}
	for _, want := range []string{
		"the int4 model was not compared with the trained one: this takes 5 MiB, the job may use 4 MiB",
		"the int4 model was not compared with the trained one: compare two forms: ",
	} {
		got, err := c.quantized(t.Context(), export.Form{Dir: t.TempDir()})
		if err != nil || !strings.HasPrefix(got.Warning, want) || got.Prompts != 0 {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
		spec.MemoryBytes = 8 << 20
	}
	spec.Quantization = "none"
	if got, err := c.quantized(t.Context(), export.Form{}); got != nil || err != nil {
		t.Errorf("nothing to compare, got %+v, %v", got, err)
	}
}
