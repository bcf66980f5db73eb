package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/refexec"
	"athanor/engine/train/data"
	"athanor/engine/train/optim"
)

// quadratic is a model whose log-probability of token t is
// -1/2 * sum over k of (w[k] - t/(k+1))^2.
type quadratic struct {
	params []optim.Param
	calls  int
}

func newQuadratic(t testing.TB, rt compute.Runtime) *quadratic {
	q := &quadratic{}
	for i, start := range [][]float32{{0.5, -1, 2}, {0, 3}} {
		q.params = append(q.params, optim.Param{
			Name:  fmt.Sprint("w", i),
			Value: computetest.MustBuffer(t, rt, []int{len(start)}, start...),
			Grad:  computetest.MustBuffer(t, rt, []int{len(start)}, make([]float32, len(start))...),
			Decay: i == 0,
		})
	}
	return q
}

// each visits all weights with their targets for a token.
func (q *quadratic) each(token int32, visit func(p optim.Param, i int, off float64)) {
	k := 0
	for _, p := range q.params {
		for i, w := range computetest.Floats(p.Value) {
			k++
			visit(p, i, float64(w)-float64(token)/float64(k))
		}
	}
}

func (q *quadratic) ZeroGrad() {
	for _, p := range q.params {
		clear(p.Grad.Bytes())
	}
}

func (q *quadratic) Logprobs(ctx context.Context, b *data.Batch) ([]float32, error) {
	q.calls++
	out := make([]float32, len(b.Tokens))
	for i := range out {
		if b.Weights[i] != 0 {
			sum := 0.0
			q.each(b.Targets[i], func(_ optim.Param, _ int, off float64) { sum -= off * off / 2 })
			out[i] = float32(sum)
		}
	}
	return out, ctx.Err()
}

func (q *quadratic) Accumulate(ctx context.Context, b *data.Batch, weigh func([]float32) []float32) ([]float32, error) {
	logp, err := q.Logprobs(ctx, b)
	if err != nil {
		return nil, err
	}
	weights := b.Weights
	if weigh != nil {
		if weights = weigh(logp); len(weights) != len(logp) {
			return nil, errors.New("wrong number of weights")
		}
	}
	for i, w := range weights {
		if b.Weights[i] == 0 {
			continue
		}
		q.each(b.Targets[i], func(p optim.Param, k int, off float64) {
			at := p.Grad.Bytes()[4*k:]
			g := math.Float32frombits(binary.LittleEndian.Uint32(at)) + w*float32(off)
			binary.LittleEndian.PutUint32(at, math.Float32bits(g))
		})
	}
	return logp, nil
}

// tokens are batches of rows of three positions, the last one of which is
// padding in odd rows. With a moving dataset, targets change with the epoch.
type tokens struct {
	count, rows int
	shift       int32
	moving      bool
}

func (s tokens) Batches() int { return s.count }

func (s tokens) Batch(epoch, index int) (*data.Batch, error) {
	b := &data.Batch{Rows: s.rows, Length: 3}
	for row := range s.rows {
		for i := range b.Length {
			segment, weight := int32(0), float32(1)
			if row%2 == 1 && i == 2 {
				segment, weight = -1, 0
			}
			target := int32(row+index*s.rows)%7 + int32(i) + s.shift
			if s.moving {
				target += int32(epoch*3+index) % 5
			}
			b.Tokens, b.Targets = append(b.Tokens, target), append(b.Targets, target)
			b.Weights, b.Segments = append(b.Weights, weight), append(b.Segments, segment)
			b.Positions = append(b.Positions, int32(i))
		}
	}
	return b, nil
}

var errCrash = errors.New("crash")

// crashing is a disk that works for a number of operations and then no more,
// as a machine that loses power: what was not synced is half there.
type crashing struct {
	real     realDisk
	left     int // operations, negative = for ever
	unsynced map[string]bool
	used     int
}

func (d *crashing) use() error {
	if d.left == 0 {
		for path := range d.unsynced {
			if info, err := os.Stat(path); err == nil {
				_ = os.Truncate(path, info.Size()/2)
			}
		}
		clear(d.unsynced)
		return errCrash
	}
	d.left--
	d.used++
	return nil
}

func (d *crashing) Create(path string) (file, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	f, err := d.real.Create(path)
	d.unsynced[path] = true
	return &crashingFile{f, d, path}, err
}

func (d *crashing) Rename(from, to string) error {
	if err := d.use(); err != nil {
		return err
	}
	d.unsynced[to] = d.unsynced[from]
	if !d.unsynced[to] {
		delete(d.unsynced, to)
	}
	delete(d.unsynced, from)
	return d.real.Rename(from, to)
}

func (d *crashing) Remove(path string) error {
	if err := d.use(); err != nil {
		return err
	}
	return d.real.Remove(path)
}

func (d *crashing) MkdirAll(path string) error {
	if err := d.use(); err != nil {
		return err
	}
	return d.real.MkdirAll(path)
}

func (d *crashing) SyncDir(string) error { return d.use() }

type crashingFile struct {
	file
	d    *crashing
	path string
}

func (f *crashingFile) Write(b []byte) (int, error) {
	if err := f.d.use(); err != nil {
		return 0, err
	}
	return f.file.Write(b)
}

func (f *crashingFile) Sync() error {
	if err := f.d.use(); err != nil {
		return err
	}
	delete(f.d.unsynced, f.path)
	return nil // a real one would take the test's time and prove nothing
}

// scenario is a job on the quadratic model.
type scenario struct {
	spec        engine.TrainSpec
	train, eval batches
	saveEvery   time.Duration
}

func sftScenario() scenario {
	return scenario{
		spec: engine.TrainSpec{
			SFT: &engine.SFT{}, Epochs: 3, Checkpoints: 2, Evals: 3, GradientAccumulation: 2, LearningRate: 0.1,
			Schedule: engine.Schedule{Type: scheduleCosine, NumCycles: 0.5}, WarmupRatio: 0.2, MaxGradNorm: 1, WeightDecay: 0.1,
		},
		train: tokens{count: 5, rows: 2, moving: true}, eval: tokens{count: 2, rows: 3}, saveEvery: time.Hour,
	}
}

func dpoScenario() scenario {
	s := sftScenario()
	s.spec.SFT, s.spec.DPO = nil, &engine.DPO{Beta: 0.5, RPOAlpha: 0.2}
	s.train, s.eval = tokens{count: 5, rows: 4}, tokens{count: 1, rows: 2, shift: 1}
	return s
}

// stoppingScenario trains on tokens around 4 and evaluates on tokens around 1,
// so that the evaluation gets better first and then worse.
func stoppingScenario() scenario {
	s := sftScenario()
	s.spec.Epochs, s.spec.Evals, s.spec.LearningRate, s.spec.MaxGradNorm, s.spec.WarmupRatio = 10, 15, 0.25, 0, 0
	s.spec.Schedule = engine.Schedule{Type: scheduleLinear, MinLRRatio: 1}
	s.spec.EarlyStopping = &engine.EarlyStopping{Patience: 2, WarmupEvals: 1}
	s.train, s.eval = tokens{count: 5, rows: 2, shift: 4}, tokens{count: 1, rows: 2, shift: 0}
	return s
}

// outcome is what one process of a job leaves.
type outcome struct {
	weights []byte
	at      state
	events  []string
	model   *quadratic
}

// process runs a scenario in dir as one process would: from what is there.
func process(ctx context.Context, t testing.TB, s scenario, dir string, d disk, emit func(*engine.TrainEvent) error) (outcome, error) {
	t.Helper()
	rt := refexec.New()
	m := newQuadratic(t, rt)
	o, err := optim.New(rt, m.params, optim.Options{WeightDecay: s.spec.WeightDecay})
	if err != nil {
		t.Fatal(err)
	}
	out := outcome{model: m}
	clock := time.Unix(0, 0)
	now := func() time.Time { clock = clock.Add(time.Second); return clock }
	objective, err := newObjective(ctx, &s.spec, m, d, filepath.Join(dir, "references.bin"), "key", []batches{s.train, s.eval}, s.saveEvery, now)
	if err != nil {
		return out, err
	}
	st, err := openStore(d, filepath.Join(dir, "state"), "key")
	if err != nil {
		return out, err
	}
	l := &loop{
		spec: &s.spec, times: newTimetable(&s.spec, s.train.Batches()), model: m, optimizer: o, objective: objective,
		train: s.train, eval: s.eval, store: st, checkpoints: filepath.Join(dir, "checkpoints"),
		export: func(_ context.Context, to string) error { return exportFake(m, to) },
		emit: func(e *engine.TrainEvent) error {
			if err := emit(e); err != nil {
				return err
			}
			out.events = append(out.events, describe(t, dir, e))
			return nil
		},
		now: now, saveEvery: s.saveEvery,
	}
	if err := l.restore(); err != nil {
		return out, err
	}
	err = l.run(ctx)
	out.at = l.at
	out.weights = m.bytes()
	return out, err
}

func (q *quadratic) bytes() (raw []byte) {
	for _, p := range q.params {
		raw = append(raw, p.Value.Bytes()...)
	}
	return raw
}

func exportFake(m *quadratic, to string) error {
	if err := os.MkdirAll(to+partialSuffix, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to+partialSuffix, "weights"), m.bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(to+partialSuffix, to)
}

// describe is an event without what may differ between runs.
func describe(t testing.TB, dir string, e *engine.TrainEvent) string {
	t.Helper()
	c := *e
	c.SecondsLeft = 0
	c.Metrics = map[string]float64{}
	for k, v := range e.Metrics {
		if k != "train/tokens_per_second" {
			c.Metrics[k] = v
		}
	}
	if e.Checkpoint != nil {
		p := *e.Checkpoint
		rel, err := filepath.Rel(dir, p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		p.Dir = rel
		c.Checkpoint = &p
	}
	raw, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// folder maps the files below dir to their content.
func folder(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		out[path[len(dir):]] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func accept(*engine.TrainEvent) error { return nil }

func calm() *crashing { return &crashing{left: -1, unsynced: map[string]bool{}} }
