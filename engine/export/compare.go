package export

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
	"athanor/engine/llm"
	"athanor/engine/tensor"
)

// Form is a form in which a model can be served.
type Form struct {
	Dir          string           // model in Hugging Face layout
	Adapter      *engine.Adapter  // applied to it, nil for none
	Quantization llm.Quantization // "" = none, float32
}

// CompareOptions say where and with what Compare works.
type CompareOptions struct {
	TempDir string // for converted weights and logits, removed afterwards; about the size of the model in float32
	Threads int    // 0 = physical cores
}

// Bounds of a comparison: what is beyond them is left out.
const (
	maxPositions   = 1024
	maxLogitsBytes = 1 << 30 // on disk
)

// Beyond these differences a comparison warns. A divergence of 0.05 nats per
// position costs about 5 percent of perplexity; where one position in twenty
// has another most likely token, every second sentence of a greedy answer goes
// another way. Users would notice either. On the embedded model, rounding
// merged weights to float16 gives 2e-7 nats and the same tokens everywhere, int8
// 8e-4 nats and again the same tokens; int4 in blocks of 32 gives 0.05 nats and
// the same token at 87% of the positions, which warns.
const (
	warnKL  = 0.05
	warnTop = 0.95
)

// Compare runs two forms of a model over the same rows of tokens, of which only
// one is in memory at a time, and compares the logits at every position: b
// against a, from which the divergence is counted. Rows are cut at the model's
// context; those beyond 1,024 positions are not used.
func Compare(ctx context.Context, rt compute.Runtime, a, b Form, rows [][]int32, opt CompareOptions) (*engine.ExportCheck, error) {
	dir, err := os.MkdirTemp(opt.TempDir, "compare-")
	if err != nil {
		return nil, fmt.Errorf("compare two forms: %w", err)
	}
	defer os.RemoveAll(dir)
	check, err := compare(ctx, rt, dir, a, b, rows, opt.Threads)
	if err != nil {
		return nil, fmt.Errorf("compare two forms: %w", err)
	}
	return check, nil
}

func compare(ctx context.Context, rt compute.Runtime, dir string, a, b Form, rows [][]int32, threads int) (*engine.ExportCheck, error) {
	fam, err := family.Open(os.DirFS(a.Dir))
	if err != nil {
		return nil, err
	}
	d := fam.Decoder()
	rows = probe(rows, d.ContextLength, min(maxPositions, maxLogitsBytes/4/d.Vocabulary))
	if len(rows) == 0 {
		return nil, errors.New("there are no tokens to compare on")
	}
	file, err := os.CreateTemp(dir, "logits-")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	w := bufio.NewWriterSize(file, 1<<20)
	raw := make([]byte, 4*d.Vocabulary)
	err = run(ctx, rt, dir, a, rows, threads, func(logits []float32) error {
		if err := tensor.PutFloat32s(raw, logits, tensor.F32); err != nil {
			return err
		}
		_, err := w.Write(raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(file, 1<<20)
	sum := sums{first: make([]float32, d.Vocabulary)}
	err = run(ctx, rt, dir, b, rows, threads, func(logits []float32) error {
		if len(logits) != d.Vocabulary {
			return fmt.Errorf("the vocabularies have %d and %d tokens", d.Vocabulary, len(logits))
		}
		if err := binary.Read(r, binary.LittleEndian, sum.first); err != nil {
			return err
		}
		return sum.add(logits)
	})
	if err != nil {
		return nil, err
	}
	return sum.check(len(rows)), nil
}

// probe is as much of rows as is compared.
func probe(rows [][]int32, context, positions int) [][]int32 {
	var out [][]int32
	for _, row := range rows {
		if row = row[:min(len(row), context, positions)]; len(row) > 0 {
			out = append(out, row)
			positions -= len(row)
		}
	}
	return out
}

// run opens a form and calls each with the logits of every position.
func run(ctx context.Context, rt compute.Runtime, dir string, f Form, rows [][]int32, threads int, each func([]float32) error) error {
	cache, err := os.MkdirTemp(dir, "cache-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	longest := 0
	for _, row := range rows {
		longest = max(longest, len(row))
	}
	quantization := f.Quantization
	if quantization == "" {
		quantization = family.None
	}
	s, err := llm.OpenScorer(ctx, rt, llm.Options{
		Dir: f.Dir, Quantization: quantization, CacheDir: cache, Threads: threads, Context: longest, Adapters: f.Adapter != nil,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err = s.Logits(ctx, row, f.Adapter, func(_ int, logits []float32) error { return each(logits) }); err != nil {
			break
		}
	}
	return errors.Join(err, s.Close())
}

// sums adds positions up.
type sums struct {
	first     []float32 // logits of form a at the position
	positions int
	maxLogit  float64
	kl        float64
	same      int
}

func (s *sums) add(second []float32) error {
	p, q := logSum(s.first), logSum(second)
	kl, top1, top2 := 0.0, 0, 0
	for i, x := range s.first {
		y := second[i]
		s.maxLogit = max(s.maxLogit, math.Abs(float64(x)-float64(y)))
		lp, lq := float64(x)-p, float64(y)-q
		kl += math.Exp(lp) * (lp - lq)
		if x > s.first[top1] {
			top1 = i
		}
		if y > second[top2] {
			top2 = i
		}
	}
	if math.IsNaN(kl) || math.IsInf(kl, 0) {
		return fmt.Errorf("position %d has logits that are not finite", s.positions)
	}
	s.positions++
	s.kl += max(kl, 0) // rounding can take it below
	if top1 == top2 {
		s.same++
	}
	return nil
}

// logSum is the logarithm of the sum of the exponentials.
func logSum(logits []float32) float64 {
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

func (s *sums) check(prompts int) *engine.ExportCheck {
	n := float64(s.positions)
	c := &engine.ExportCheck{Prompts: prompts, Positions: s.positions, MaxLogit: s.maxLogit, MeanKL: s.kl / n, TopMatches: float64(s.same) / n}
	if c.MeanKL > warnKL || c.TopMatches < warnTop {
		c.Warning = fmt.Sprintf("it differs from the trained one by %.3g nats per position (up to %g is expected), the same most likely token at %.1f%% of %d positions (%g%% is expected)",
			c.MeanKL, warnKL, 100*c.TopMatches, c.Positions, 100*warnTop)
	}
	return c
}
