package main

import (
	"math"
	"sync"

	"athanor/engine/tensor"
	"athanor/engine/train/exec"
)

// adamW is the optimiser, in Go, so that a step here does what the peer's does.
// (Loshchilov and Hutter 2019, arXiv:1711.05101.)
type adamW struct {
	params []exec.Param
	m, v   [][]float32
	steps  int
}

func newAdamW(params []exec.Param) *adamW {
	o := &adamW{params: params}
	for _, p := range params {
		n := len(tensor.View[float32](p.Value.Bytes()))
		o.m, o.v = append(o.m, make([]float32, n)), append(o.v, make([]float32, n))
	}
	return o
}

func (o *adamW) step(rate float64) {
	o.steps++
	const beta1, beta2, epsilon, decay = 0.9, 0.999, 1e-8, 0.01
	correct := math.Sqrt(1-math.Pow(beta2, float64(o.steps))) / (1 - math.Pow(beta1, float64(o.steps)))
	alpha, keep := float32(rate*correct), float32(1-rate*decay)
	var wait sync.WaitGroup
	for half := range 2 {
		wait.Go(func() {
			for i, p := range o.params {
				value, grad, m, v := tensor.View[float32](p.Value.Bytes()), tensor.View[float32](p.Grad.Bytes()), o.m[i], o.v[i]
				for j := half * len(value) / 2; j < (half+1)*len(value)/2; j++ {
					g := grad[j]
					m[j] = beta1*m[j] + (1-beta1)*g
					v[j] = beta2*v[j] + (1-beta2)*g*g
					value[j] = keep*value[j] - alpha*m[j]/(float32(math.Sqrt(float64(v[j])))+epsilon)
				}
			}
		})
	}
	wait.Wait()
}
