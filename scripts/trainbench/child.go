package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/ort"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
	"athanor/engine/train/exec"
)

func open(f flags) (compute.Runtime, error) {
	library, err := ort.Find(f.library)
	if err != nil {
		return nil, err
	}
	return ort.Open(ort.Options{Library: library})
}

// child measures one way and prints the result.
func child(f flags) error {
	rt, err := open(f)
	if err != nil {
		return err
	}
	defer rt.Close()
	var w way
	for _, known := range ways {
		if known.name == f.child {
			w = known
		}
	}
	cfg := exec.Config{
		ModelDir: f.modelDir(), BaseFormat: w.format, Threads: f.threads, Seed: 1,
		Layered: w.layered, Recompute: w.twice,
	}
	if !w.full {
		cfg.LoRA = &engine.LoRA{Rank: f.rank, Alpha: 2 * float64(f.rank)}
	}
	ctx := context.Background()
	e, err := exec.New(ctx, rt, cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Info().Whole == w.layered {
		return fmt.Errorf("the executor chose whole = %v", e.Info().Whole)
	}
	r := result{Name: w.name, EstimateBytes: e.Estimate(f.rows, f.length), Flops: flops(f, w)}
	b := batch(f)
	opt := newAdamW(e.Params())
	r.Best = math.Inf(1)
	var anon int64
	for step := range f.steps + 1 {
		start := time.Now()
		logp, err := e.Accumulate(ctx, b, nil)
		if err != nil {
			return err
		}
		opt.step(1e-4)
		e.ZeroGrad()
		if took := time.Since(start).Seconds(); step > 0 {
			r.Seconds += took / float64(f.steps)
			r.Best = min(r.Best, took)
		}
		r.Loss = 0
		for i, v := range logp {
			r.Loss -= float64(v) * float64(b.Weights[i])
		}
		anon = max(anon, status("RssAnon"))
	}
	r.TokensPerSecond = float64(f.rows*f.length) / r.Seconds
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	r.PeakBytes, r.AnonBytes = usage.Maxrss*1024, anon
	return json.NewEncoder(os.Stdout).Encode(r)
}

// batch is random text, each position with the same share of the loss.
func batch(f flags) *data.Batch {
	n := f.rows * f.length
	r := rand.New(rand.NewPCG(1, 2))
	b := &data.Batch{Rows: f.rows, Length: f.length}
	for i := range n {
		b.Tokens = append(b.Tokens, r.Int32N(int32(shape().Vocabulary)))
		b.Targets = append(b.Targets, r.Int32N(int32(shape().Vocabulary)))
		b.Weights = append(b.Weights, 1/float32(n))
		b.Positions = append(b.Positions, int32(i%f.length))
		b.Segments = append(b.Segments, 0)
	}
	return b
}

// flops counts the multiplications and additions of the matrix products that a
// step really makes, recomputation included, those of the adapters and of the
// hidden half of the scores too.
func flops(f flags, w way) float64 {
	s := shape()
	head := s.Hidden / s.Heads
	tokens := float64(f.rows * f.length)
	linear, low, down := 0.0, 0.0, 0.0
	for _, m := range [][2]int{
		{s.Hidden, s.Heads * head}, {s.Hidden, s.KVHeads * head}, {s.Hidden, s.KVHeads * head}, {s.Heads * head, s.Hidden},
		{s.Hidden, s.FFN}, {s.Hidden, s.FFN}, {s.FFN, s.Hidden},
	} {
		linear += 2 * tokens * float64(m[0]*m[1])
		low += 2 * tokens * float64(f.rank*(m[0]+m[1]))
		down = 2 * tokens * float64(m[0]*m[1]) // the last: its product is not made again
	}
	scores := 2 * 2 * tokens * float64(f.length*s.Heads*head) // both products
	layer := 2*linear + 3*low + 3*scores
	if w.full {
		layer = 3*linear + 3*scores
	}
	if w.twice {
		layer += linear - down + scores
		if !w.full {
			layer += low
		}
	}
	products := 2.0
	if w.full {
		products = 3
	}
	return float64(s.Layers)*layer + products*2*tokens*float64(s.Hidden*s.Vocabulary)
}

// sgemm is the best rate, in operations a second, of large float32 products.
func sgemm(f flags) (float64, error) {
	rt, err := open(f)
	if err != nil {
		return 0, err
	}
	defer rt.Close()
	const n = 2048
	model, err := graph.Build(func(g *graph.Graph) {
		d := graph.Fixed(n)
		g.Output("y", g.Gemm(g.Input("a", tensor.F32, d, d), g.Input("b", tensor.F32, d, d), false, true))
	})
	if err != nil {
		return 0, err
	}
	p, err := rt.Compile(model, compute.Options{Threads: f.threads})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var buffers []compute.Buffer
	for i := range 3 {
		b, err := rt.NewBuffer(tensor.F32, n, n)
		if err != nil {
			return 0, err
		}
		defer b.Close()
		for j, v := 0, tensor.View[float32](b.Bytes()); j < len(v); j++ {
			v[j] = float32((i+j)%7) - 3
		}
		buffers = append(buffers, b)
	}
	best := 0.0
	for range 12 {
		start := time.Now()
		if err := p.Run(context.Background(), buffers[:2], buffers[2:]); err != nil {
			return 0, err
		}
		best = max(best, 2*n*n*n/time.Since(start).Seconds())
	}
	return best, nil
}

// status reads a line of /proc/self/status in bytes, 0 where there is none.
func status(name string) int64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb * 1024
		}
	}
	return 0
}
