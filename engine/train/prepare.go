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

// prepare opens the executor and decides the plan of a fresh job.
func (j *job) prepare(ctx context.Context) error {
	// The program for the whole model knows no loss that depends on its results.
	threads, layered, resumed := j.spec.Threads, j.spec.DPO != nil, j.plan != nil
	if resumed {
		threads, layered = j.plan.Threads, layered || j.plan.Layered
	}
	if err := j.openExecutor(ctx, exec.Config{Layered: layered, Threads: threads}); err != nil {
		return err
	}
	budget := j.budget()
	if !resumed {
		return j.decide(budget)
	}
	if layered { // as a whole, a batch takes what it takes
		j.choose(j.plan.BatchSize, budget)
	}
	if err := j.mustFit(j.plan.BatchSize, budget); err != nil {
		// It did fit once, and its batches cannot change any more.
		return &engine.BusyError{Reason: err.Error()}
	}
	return nil
}

// budget is the memory that the job may use, in bytes; 0 where that is unknown.
func (j *job) budget() int64 {
	if j.spec.MemoryBytes != 0 {
		return j.spec.MemoryBytes
	}
	return availableMemory() / 2
}

// decide makes and saves the plan: the batch size by what its smallest form
// takes, and then the fastest way for it.
func (j *job) decide(budget int64) error {
	p := &plan{Key: j.key, BatchSize: j.spec.BatchSize, Threads: j.spec.Threads}
	if p.BatchSize == 0 {
		s, err := j.sampler(j.train, true, 1)
		if err != nil {
			return err
		}
		p.BatchSize = max(1, chooseBatch(s.Rows(), max(1, j.spec.GradientAccumulation), func(batch int) bool {
			return budget == 0 || j.least(batch) <= budget
		}))
	}
	j.choose(p.BatchSize, budget)
	p.Layered = !j.executor.Info().Whole
	if err := j.mustFit(p.BatchSize, budget); err != nil {
		return err
	}
	j.plan = p
	return p.save(j.disk, j.spec.WorkDir)
}

// choose lets the executor take the way that fits.
func (j *job) choose(batch int, budget int64) {
	room := int64(0)
	if budget > 0 {
		room = max(1, budget-j.optimizerBytes())
	}
	rows, length := j.shape(batch)
	j.executor.Choose(rows, length, room)
}

// openExecutor opens the model as the spec wants it.
func (j *job) openExecutor(ctx context.Context, c exec.Config) error {
	c.ModelDir, c.LoRA, c.Seed, c.BaseFormat = j.spec.ModelDir, j.spec.LoRA, j.spec.Seed, j.spec.BaseFormat
	var err error
	if j.spec.AdapterDir != "" {
		if c.Adapter, err = peft.Read(j.spec.AdapterDir); err != nil {
			return err
		}
	}
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
	most := int64(0) // samples, of which no set makes more rows
	for _, s := range sets {
		most, length = max(most, samples(s)), max(length, s.Longest())
		if j.spec.Packing && !s.Preference() && s.Format() != data.FormatTokens {
			length = max(length, j.packedLength(s))
		}
	}
	rows = int(min(int64(batch), most))
	if j.spec.DPO != nil {
		rows *= 2
	}
	return rows, length
}

// packedLength bounds the rows of a packed set.
func (j *job) packedLength(s *data.Set) int {
	length := min(data.LongestPacked, j.context)
	if most := j.spec.MaxSeqLength; most > 0 {
		length = min(length, most)
	}
	return int(min(int64(length), s.Tokens()))
}

// need is the memory of the job with a batch size in the chosen way, in bytes.
func (j *job) need(batch int) int64 { return j.executor.Estimate(j.shape(batch)) + j.optimizerBytes() }

// least is the same in the smallest way.
func (j *job) least(batch int) int64 { return j.executor.Least(j.shape(batch)) + j.optimizerBytes() }

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
