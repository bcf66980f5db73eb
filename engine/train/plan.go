package train

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"athanor/engine"
)

// plan is what is decided once in the life of a job and kept in its work
// directory, because a machine may have other things to offer later and the
// result must not change with them.
type plan struct {
	Key       string `json:"key"`        // of the spec and of the files that it names
	BatchSize int    `json:"batch_size"` // rows, or pairs, of a pass
	Layered   bool   `json:"layered"`    // how exec.Executor computes
	Threads   int    `json:"threads"`
}

const planFile = "plan.json"

// loadPlan reads the plan of a work directory; nil when there is none. One of
// another job is an error.
func loadPlan(workDir, key string) (*plan, error) {
	raw, err := os.ReadFile(filepath.Join(workDir, planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	p := &plan{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if p.Key != key {
		return nil, fmt.Errorf("the work directory %s belongs to a job with other parameters", workDir)
	}
	return p, nil
}

// save writes the plan, atomically and durably.
func (p *plan) save(d disk, workDir string) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(workDir, planFile)
	f, err := d.Create(path + partialSuffix)
	if err == nil {
		_, err = f.Write(raw)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = d.Rename(path+partialSuffix, path)
	}
	if err == nil {
		err = d.SyncDir(workDir)
	}
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// jobKey names everything that decides the result: the spec without what
// belongs to the place and the moment, the identities of the datasets, and the
// base model and adapter by their configuration and the sizes of their weights.
func jobKey(s *engine.TrainSpec) (string, error) {
	c := *s
	c.Job, c.ModelName, c.ModelDir, c.WorkDir, c.Device = "", "", "", "", ""
	c.Threads, c.MemoryBytes, c.Quantization = 0, 0, ""
	c.TrainFile.Path = ""
	if s.EvalFile != nil {
		e := *s.EvalFile
		e.Path = ""
		c.EvalFile = &e
	}
	if s.AdapterDir != "" {
		c.AdapterDir = "given"
	}
	raw, err := json.Marshal(&c)
	if err != nil {
		return "", fmt.Errorf("name the job: %w", err)
	}
	d := digest{sha256.New()}
	d.add("spec", raw)
	for _, dir := range []string{s.ModelDir, s.AdapterDir} {
		if dir == "" {
			continue
		}
		if err := d.addModel(dir); err != nil {
			return "", fmt.Errorf("name the job: %w", err)
		}
	}
	return hex.EncodeToString(d.h.Sum(nil)), nil
}

// addModel adds the configuration of a folder and the names and sizes of its
// weights.
func (d digest) addModel(dir string) error {
	for _, name := range []string{"config.json", "adapter_config.json"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		d.add(name, raw)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		d.add(filepath.Base(path), fmt.Append(nil, info.Size()))
	}
	return nil
}

// Bounds of the batch size that is chosen where the spec leaves it open.
const (
	maxChosenBatch  = 32
	minStepsOfEpoch = 8
)

// LargestBatch is the largest batch size that is chosen for an epoch of so many rows,
// where memory allows it: at most 32, beyond which a step on one machine gains
// nothing, and so small that an epoch has at least 8 steps where the data allows,
// because a model that is updated three times learns little.
func LargestBatch(rows, accumulation int) int {
	return min(maxChosenBatch, max(1, rows/(minStepsOfEpoch*max(1, accumulation))))
}

// chooseBatch is the largest batch size up to LargestBatch that fits. fits must be
// true up to some size and false above; 0 means that not even one row fits.
func chooseBatch(rows, accumulation int, fits func(batch int) bool) int {
	low, high := 0, LargestBatch(rows, accumulation)
	for low < high {
		middle := (low + high + 1) / 2
		if fits(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// timetable is the steps of a job.
type timetable struct {
	batches      int // of an epoch
	accumulation int // batches of a step
	epoch        int // steps of an epoch
	steps        int // of the job
	evals        map[int]bool
	checkpoints  map[int]bool
}

func newTimetable(s *engine.TrainSpec, batches int) timetable {
	t := timetable{batches: batches, accumulation: max(1, s.GradientAccumulation)}
	t.epoch = (batches + t.accumulation - 1) / t.accumulation
	t.steps = t.epoch * s.Epochs
	t.evals, t.checkpoints = spread(s.Evals, t.steps), spread(s.Checkpoints, t.steps)
	return t
}

// passes are the batches of a step: [first, last) of an epoch from 0.
func (t timetable) passes(step int) (epoch, first, last int) {
	epoch, first = (step-1)/t.epoch, (step-1)%t.epoch*t.accumulation
	return epoch, first, min(first+t.accumulation, t.batches)
}

// evalEvery is the distance of evaluations, 0 = none.
func (t timetable) evalEvery() int {
	if len(t.evals) == 0 {
		return 0
	}
	return t.steps / len(t.evals)
}
