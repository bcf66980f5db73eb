package train

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"athanor/engine"
	"athanor/engine/peft"
	"athanor/engine/train/data"
	"athanor/engine/train/exec"
)

// prepare decides the plan of a fresh job and opens the executor.
func (j *job) prepare(ctx context.Context) error {
	budget := j.spec.MemoryBytes
	if budget == 0 {
		budget = availableMemory() / 2
	}
	resumed := j.plan != nil
	if !resumed {
		p, err := j.decide(ctx, budget)
		if err != nil {
			return err
		}
		if err := p.save(j.disk, j.spec.WorkDir); err != nil {
			return err
		}
		j.plan = p
	}
	if j.executor == nil { // else it is as the plan wants it
		if err := j.openExecutor(ctx, exec.Config{Layered: j.plan.Layered, Threads: j.plan.Threads}); err != nil {
			return err
		}
	}
	err := j.mustFit(j.plan.BatchSize, budget)
	if err != nil && resumed {
		// It did fit once, and its batches cannot change any more.
		return &engine.BusyError{Reason: err.Error()}
	}
	return err
}

// decide makes the plan. Layer by layer needs the least memory, so that it says
// which batch fits; the whole model at once is taken where that fits too.
func (j *job) decide(ctx context.Context, budget int64) (*plan, error) {
	p := &plan{Key: j.key, BatchSize: j.spec.BatchSize, Threads: j.spec.Threads}
	if err := j.openExecutor(ctx, exec.Config{Layered: true, Threads: p.Threads}); err != nil {
		return nil, err
	}
	if p.BatchSize == 0 {
		s, err := j.sampler(j.train, true, 1)
		if err != nil {
			return nil, err
		}
		p.BatchSize = chooseBatch(s.Rows(), max(1, j.spec.GradientAccumulation), func(batch int) bool {
			return budget == 0 || j.need(batch) <= budget
		})
	}
	fits := p.BatchSize > 0 && j.mustFit(p.BatchSize, budget) == nil
	rows, length := j.shape(max(1, p.BatchSize))
	whole := exec.Config{Threads: p.Threads, MaxTokens: rows * length, MaxLength: length}
	if budget > 0 {
		whole.MemoryBytes = max(1, budget-j.optimizerBytes())
	}
	if err := j.openExecutor(ctx, whole); err != nil {
		return nil, err
	}
	p.Layered = !j.executor.Info().Whole
	if p.BatchSize = max(1, p.BatchSize); !fits {
		// A small model may fit as a whole only.
		if err := j.mustFit(p.BatchSize, budget); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// openExecutor opens the model in the given way, instead of what is open.
func (j *job) openExecutor(ctx context.Context, c exec.Config) error {
	if j.executor != nil {
		err := j.executor.Close()
		if j.executor = nil; err != nil {
			return err
		}
	}
	c.ModelDir, c.LoRA, c.Seed, c.BaseFormat = j.spec.ModelDir, j.spec.LoRA, j.spec.Seed, j.spec.BaseFormat
	if j.spec.AdapterDir != "" {
		var err error
		if c.Adapter, err = peft.Read(j.spec.AdapterDir); err != nil {
			return err
		}
	}
	var err error
	j.executor, err = exec.New(ctx, j.rt, c)
	return err
}

// optimizerPieces is what a piece of the optimiser needs while it is updated.
const optimizerPieces = 64 << 20

// optimizerBytes is what the optimiser keeps: two moments of each value.
func (j *job) optimizerBytes() int64 { return 8*j.executor.Info().Trainable + optimizerPieces }

// shape is the size of the largest pass of a batch size.
func (j *job) shape(batch int) (rows, length int) {
	sets := []*data.Set{j.train}
	if j.eval != nil {
		sets = append(sets, j.eval)
	}
	for _, s := range sets {
		length = max(length, s.Longest())
		if j.spec.Packing && !s.Preference() && s.Format() != data.FormatTokens {
			length = max(length, j.packedLength(s))
		}
	}
	if j.spec.DPO != nil {
		batch *= 2
	}
	return batch, length
}

// packedLength bounds the rows of a packed set.
func (j *job) packedLength(s *data.Set) int {
	length := j.spec.MaxSeqLength
	if length == 0 {
		length = min(packedRow, j.context)
	}
	return int(min(int64(length), s.Tokens()))
}

// need is the memory of the job with a batch size, in bytes.
func (j *job) need(batch int) int64 { return j.executor.Estimate(j.shape(batch)) + j.optimizerBytes() }

// mustFit compares the need with a budget, 0 being none.
func (j *job) mustFit(batch int, budget int64) error {
	need := j.need(batch)
	if budget == 0 || need <= budget {
		return nil
	}
	rows, length := j.shape(batch)
	return fmt.Errorf("%w: %d rows of %d tokens take %d MiB, the job may use %d MiB",
		engine.ErrNoMemory, rows, length, need>>20, budget>>20)
}

// availableMemory is what the system could give without swapping, in bytes;
// 0 where it does not say.
func availableMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}
