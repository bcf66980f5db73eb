package estimate

import (
	"context"
	"errors"
	"slices"
	"time"

	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/tensor"
)

// The product that is measured has the size of those in training: a pass of 512
// positions through a matrix of 1024 x 1024. It is large enough to keep all
// threads busy, and takes 10 ms on a slow machine.
const (
	positions = 512
	size      = 1024
	measured  = 200 * time.Millisecond
	// leastRuns is for machines on which one product takes longer than measured.
	leastRuns = 3
)

// Speed measures how many float32 operations a second matrix products reach on rt
// with so many threads, 0 being all physical cores. It takes a fifth of a second, and
// returns the middle one: single products are up to twice as fast as a processor can
// keep up, or wait for what else runs.
func Speed(ctx context.Context, rt compute.Runtime, threads int) (speed float64, err error) {
	model, err := graph.Build(func(g *graph.Graph) {
		n := graph.Fixed(size)
		x, w := g.Input("x", tensor.F32, graph.Fixed(positions), n), g.Input("w", tensor.F32, n, n)
		g.Output("y", g.Gemm(x, w, false, true))
	})
	if err != nil {
		return 0, err
	}
	program, err := rt.Compile(model, compute.Options{Threads: threads})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	var buffers []compute.Buffer
	for _, rows := range []int{positions, size, positions} {
		b, err := rt.NewBuffer(tensor.F32, rows, size)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		for i, v := 0, tensor.View[float32](b.Bytes()); i < len(v); i++ {
			v[i] = float32(i%7) - 3
		}
		buffers = append(buffers, b)
	}
	var times []time.Duration
	for began := time.Now(); len(times) < leastRuns || time.Since(began) < measured; {
		start := time.Now()
		if err := program.Run(ctx, buffers[:2], buffers[2:]); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return 2 * positions * size * size / max(times[len(times)/2], 1).Seconds(), nil
}
