package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"athanor/engine"
	"athanor/engine/llm"
	"athanor/engine/onnx"
	"athanor/engine/ort"
)

const (
	prompt   = 512  // tokens that are read before an answer begins
	capacity = 1024 // positions of a row
)

func convert(f flags, format string) (result, error) {
	begin := time.Now()
	m, done, err := load(f, format)
	if err != nil {
		return result{}, err
	}
	return result{Converted: time.Since(begin)}, done(m)
}

// load opens the model; the returned function closes it.
func load(f flags, format string) (*llm.Model, func(*llm.Model) error, error) {
	quantization, block, err := blockOf(format)
	if err != nil {
		return nil, nil, err
	}
	path, err := ort.Find(f.library)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; scripts/get-onnxruntime fetches it", err)
	}
	rt, err := ort.Open(ort.Options{Library: path})
	if err != nil {
		return nil, nil, err
	}
	m, err := llm.Load(context.Background(), rt, llm.Options{
		Name: format, Dir: f.model(), Quantization: llm.Quantization(quantization), BlockSize: block,
		CacheDir: f.cache(format), Threads: f.threads, Context: capacity, Slots: f.rows, Now: time.Now,
	})
	if err != nil {
		return nil, nil, err
	}
	return m, func(m *llm.Model) error {
		if err := m.Close(); err != nil {
			return err
		}
		return rt.Close()
	}, nil
}

// serve measures a model that has been converted before.
func serve(f flags, format string) (r result, err error) {
	if r.Weights, r.Packed, err = traffic(f.cache(format)); err != nil {
		return r, err
	}
	r.Bandwidth = bandwidth(f.threads)
	begin := time.Now()
	m, done, err := load(f, format)
	if err != nil {
		return r, err
	}
	r.Load = time.Since(begin)
	status := memory()
	fmt.Fprintf(os.Stderr, "%s: loaded in %.2f s, %.1f GB/s\n", format, r.Load.Seconds(), r.Bandwidth/1e9)
	r.RSS, r.Anon = status["VmRSS"], status["RssAnon"]
	for range f.repeat {
		v, e := prefill(m)
		r.Prefill, err = max(r.Prefill, v), firstError(err, e)
	}
	fmt.Fprintf(os.Stderr, "%s: %.0f prompt tokens/s\n", format, r.Prefill)
	if err == nil {
		r.Decode, err = decode(m, f.counts(), f.tokens, engine.Sampling{Temperature: new(float64)})
	}
	fmt.Fprintln(os.Stderr, format+": tokens/s by rows:", r.Decode)
	if err == nil {
		one, most := 1.0, 0.95
		sampled, e := decode(m, []int{1}, f.tokens, engine.Sampling{Temperature: &one, TopP: &most})
		r.Sampled, err = sampled[1], e
	}
	r.Peak = memory()["VmHWM"]
	r.Bandwidth = max(r.Bandwidth, bandwidth(f.threads))
	return r, firstError(err, done(m))
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// text is a prompt of n tokens.
func text(n int) string { return strings.Repeat("benchmark ", n/10+1)[:n] }

// prefill is prompt tokens per second, up to the first token of the answer.
func prefill(m *llm.Model) (float64, error) {
	times, err := answer(m, 1, engine.Sampling{Temperature: new(float64)})
	if err != nil {
		return 0, err
	}
	return prompt / times[1].Sub(times[0]).Seconds(), nil
}

// decode is the tokens per second of each number of rows, which fall: so many
// answers begin, and some end early to leave the next number.
func decode(m *llm.Model, counts []int, tokens int, how engine.Sampling) (map[int]float64, error) {
	n := counts[0]
	all, errs := make([][]time.Time, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		length := n // while others' prompts are read
		for _, c := range counts {
			if i < c {
				length += tokens
			}
		}
		wg.Go(func() { all[i], errs[i] = answer(m, length, how) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	rates := map[int]float64{}
	var from time.Time
	for _, times := range all {
		from = latest(from, times[1])
	}
	for _, c := range counts {
		last := all[c-1][len(all[c-1])-1] // this one and others end here
		rates[c] = float64(c) * fastest(all[0], from, last)
		from = last
	}
	return rates, nil
}

// counts are the numbers of rows to measure, falling.
func (f flags) counts() []int {
	return slices.DeleteFunc([]int{8, 4, 1}, func(n int) bool { return n > f.rows })
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fastest is the steps per second of the best run of steps within an interval:
// a machine that does other things too is slow at times.
func fastest(times []time.Time, from, to time.Time) float64 {
	const run = 12
	times = slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return t.Before(from) || t.After(to) })
	best := 0.0
	for i := 0; i+run < len(times); i++ {
		best = max(best, run/times[i+run].Sub(times[i]).Seconds())
	}
	return best
}

// answer asks for some tokens and notes when it asked and when each came.
func answer(m *llm.Model, tokens int, how engine.Sampling) ([]time.Time, error) {
	how.LogitBias = map[int32]float64{128001: -100, 128009: -100} // no early end
	times := []time.Time{time.Now()}
	err := m.Generate(context.Background(), &engine.GenerateRequest{Prompt: text(prompt), MaxTokens: tokens, Sampling: how}, func(e *engine.Event) error {
		now := time.Now()
		for range e.Tokens {
			times = append(times, now)
		}
		if e.Prompt != nil && e.Prompt.Tokens != prompt {
			return fmt.Errorf("the prompt has %d tokens instead of %d", e.Prompt.Tokens, prompt)
		}
		return nil
	})
	if err == nil && len(times) != tokens+1 {
		err = fmt.Errorf("%d tokens instead of %d", len(times)-1, tokens)
	}
	return times, err
}

// traffic sums the weights that one decoded token reads: those of all products
// by matrices, as stored and as the library packs them (with the sum of each
// block beside its scale).
func traffic(cache string) (stored, packed int64, err error) {
	found, err := filepath.Glob(filepath.Join(cache, "v*", "model.onnx"))
	if err != nil || len(found) != 1 {
		return 0, 0, fmt.Errorf("%d compiled graphs in %s: %w", len(found), cache, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return 0, 0, err
	}
	model, err := onnx.Decode(data)
	if err != nil {
		return 0, 0, err
	}
	size := map[string]int64{}
	for _, t := range model.Graph.Initializers {
		if size[t.Name], err = t.ByteSize(); err != nil {
			return 0, 0, err
		}
	}
	for _, n := range model.Graph.Nodes {
		switch n.OpType {
		case "MatMulNBits":
			stored += size[n.Inputs[1]] + size[n.Inputs[2]]
			packed += size[n.Inputs[1]] + 2*size[n.Inputs[2]]
		case "FusedMatMul":
			stored += size[n.Inputs[1]]
			packed += size[n.Inputs[1]]
		}
	}
	return stored, packed, nil
}

// bandwidth is how many bytes per second the threads can read together: the
// best of several searches for a byte that is not there, in 1.5 GB.
func bandwidth(threads int) float64 {
	const size, chunk = 3 << 29, 1 << 20
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return 0
	}
	defer syscall.Munmap(mem) //nolint:errcheck // nothing to do about it at the end
	_ = syscall.Madvise(mem, 14 /* MADV_HUGEPAGE */)
	for i := 0; i < size; i += 4096 {
		mem[i] = 1
	}
	best := time.Duration(1 << 62)
	for range 8 {
		begin := time.Now()
		var wg sync.WaitGroup
		for part := range slices.Chunk(mem, size/threads) {
			wg.Go(func() {
				for piece := range slices.Chunk(part, chunk) {
					if bytes.IndexByte(piece, 7) >= 0 {
						panic("a byte that was never written")
					}
				}
			})
		}
		wg.Wait()
		best = min(best, time.Since(begin))
	}
	return size / best.Seconds()
}

// memory reads sizes in bytes from /proc/self/status.
func memory() map[string]int64 {
	sizes := map[string]int64{}
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		var kb int64
		name, rest, _ := strings.Cut(line, ":")
		if n, _ := fmt.Sscan(rest, &kb); n == 1 {
			sizes[name] = kb << 10
		}
	}
	return sizes
}
