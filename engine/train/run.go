package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/export"
	"athanor/engine/family"
	"athanor/engine/peft"
	"athanor/engine/train/data"
	"athanor/engine/train/exec"
	"athanor/engine/train/optim"
	"athanor/engine/train/selftest"
)

// saveEvery is how often a state is saved between evaluations and checkpoints:
// what a crash costs at most.
const saveEvery = time.Minute

// Run trains as engine.Trainer does, in this process and on rt. A runtime that
// fails the self-test of gradients is refused with an error that wraps
// selftest.ErrWrong.
//
// Early stopping selects the best weights when its rule ends the job; a job
// that runs to its end keeps the weights of its last step.
func Run(ctx context.Context, rt compute.Runtime, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	j := &job{rt: rt, spec: spec, emit: emit, selftest: selftest.Run, disk: realDisk{}, now: time.Now, saveEvery: saveEvery}
	return j.runAndClose(ctx)
}

func (j *job) runAndClose(ctx context.Context) (*engine.TrainResult, error) {
	result, err := j.run(ctx)
	err = errors.Join(err, j.close())
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// job is one call of Run.
type job struct {
	rt        compute.Runtime
	spec      *engine.TrainSpec
	emit      func(*engine.TrainEvent) error
	selftest  func(context.Context, compute.Runtime) error // of the gradients
	disk      disk
	now       func() time.Time
	saveEvery time.Duration

	context     int // tokens that the model takes
	key         string
	plan        *plan
	train, eval *data.Set // eval is nil without evaluations
	executor    *exec.Executor
	optimizer   *optim.AdamW
}

func (j *job) run(ctx context.Context) (*engine.TrainResult, error) {
	if err := validate(j.spec); err != nil {
		return nil, err
	}
	if err := j.selftest(ctx, j.rt); err != nil {
		return nil, err
	}
	if err := j.open(); err != nil {
		return nil, err
	}
	if err := j.tokenize(ctx); err != nil {
		return nil, err
	}
	if err := j.prepare(ctx); err != nil {
		return nil, err
	}
	l, err := j.loop(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	return j.finish(ctx, l)
}

func (j *job) close() error {
	var errs []error
	if j.optimizer != nil {
		errs = append(errs, j.optimizer.Close())
	}
	if j.executor != nil {
		errs = append(errs, j.executor.Close())
	}
	for _, s := range []*data.Set{j.train, j.eval} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	j.optimizer, j.executor, j.train, j.eval = nil, nil, nil, nil
	return errors.Join(errs...)
}

// path is below the work directory.
func (j *job) path(parts ...string) string {
	return filepath.Join(append([]string{j.spec.WorkDir}, parts...)...)
}

// open looks at the model and at what an earlier process left.
func (j *job) open() error {
	f, err := family.Open(os.DirFS(j.spec.ModelDir))
	if err != nil {
		return err
	}
	d := f.Decoder()
	j.context = d.ContextLength
	if j.spec.MaxSeqLength > j.context {
		return refuse("max_seq_length", "must be at most %d, the context of the model", j.context)
	}
	if err := j.disk.MkdirAll(j.spec.WorkDir); err != nil {
		return fmt.Errorf("make the work directory: %w", err)
	}
	if j.key, err = jobKey(j.spec); err != nil {
		return err
	}
	j.plan, err = loadPlan(j.spec.WorkDir, j.key)
	return err
}

// tokenize makes the datasets or opens what was made before.
func (j *job) tokenize(ctx context.Context) (err error) {
	if j.train, err = j.dataset(ctx, j.spec.TrainFile, "training", "train"); err != nil {
		return err
	}
	if j.spec.Evals > 0 {
		j.eval, err = j.dataset(ctx, *j.spec.EvalFile, "validation", "eval")
	}
	return err
}

func (j *job) dataset(ctx context.Context, file engine.DataFile, name, folder string) (*data.Set, error) {
	s := data.Spec{
		File: file, Name: name, ModelDir: j.spec.ModelDir, Preference: j.spec.DPO != nil, MaxSeqLength: j.spec.MaxSeqLength,
	}
	if s.MaxSeqLength == 0 {
		s.MaxSeqLength = j.context
	}
	if j.spec.SFT != nil {
		s.TrainOnInputs = j.spec.SFT.TrainOnInputs
	}
	if err := j.disk.MkdirAll(j.path("data")); err != nil {
		return nil, fmt.Errorf("make the folder of the datasets: %w", err)
	}
	return data.Tokenize(ctx, s, j.path("data", folder), nil)
}

// sampler orders the batches of a set. Evaluation goes through the file as it
// is.
func (j *job) sampler(s *data.Set, shuffle bool, batch int) (*data.Sampler, error) {
	length := j.spec.MaxSeqLength
	if length == 0 {
		length = j.context
	}
	return data.NewSampler(s, data.Options{
		Packing: j.spec.Packing, RowLength: length, BatchRows: batch, Seed: j.spec.Seed, Shuffle: shuffle,
	})
}

// loop puts together what makes the steps, and takes up the saved state.
func (j *job) loop(ctx context.Context) (*loop, error) {
	train, err := j.sampler(j.train, true, j.plan.BatchSize)
	if err != nil {
		return nil, err
	}
	l := &loop{
		spec: j.spec, times: newTimetable(j.spec, train.Batches()), model: j.executor, train: train, checkpoints: j.path("checkpoints"),
		export: j.checkpoint, emit: j.emit, now: j.now, saveEvery: j.saveEvery,
	}
	sources := []batches{train}
	if j.eval != nil {
		if l.eval, err = j.sampler(j.eval, false, j.plan.BatchSize); err != nil {
			return nil, err
		}
		sources = append(sources, l.eval)
	}
	if err := j.disk.MkdirAll(l.checkpoints); err != nil {
		return nil, fmt.Errorf("make the folder of checkpoints: %w", err)
	}
	// The executor has the weights of the start until a state is restored.
	l.objective, err = newObjective(ctx, j.spec, j.executor, j.disk, j.path("references.bin"), j.key, sources, j.saveEvery, j.now)
	if err != nil {
		return nil, err
	}
	if j.optimizer, err = optim.New(j.rt, j.params(), optim.Options{WeightDecay: j.spec.WeightDecay, Threads: j.plan.Threads}); err != nil {
		return nil, err
	}
	l.optimizer = j.optimizer
	if l.store, err = openStore(j.disk, j.path("state"), j.key); err != nil {
		return nil, err
	}
	if err := l.restore(); err != nil {
		return nil, err
	}
	return l, j.announce(l)
}

func (j *job) params() []optim.Param {
	var list []optim.Param
	for _, p := range j.executor.Params() {
		list = append(list, optim.Param{Name: p.Name, Value: p.Value, Grad: p.Grad, Decay: p.Decay})
	}
	return list
}

// announce reports the plan.
func (j *job) announce(l *loop) error {
	info := j.executor.Info()
	p := &engine.TrainPlan{
		TrainSamples: samples(j.train), TrainTokens: j.train.Tokens(), Truncated: j.train.Truncated(),
		Steps: l.times.steps, EvalEvery: l.times.evalEvery(), BatchSize: j.plan.BatchSize, MaxSeqLength: j.spec.MaxSeqLength,
		Parameters: info.Parameters, Trainable: info.Trainable, MemoryBytes: j.need(j.plan.BatchSize),
		TokenizedDir: j.path("data"), ResumedAtStep: l.at.Step,
	}
	if p.MaxSeqLength == 0 {
		p.MaxSeqLength = j.context
	}
	if j.eval != nil {
		p.EvalSamples, p.EvalTokens = samples(j.eval), j.eval.Tokens()
	}
	message := fmt.Sprintf("%d samples make %d steps of %d", p.TrainSamples, p.Steps, p.BatchSize*l.times.accumulation)
	if err := j.emit(&engine.TrainEvent{Type: engine.TrainPlanned, Step: l.at.Step, Message: message, Plan: p}); err != nil {
		return err
	}
	for _, w := range j.warnings(&l.times) {
		if err := j.emit(&engine.TrainEvent{Type: engine.TrainWarning, Step: l.at.Step, Message: w}); err != nil {
			return err
		}
	}
	return nil
}

// warnings say what became of the data and the plan that the user may not expect.
func (j *job) warnings(t *timetable) (list []string) {
	for _, set := range []struct {
		name string
		*data.Set
	}{{"training", j.train}, {"validation", j.eval}} {
		if set.Set == nil {
			continue
		}
		out := set.LeftOut()
		all := samples(set.Set) + out
		if out > 0 {
			list = append(list, fmt.Sprintf("%d of %d samples of the %s file were left out because their answer lies behind max_seq_length", out, all, set.name))
		}
		if cut := set.Truncated() - out; cut > 0 {
			list = append(list, fmt.Sprintf("%d of %d samples of the %s file were cut at max_seq_length", cut, all, set.name))
		}
	}
	for _, c := range []struct {
		what      string
		is, asked int
	}{{"evaluations", len(t.evals), j.spec.Evals}, {"checkpoints", len(t.checkpoints), j.spec.Checkpoints}} {
		if c.is < c.asked {
			list = append(list, fmt.Sprintf("The job has %d steps, so that there are %d %s instead of %d", t.steps, c.is, c.what, c.asked))
		}
	}
	return list
}

// samples counts what the file has: a pair is one.
func samples(s *data.Set) int64 {
	if s.Preference() {
		return int64(s.Len() / 2)
	}
	return int64(s.Len())
}

// adapter is the trained adapter as it is now.
func (j *job) adapter() *peft.Adapter {
	a := j.executor.Adapter()
	if a != nil {
		a.Config.BaseModel = j.spec.ModelName
	}
	return a
}

// checkpoint writes the weights as they are now.
func (j *job) checkpoint(ctx context.Context, dir string) error {
	if a := j.adapter(); a != nil {
		return export.Adapter(dir, a)
	}
	return j.exportFull(ctx, dir)
}

// probes is how many samples the forms of the result are compared on.
const probes = 8

// probeRows are the tokens of the first samples that the model is judged by.
func (j *job) probeRows() ([][]int32, error) {
	set := j.train
	if j.eval != nil {
		set = j.eval
	}
	var rows [][]int32
	for i := range min(probes, set.Len()) {
		s, err := set.Sample(i)
		if err != nil {
			return nil, err
		}
		rows = append(rows, slices.Clone(s.Tokens))
	}
	return rows, nil
}
