package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"athanor/engine"
)

// Trainer is an engine.Trainer that trains nothing: it reports a course of events
// made of the spec, writes small files as results, and, like a real one, keeps its
// place in the job's WorkDir and reports again from its last saved state on. States
// are saved with checkpoints and epochs. Its fields must not be changed while it
// runs; its methods may be called by any goroutine.
type Trainer struct {
	Steps     int // of the whole job, default 8
	StopAfter int // evaluations after which early stopping fires, when the spec has it; 0 = never
	// Hook, unless nil, is called before each event is reported, with the number of
	// the run from 1. It may block, cancel something, or end the run with an error.
	Hook func(ctx context.Context, run int, e *engine.TrainEvent) error
	// Busy and Result, unless nil, are asked at the beginning of a run, and for the
	// result.
	Busy   func(run int) error
	Result func(*engine.TrainResult)

	mu    sync.Mutex // guards what follows
	runs  int
	specs []*engine.TrainSpec
}

var _ engine.Trainer = (*Trainer)(nil)

// Specs are those of all runs so far.
func (t *Trainer) Specs() []*engine.TrainSpec {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*engine.TrainSpec(nil), t.specs...)
}

// course is one run.
type course struct {
	*Trainer
	ctx   context.Context
	run   int
	spec  *engine.TrainSpec
	emit  func(*engine.TrainEvent) error
	total int // steps, as planned
	steps int // the last one, which early stopping brings nearer
	saved int // of the last saved state
	best  struct {
		step int
		loss float64
	}
	stopped bool
}

// Train plays the part of a training.
func (t *Trainer) Train(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	t.mu.Lock()
	t.runs++
	c := &course{Trainer: t, ctx: ctx, run: t.runs, spec: spec, emit: emit, total: t.Steps}
	t.specs = append(t.specs, spec)
	t.mu.Unlock()
	if c.total == 0 {
		c.total = 8
	}
	c.steps = c.total
	if t.Busy != nil {
		if err := t.Busy(c.run); err != nil {
			return nil, err
		}
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	if err := c.train(); err != nil {
		return nil, err
	}
	return c.results()
}

func (c *course) say(e *engine.TrainEvent) error {
	if c.Hook != nil {
		if err := c.Hook(c.ctx, c.run, e); err != nil {
			return err
		}
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.emit(e)
}

func (c *course) statePath() string { return filepath.Join(c.spec.WorkDir, "state.json") }

func (c *course) load() error {
	data, err := os.ReadFile(c.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c.saved)
	}
	return err
}

func (c *course) save(step int) error {
	return os.WriteFile(c.statePath(), []byte(fmt.Sprint(step)), 0o600)
}

// every is the distance between n things over the course.
func (c *course) every(n int) int {
	if n == 0 {
		return math.MaxInt
	}
	return max(1, c.total/n)
}

func (c *course) train() error {
	dir, err := c.tokenized()
	if err != nil {
		return err
	}
	plan := &engine.TrainPlan{
		TrainSamples: 10, TrainTokens: 1000, Steps: c.total, BatchSize: max(c.spec.BatchSize, 4), MaxSeqLength: c.spec.MaxSeqLength,
		Parameters: 5000, Trainable: 100, MemoryBytes: 1 << 20, TokenizedDir: dir, ResumedAtStep: c.saved,
	}
	if c.spec.Evals > 0 {
		plan.EvalEvery, plan.EvalSamples, plan.EvalTokens = c.every(c.spec.Evals), 2, 200
	}
	if err := c.say(&engine.TrainEvent{Type: engine.TrainPlanned, Plan: plan}); err != nil {
		return err
	}
	if err := c.say(&engine.TrainEvent{Type: engine.TrainStarted}); err != nil {
		return err
	}
	c.best.loss = math.Inf(1)
	for step := c.saved + 1; step <= c.steps && !c.stopped; step++ {
		if err := c.step(step); err != nil {
			return err
		}
	}
	return c.say(&engine.TrainEvent{Type: engine.TrainFinished, Step: c.steps})
}

func (c *course) step(step int) error {
	events := []*engine.TrainEvent{{
		Type: engine.TrainStep, Step: step, SecondsLeft: float64(c.steps - step),
		Metrics: map[string]float64{"train/loss": 4 / float64(step), "train/learning_rate": c.spec.LearningRate, "train/grad_norm": 1},
	}}
	if c.spec.Evals > 0 && step%c.every(c.spec.Evals) == 0 {
		events = append(events, c.evaluated(step)...)
	}
	last := step == c.steps || c.stopped
	saves := last
	if n := c.every(c.spec.Checkpoints); last || step%n == 0 {
		saves = true
		dir := c.path(fmt.Sprintf("checkpoint-%d", step))
		if err := c.write(dir, c.spec.LoRA != nil, step); err != nil {
			return err
		}
		events = append(events, &engine.TrainEvent{Type: engine.TrainCheckpoint, Step: step, Checkpoint: &engine.Checkpoint{Step: step, Dir: dir, Final: last}})
	}
	if n := c.every(c.spec.Epochs); step%n == 0 {
		saves = true
		events = append(events, &engine.TrainEvent{Type: engine.TrainEpoch, Step: step, Epoch: step / n})
	}
	for _, e := range events {
		if err := c.say(e); err != nil {
			return err
		}
	}
	if !saves {
		return nil
	}
	return c.save(step)
}

// evaluated is an evaluation, and the end when it was one too many.
func (c *course) evaluated(step int) []*engine.TrainEvent {
	n := step / c.every(c.spec.Evals)
	loss := 3 / float64(n)
	if c.StopAfter > 0 && n > 1 {
		loss = 3 + float64(n) // worse from the second on
	}
	if loss < c.best.loss {
		c.best.step, c.best.loss = step, loss
	}
	list := []*engine.TrainEvent{{Type: engine.TrainEval, Step: step, Metrics: map[string]float64{"eval/loss": loss}}}
	if c.spec.EarlyStopping != nil && n == c.StopAfter {
		c.stopped, c.steps = true, step
		best := c.best.loss
		list = append(list, &engine.TrainEvent{Type: engine.TrainEarlyStopped, Step: step, BestStep: c.best.step, BestMetric: &best})
	}
	return list
}

func (c *course) path(name string) string { return filepath.Join(c.spec.WorkDir, name) }

// tokenized writes rows as a real trainer leaves them.
func (c *course) tokenized() (string, error) {
	dir := c.path("data")
	names := []string{"train"}
	if c.spec.EvalFile != nil {
		names = append(names, "eval")
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return "", err
		}
		row := []byte(`{"input_ids":[1,2,3],"attention_mask":[1,1,1],"labels":[-100,2,3]}` + "\n")
		if err := os.WriteFile(filepath.Join(dir, name, "snapshot.jsonl"), row, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// write makes a folder of weights whose content depends on the settings and step.
// What is not an adapter is a copy of the base with another card.
func (c *course) write(dir string, adapter bool, step int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	mark := fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(c.spec.Seed, c.spec.LearningRate, c.spec.TrainFile.SHA256, step))))
	if !adapter {
		if err := os.CopyFS(dir, os.DirFS(c.spec.ModelDir)); err != nil {
			return err
		}
		card := filepath.Join(dir, "README.md")
		if err := os.Remove(card); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link to a shared file
			return err
		}
		return os.WriteFile(card, []byte("merged "+mark), 0o600)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range map[string]string{"adapter_config.json": `{"peft_type":"LORA"}`, "adapter_model.safetensors": mark} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// results writes what a finished job leaves.
func (c *course) results() (*engine.TrainResult, error) {
	r := &engine.TrainResult{Steps: c.steps, Epochs: c.spec.Epochs, Tokens: 1000 * int64(c.spec.Epochs), ModelDir: c.path("model")}
	if c.stopped {
		best := c.best.loss
		r.EarlyStopped, r.BestStep, r.BestMetric, r.Epochs = true, c.best.step, &best, 0
	}
	if err := c.write(r.ModelDir, false, c.steps); err != nil {
		return nil, err
	}
	if q := c.spec.Quantization; q != "" && q != "none" {
		r.Quantized = &engine.ExportCheck{Prompts: 4, Positions: 40, MaxLogit: 0.1, MeanKL: 1e-3, TopMatches: 0.975}
	}
	if c.spec.LoRA != nil {
		r.AdapterDir = c.path("adapter")
		r.Export = &engine.ExportCheck{Prompts: 4, Positions: 40, MaxLogit: 1e-4, MeanKL: 1e-6, TopMatches: 1}
		if err := c.write(r.AdapterDir, true, c.steps); err != nil {
			return nil, err
		}
	}
	if c.Result != nil {
		c.Result(r)
	}
	return r, nil
}
