package export

import (
	"runtime"
	"sync"

	"athanor/engine/peft"
	"athanor/engine/weights"
)

// merger adds a module of an adapter to the rows of its weight.
type merger struct {
	base  weights.Matrix
	m     *peft.Module
	scale float32
}

// read fills dst with merged rows. Each row is summed by one goroutine in one
// order, so that the result depends on nothing else.
func (g merger) read(dst []float32, first int64) error {
	row := int(first) / g.m.In
	if err := g.base.Read(dst, row); err != nil {
		return err
	}
	rows := len(dst) / g.m.In
	workers := min(runtime.GOMAXPROCS(0), rows)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			delta := make([]float32, g.m.In)
			for i := w; i < rows; i += workers {
				g.add(dst[i*g.m.In:(i+1)*g.m.In], row+i, delta)
			}
		})
	}
	wg.Wait()
	return nil
}

// add adds scale times row of B A to dst; delta is room for it.
func (g merger) add(dst []float32, row int, delta []float32) {
	m := g.m
	clear(delta)
	for k, b := range m.B[row*m.Rank : (row+1)*m.Rank] {
		for i, a := range m.A[k*m.In : (k+1)*m.In] {
			delta[i] += b * a
		}
	}
	for i, v := range delta {
		dst[i] += g.scale * v
	}
}
