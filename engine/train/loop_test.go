package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"athanor/engine"
)

var scenarios = map[string]func() scenario{"sft": sftScenario, "dpo": dpoScenario, "early stopping": stoppingScenario}

func mustRun(t *testing.T, s scenario, dir string) outcome {
	t.Helper()
	out, err := process(t.Context(), t, s, dir, calm(), accept)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares a finished job with an uninterrupted one.
func same(t *testing.T, got, want outcome, gotDir, wantDir string) {
	t.Helper()
	if !bytes.Equal(got.weights, want.weights) {
		t.Fatal("the weights differ from those of an uninterrupted run")
	}
	if got.at.Tokens != want.at.Tokens || got.at.Step != want.at.Step || got.at.selected() != want.at.selected() {
		t.Fatalf("ended as %+v, want %+v", got.at, want.at)
	}
	if left, err := filepath.Glob(filepath.Join(gotDir, "state", "*"+partialSuffix)); err != nil || len(left) > 0 {
		t.Fatalf("an earlier process left %v: %v", left, err)
	}
	if !maps.Equal(folder(t, filepath.Join(gotDir, "checkpoints")), folder(t, filepath.Join(wantDir, "checkpoints"))) {
		t.Fatal("the checkpoints differ from those of an uninterrupted run")
	}
}

// TestCrashAtEveryFileOperation lets a job die at each operation on the disk,
// with what was not synced half lost, and lets another process finish it.
func TestCrashAtEveryFileOperation(t *testing.T) {
	for name, make := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := make()
			if name == "sft" {
				s.saveEvery = 0 // after every step
			}
			wantDir := t.TempDir()
			want := mustRun(t, s, wantDir)
			n := 0
			for ; ; n++ {
				dir := t.TempDir()
				d := calm()
				d.left = n
				_, err := process(t.Context(), t, s, dir, d, accept)
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) {
					t.Fatalf("operation %d: %v", n, err)
				}
				got := mustRun(t, s, dir)
				same(t, got, want, dir, wantDir)
				if strings.Contains(strings.Join(got.events, ""), `"type":"warning"`) {
					t.Fatalf("operation %d: a file with its final name is damaged", n)
				}
			}
			if n < 20 {
				t.Errorf("only %d operations", n)
			}
		})
	}
}

// TestCrashAtEveryEvent lets the consumer of events refuse each one once. What
// the next process reports is the same events from its first one on.
func TestCrashAtEveryEvent(t *testing.T) {
	for name, make := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := make()
			wantDir := t.TempDir()
			want := mustRun(t, s, wantDir)
			for n := range want.events {
				dir := t.TempDir()
				seen := 0
				first, err := process(t.Context(), t, s, dir, calm(), func(*engine.TrainEvent) error {
					if seen == n {
						return errCrash
					}
					seen++
					return nil
				})
				if !errors.Is(err, errCrash) {
					t.Fatalf("event %d: %v", n, err)
				}
				second := mustRun(t, s, dir)
				same(t, second, want, dir, wantDir)
				from := slices.Index(want.events, second.events[0])
				if from < 0 || from > n || !slices.Equal(second.events, want.events[from:]) || !slices.Equal(first.events, want.events[:n]) {
					t.Fatalf("event %d: resumed with\n%s\nwhich does not follow from\n%s", n, strings.Join(second.events, "\n"), strings.Join(want.events, "\n"))
				}
			}
		})
	}
}

// TestCrashesAgainAndAgain kills processes of one job at random operations and
// events until one of them finishes.
func TestCrashesAgainAndAgain(t *testing.T) {
	for name, make := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := make()
			wantDir := t.TempDir()
			want := mustRun(t, s, wantDir)
			for seed := range uint64(10) {
				r := rand.New(rand.NewPCG(seed, 1))
				dir := t.TempDir()
				for died := 0; ; died++ {
					s.saveEvery = time.Duration(r.IntN(20)) * time.Second
					d := calm()
					d.left = r.IntN(120)
					events := r.IntN(60)
					got, err := process(t.Context(), t, s, dir, d, func(*engine.TrainEvent) error {
						if events--; events < 0 {
							return errCrash
						}
						return nil
					})
					if err == nil {
						same(t, got, want, dir, wantDir)
						break
					}
					if !errors.Is(err, errCrash) || died > 200 {
						t.Fatalf("seed %d: died %d times: %v", seed, died, err)
					}
				}
			}
		})
	}
}

// TestDamagedStates destroys saved files and expects the same result.
func TestDamagedStates(t *testing.T) {
	s := stoppingScenario()
	s.saveEvery = 0
	wantDir := t.TempDir()
	want := mustRun(t, s, wantDir)
	damage := map[string]func(path string) error{
		"cut":     func(p string) error { return os.Truncate(p, 100) },
		"empty":   func(p string) error { return os.Truncate(p, 0) },
		"flipped": func(p string) error { return flip(p) },
		"absent":  os.Remove,
	}
	for name, destroy := range damage {
		for _, pattern := range []string{"step-*", "best-*", "*"} {
			t.Run(name+" "+pattern, func(t *testing.T) {
				dir := t.TempDir()
				steps := 0
				_, err := process(t.Context(), t, s, dir, calm(), func(e *engine.TrainEvent) error {
					if e.Type == engine.TrainStep {
						steps++
					}
					if steps > 7 {
						return errCrash
					}
					return nil
				})
				if !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
				files, err := filepath.Glob(filepath.Join(dir, "state", pattern))
				if err != nil || len(files) == 0 {
					t.Fatalf("no files %s: %v", pattern, err)
				}
				if pattern == "step-*" {
					files = files[len(files)-1:] // the newest one
				}
				for _, f := range files {
					if err := destroy(f); err != nil {
						t.Fatal(err)
					}
				}
				same(t, mustRun(t, s, dir), want, dir, wantDir)
			})
		}
	}
}

func flip(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	raw[len(raw)/2] ^= 1
	return os.WriteFile(path, raw, 0o600)
}

func TestStateOfAnotherJobIsRefused(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, sftScenario(), dir)
	st, err := openStore(realDisk{}, filepath.Join(dir, "state"), "another key")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := st.restore(nil); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("error %v", err)
	}
}

// TestTwoStatesAreKept counts the files while a job runs.
func TestTwoStatesAreKept(t *testing.T) {
	s := stoppingScenario()
	s.saveEvery = 0
	dir := t.TempDir()
	_, err := process(t.Context(), t, s, dir, calm(), func(e *engine.TrainEvent) error {
		states, _ := filepath.Glob(filepath.Join(dir, "state", "step-*"))
		best, _ := filepath.Glob(filepath.Join(dir, "state", "best-*"))
		if want := min(2, max(0, e.Step-1)); e.Type == engine.TrainStep && len(states) != want {
			return fmt.Errorf("step %d: %d states, want %d", e.Step, len(states), want)
		}
		if len(best) > 3 { // two that states name and one that the next state will name
			return fmt.Errorf("step %d: %d files of best weights", e.Step, len(best))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCancel ends a job from outside and expects a state of the last step.
func TestCancel(t *testing.T) {
	s := sftScenario()
	wantDir, dir := t.TempDir(), t.TempDir()
	want := mustRun(t, s, wantDir)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := process(ctx, t, s, dir, calm(), func(e *engine.TrainEvent) error {
		if e.Type == engine.TrainStep && e.Step == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if calls := got.model.calls; calls != 4 {
		t.Errorf("%d passes, want those of two steps", calls)
	}
	second := mustRun(t, s, dir)
	same(t, second, want, dir, wantDir)
	if !strings.Contains(second.events[0], `"step":3`) {
		t.Errorf("resumed with %s", second.events[0])
	}
}

// TestMetrics compares the first step with a hand-worked one.
func TestMetrics(t *testing.T) {
	s := sftScenario()
	s.spec.Evals, s.spec.Checkpoints = 1, 1
	s.spec.Epochs, s.spec.GradientAccumulation = 1, 1
	s.train, s.eval = tokens{count: 2, rows: 1}, tokens{count: 1, rows: 1}
	out := mustRun(t, s, t.TempDir())
	// The row has the targets 0, 1 and 2. The distances of the weights
	// 0.5 -1 2 0 3 to 1/k of them are
	//	0.5 -1 2 0 3;  -0.5 -1.5 5/3 -0.25 2.8;  -1.5 -2 4/3 -0.5 2.6
	nll := (0.25+1+4+0+9)/2 + (0.25+2.25+25./9+0.0625+7.84)/2 + (2.25+4+16./9+0.25+6.76)/2
	norm := 0.0
	for _, sum := range []float64{-1.5, -4.5, 5, -0.75, 8.4} {
		norm += sum / 3 * sum / 3
	}
	want := map[string]float64{
		"train/global_step": 1, "train/loss": nll / 3, "train/learning_rate": 0.1, "train/grad_norm": math.Sqrt(norm),
		"train/epoch": 0.5, "train/tokens": 3,
	}
	var e engine.TrainEvent
	if err := json.Unmarshal([]byte(out.events[1]), &e); err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if got := e.Metrics[name]; math.Abs(got-w) > 1e-6*(1+math.Abs(w)) {
			t.Errorf("%s = %g, want %g", name, got, w)
		}
	}
	if len(e.Metrics) != len(want) {
		t.Errorf("metrics %v", e.Metrics)
	}
}

// TestEventsInOrder checks the types of the events of a job.
func TestEventsInOrder(t *testing.T) {
	s := sftScenario()
	s.spec.Epochs, s.spec.Evals, s.spec.Checkpoints = 2, 1, 2
	out := mustRun(t, s, t.TempDir())
	var got []string
	for _, raw := range out.events {
		var e engine.TrainEvent
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s %d", e.Type, e.Step)
		if e.Checkpoint != nil && e.Checkpoint.Final {
			name += " final"
		}
		got = append(got, name)
	}
	want := []string{
		"started 0", "step 1", "step 2", "step 3", "checkpoint 3", "epoch 3",
		"step 4", "step 5", "step 6", "eval 6", "checkpoint 6 final", "epoch 6", "finished 6",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if want := int64(2 * 5 * (3 + 2)); out.at.Tokens != want { // epochs, batches, rows
		t.Errorf("%d tokens, want %d", out.at.Tokens, want)
	}
}

// TestEarlyStopping follows a job whose evaluation first gets better.
func TestEarlyStopping(t *testing.T) {
	dir := t.TempDir()
	out := mustRun(t, stoppingScenario(), dir)
	var losses []float64
	var last, best, step int
	for _, raw := range out.events {
		var e engine.TrainEvent
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case engine.TrainEval:
			losses = append(losses, e.Metrics["eval/loss"])
			if losses[len(losses)-1] == slices.Min(losses) {
				best = e.Step
			}
			last = e.Step
		case engine.TrainEarlyStopped:
			step = e.Step
			if e.BestStep != best || e.BestMetric == nil || *e.BestMetric != slices.Min(losses) {
				t.Errorf("stopped with best step %d and %v, want %d", e.BestStep, e.BestMetric, best)
			}
		case engine.TrainCheckpoint:
			if e.Checkpoint.Final && e.Step != best {
				t.Errorf("the final checkpoint is of step %d, want %d", e.Step, best)
			}
		}
	}
	n := len(losses)
	if n < 4 || losses[n-1] <= losses[n-3] || losses[n-2] <= losses[n-3] || losses[n-3] >= losses[0] || step != last {
		t.Fatalf("stopped at step %d after the losses %v", step, losses)
	}
	saved, err := os.ReadFile(filepath.Join(dir, "checkpoints", fmt.Sprint("step-", best), "weights"))
	if err != nil || !bytes.Equal(saved, out.weights) {
		t.Errorf("the model does not have the weights of step %d: %v", best, err)
	}
}

// TestDivergence expects an error that names the learning rate.
func TestDivergence(t *testing.T) {
	s := sftScenario()
	s.spec.LearningRate, s.spec.WarmupRatio = 1e30, 0
	_, err := process(t.Context(), t, s, t.TempDir(), calm(), accept)
	var r *engine.RequestError
	if !errors.As(err, &r) || r.Param != "learning_rate" {
		t.Errorf("error %v", err)
	}
}
