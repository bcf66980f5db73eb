package exec

import (
	"runtime"
	"sync"

	"athanor/engine/compute"
	"athanor/engine/tensor"
)

// sink collects the gradients of one run: those that are still zero are
// written in place, the others into scratch memory and added afterwards.
type sink struct {
	e    *Executor
	out  map[string]compute.Buffer
	add  map[string]compute.Buffer // by the name of the parameter
	keys []string                  // of add, in order
}

func (e *Executor) newSink() *sink {
	return &sink{e: e, out: map[string]compute.Buffer{}, add: map[string]compute.Buffer{}}
}

// want gives the gradient of a parameter, key, the place of the output of an
// input, name.
func (s *sink) want(name, key string) error {
	p := s.e.params[s.e.byName[key]]
	if s.e.clean[key] {
		s.e.clean[key] = false
		s.out[outPrefix+name] = p.Grad
		return nil
	}
	b, err := s.e.pool.get("sum."+name, tensor.F32, p.Shape...)
	if err != nil {
		return err
	}
	s.out[outPrefix+name] = b
	s.add[key] = b
	s.keys = append(s.keys, key)
	return nil
}

// flush adds what was not written in place.
func (s *sink) flush() {
	for _, key := range s.keys {
		addTo(floats(s.e.params[s.e.byName[key]].Grad), floats(s.add[key]))
	}
}

// addTo adds x to sum, on all cores when it is long. Elements do not depend on
// each other, so that the result does not depend on the number of cores.
func addTo(sum, x []float32) {
	const short = 1 << 16
	workers := 1
	if len(x) > short {
		workers = runtime.GOMAXPROCS(0)
	}
	step := (len(x) + workers - 1) / workers
	var wait sync.WaitGroup
	for from := 0; from < len(x); from += step {
		to := min(from+step, len(x))
		wait.Go(func() {
			a, b := sum[from:to], x[from:to]
			for i := range a {
				a[i] += b[i]
			}
		})
	}
	wait.Wait()
}
