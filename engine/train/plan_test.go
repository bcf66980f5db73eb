package train

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/enginetest"
	"athanor/engine/ort/orttest"
	"athanor/engine/train/exec"
)

func TestChooseBatch(t *testing.T) {
	for _, c := range []struct{ rows, accumulation, fit, want int }{
		{10000, 1, 1000, 32}, // no larger than is useful
		{10000, 1, 13, 13},
		{10000, 1, 0, 0},
		{100, 1, 1000, 12}, // eight steps of an epoch
		{100, 4, 1000, 3},
		{5, 1, 1000, 1},
		{1, 1, 1, 1},
	} {
		asked := 0
		got := chooseBatch(c.rows, c.accumulation, func(batch int) bool { asked++; return batch <= c.fit })
		if got != c.want || asked > 6 {
			t.Errorf("%+v: %d after %d questions", c, got, asked)
		}
	}
}

// TestTimetable lists the batches of every step of a job.
func TestTimetable(t *testing.T) {
	s := &engine.TrainSpec{Epochs: 2, GradientAccumulation: 2, Evals: 3, Checkpoints: 4}
	times := newTimetable(s, 5)
	want := [][3]int{{0, 0, 2}, {0, 2, 4}, {0, 4, 5}, {1, 0, 2}, {1, 2, 4}, {1, 4, 5}}
	if times.steps != len(want) || times.evalEvery() != 2 || len(times.checkpoints) != 4 || !times.checkpoints[6] {
		t.Fatalf("%+v", times)
	}
	for i, w := range want {
		if epoch, first, last := times.passes(i + 1); [3]int{epoch, first, last} != w {
			t.Errorf("step %d: epoch %d, batches %d to %d, want %v", i+1, epoch, first, last, w)
		}
	}
}

func TestValidate(t *testing.T) {
	good := func() *engine.TrainSpec {
		return &engine.TrainSpec{
			SFT: &engine.SFT{}, Epochs: 1, Checkpoints: 1, LearningRate: 1, Schedule: engine.Schedule{Type: "linear"},
			EvalFile: &engine.DataFile{}, Evals: 4, EarlyStopping: &engine.EarlyStopping{Patience: 2, WarmupEvals: 1},
		}
	}
	if err := validate(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		param string
		spoil func(*engine.TrainSpec)
	}{
		{"training_method", func(s *engine.TrainSpec) { s.SFT = nil }},
		{"training_method", func(s *engine.TrainSpec) { s.DPO = &engine.DPO{Beta: 1} }},
		{"n_epochs", func(s *engine.TrainSpec) { s.Epochs = 0 }},
		{"n_checkpoints", func(s *engine.TrainSpec) { s.Checkpoints = 0 }},
		{"n_checkpoints", func(s *engine.TrainSpec) { s.Checkpoints = 11 }},
		{"n_evals", func(s *engine.TrainSpec) { s.Evals = -1 }},
		{"n_evals", func(s *engine.TrainSpec) { s.EvalFile, s.EarlyStopping = nil, nil }},
		{"n_evals", func(s *engine.TrainSpec) { s.Evals = 3 }},
		{"batch_size", func(s *engine.TrainSpec) { s.BatchSize = -1 }},
		{"quantization", func(s *engine.TrainSpec) { s.Quantization = "int2" }},
		{"gradient_accumulation_steps", func(s *engine.TrainSpec) { s.GradientAccumulation = -1 }},
		{"max_seq_length", func(s *engine.TrainSpec) { s.MaxSeqLength = 1 }},
		{"learning_rate", func(s *engine.TrainSpec) { s.LearningRate = 0 }},
		{"learning_rate", func(s *engine.TrainSpec) { s.LearningRate = math.NaN() }},
		{"warmup_ratio", func(s *engine.TrainSpec) { s.WarmupRatio = 1.5 }},
		{"max_grad_norm", func(s *engine.TrainSpec) { s.MaxGradNorm = -1 }},
		{"weight_decay", func(s *engine.TrainSpec) { s.WeightDecay = math.Inf(1) }},
		{"lr_scheduler.lr_scheduler_type", func(s *engine.TrainSpec) { s.Schedule.Type = "constant" }},
		{"lr_scheduler.lr_scheduler_args.min_lr_ratio", func(s *engine.TrainSpec) { s.Schedule.MinLRRatio = 2 }},
		{"lr_scheduler.lr_scheduler_args.num_cycles", func(s *engine.TrainSpec) { s.Schedule.NumCycles = -1 }},
		{"validation_file", func(s *engine.TrainSpec) { s.EvalFile, s.Evals = nil, 0 }},
		{"early_stopping_patience", func(s *engine.TrainSpec) { s.EarlyStopping.Patience = 0 }},
		{"early_stopping_min_delta", func(s *engine.TrainSpec) { s.EarlyStopping.MinDelta = -1 }},
		{"early_stopping_warmup_evals", func(s *engine.TrainSpec) { s.EarlyStopping.WarmupEvals = -1 }},
		{"training_method.dpo_beta", func(s *engine.TrainSpec) { s.SFT, s.DPO = nil, &engine.DPO{} }},
		{"training_method.rpo_alpha", func(s *engine.TrainSpec) { s.SFT, s.DPO = nil, &engine.DPO{Beta: 1, RPOAlpha: -1} }},
		{"training_method.simpo_gamma", func(s *engine.TrainSpec) { s.SFT, s.DPO = nil, &engine.DPO{Beta: 1, SimPOGamma: -1} }},
	} {
		s := good()
		c.spoil(s)
		var r *engine.RequestError
		if err := validate(s); !errors.As(err, &r) || r.Param != c.param || !strings.Contains(r.Message, c.param) {
			t.Errorf("%s: error %v", c.param, err)
		}
	}
}

// TestJobKey changes what decides the result, and what does not.
func TestJobKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := func(change func(*engine.TrainSpec)) string {
		t.Helper()
		s := &engine.TrainSpec{ModelDir: dir, TrainFile: engine.DataFile{SHA256: "a"}, EvalFile: &engine.DataFile{SHA256: "b"}, LearningRate: 1}
		change(s)
		k, err := jobKey(s)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	want := key(func(*engine.TrainSpec) {})
	if got := key(func(s *engine.TrainSpec) {
		s.Job, s.WorkDir, s.Threads, s.MemoryBytes, s.Device, s.TrainFile.Path, s.EvalFile.Path = "j", "w", 3, 4, "cpu", "t", "e"
		s.Quantization = "int4"
	}); got != want {
		t.Error("the place and the moment change the key")
	}
	for name, change := range map[string]func(*engine.TrainSpec){
		"rate": func(s *engine.TrainSpec) { s.LearningRate = 2 }, "seed": func(s *engine.TrainSpec) { s.Seed = 1 },
		"training": func(s *engine.TrainSpec) { s.TrainFile.SHA256 = "c" }, "validation": func(s *engine.TrainSpec) { s.EvalFile.SHA256 = "c" },
		"rank": func(s *engine.TrainSpec) { s.LoRA = &engine.LoRA{Rank: 1} }, "adapter": func(s *engine.TrainSpec) { s.AdapterDir = dir },
		"model": func(s *engine.TrainSpec) { s.ModelDir = t.TempDir() },
	} {
		if key(change) == want {
			t.Errorf("the %s does not change the key", name)
		}
	}
}

// TestMemory trains with budgets around what a job needs.
func TestMemory(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	spec := tinySpec(t)
	spec.TrainFile, spec.BatchSize, spec.Epochs, spec.Checkpoints = dataset(t, answers(40)...), 0, 1, 1
	free := mustTrain(t, rt, spec).plan
	if free.BatchSize != 5 || free.Steps != 8 || free.MemoryBytes <= 0 {
		t.Fatalf("plan %+v", free)
	}
	spec.MemoryBytes = 1 << 20
	spec.WorkDir = filepath.Join(t.TempDir(), "none")
	_, err := run(t.Context(), rt, spec, nil)
	if !errors.Is(err, engine.ErrNoMemory) || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("error %v", err)
	}
	// The batch size stays when there is more memory later.
	spec.WorkDir, spec.MemoryBytes = filepath.Join(t.TempDir(), "tight"), needLeast(t, rt, spec, 3)
	first, err := run(t.Context(), rt, spec, func(e *engine.TrainEvent) error {
		if e.Type == engine.TrainStep {
			return errCrash
		}
		return nil
	})
	if !errors.Is(err, errCrash) || first.plan.BatchSize != 3 || first.plan.MemoryBytes > spec.MemoryBytes {
		t.Fatalf("plan %+v: %v", first.plan, err)
	}
	spec.MemoryBytes = 1 << 20
	var busy *engine.BusyError
	if _, err := run(t.Context(), rt, spec, nil); !errors.As(err, &busy) {
		t.Errorf("a job that is taken up with less memory: %v", err)
	}
	spec.MemoryBytes = 0
	if second := mustTrain(t, rt, spec); second.plan.BatchSize != first.plan.BatchSize {
		t.Errorf("resumed with batches of %d, begun with %d", second.plan.BatchSize, first.plan.BatchSize)
	}
}

// needLeast is what a job needs at least for a batch size.
func needLeast(t *testing.T, rt compute.Runtime, spec *engine.TrainSpec, batch int) int64 {
	t.Helper()
	s := *spec
	s.WorkDir = t.TempDir()
	j := &job{rt: rt, spec: &s, disk: realDisk{}}
	defer j.close()
	if err := errors.Join(j.open(), j.tokenize(t.Context()), j.openExecutor(t.Context(), exec.Config{})); err != nil {
		t.Fatal(err)
	}
	return j.least(batch)
}

// TestResumeWithOtherMemory takes jobs that go layer by layer up with less and
// with more memory than they had: the same bytes.
func TestResumeWithOtherMemory(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	for name, change := range map[string]func(*engine.TrainSpec){
		"adapter": func(s *engine.TrainSpec) { s.LoRA.Dropout = 0.1 },
		"full":    func(s *engine.TrainSpec) { s.LoRA = nil },
	} {
		t.Run(name, func(t *testing.T) {
			base := tinySpec(t)
			change(base)
			deep := tinyShape
			deep.Layers = 6
			if err := enginetest.WriteDecoder(base.ModelDir, deep, 3); err != nil {
				t.Fatal(err)
			}
			base.TrainFile, base.BatchSize = dataset(t, answers(40)...), 16
			j := &job{rt: rt, spec: base, disk: realDisk{}}
			if err := errors.Join(j.open(), j.tokenize(t.Context()), j.openExecutor(t.Context(), exec.Config{})); err != nil {
				t.Fatal(err)
			}
			least, whole := j.least(base.BatchSize), j.need(base.BatchSize)
			if err := j.close(); err != nil {
				t.Fatal(err)
			}
			base.MemoryBytes = (least + whole) / 2
			want := mustTrain(t, rt, base)
			if want.plan.MemoryBytes <= least || want.plan.MemoryBytes > base.MemoryBytes {
				t.Fatalf("the job takes %d bytes of %d, at least %d", want.plan.MemoryBytes, base.MemoryBytes, least)
			}
			spec := *base
			spec.WorkDir = filepath.Join(t.TempDir(), "work")
			for i, memory := range []int64{base.MemoryBytes, least, 1 << 40} {
				spec.MemoryBytes = memory
				r, err := run(t.Context(), rt, &spec, func(e *engine.TrainEvent) error {
					if e.Type == engine.TrainStep && e.Step == 2*i+1 {
						return errCrash
					}
					return nil
				})
				if i < 2 && !errors.Is(err, errCrash) || i == 2 && err == nil == (r.plan.Steps > 5) {
					t.Fatalf("with %d bytes: %v", memory, err)
				}
				if r.plan.MemoryBytes > memory {
					t.Errorf("with %d bytes it takes %d", memory, r.plan.MemoryBytes)
				}
			}
			got := mustTrain(t, rt, &spec)
			if a, b := sha256Of(t, filepath.Join(want.result.ModelDir, "model.safetensors")), sha256Of(t, filepath.Join(got.result.ModelDir, "model.safetensors")); a != b {
				t.Error("the weights differ from those of an unbroken run")
			}
		})
	}
}

// TestWarnings counts what is told about the data and the plan.
func TestWarnings(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	spec := tinySpec(t)
	lines := answers(9) // of 14 to 22 tokens
	lines[0].Messages[0].Content = strings.Repeat("Count to one, please. ", 20)
	eval := dataset(t, answers(3)...)
	spec.TrainFile, spec.EvalFile, spec.Evals, spec.Checkpoints = dataset(t, lines...), &eval, 9, 10
	spec.MaxSeqLength = 20
	r := mustTrain(t, rt, spec)
	var got []string
	for _, e := range r.events {
		if e.Type == engine.TrainWarning {
			got = append(got, e.Message)
		}
	}
	want := []string{
		"1 of 9 samples of the training file were left out because their answer lies behind max_seq_length",
		"2 of 9 samples of the training file were cut at max_seq_length",
		"The job has 8 steps, so that there are 8 evaluations instead of 9",
		"The job has 8 steps, so that there are 8 checkpoints instead of 10",
	}
	if !slices.Equal(got, want) || r.plan.TrainSamples != 8 || r.plan.Truncated != 3 {
		t.Errorf("plan %+v, warnings\n%s\nwant\n%s", r.plan, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
