package optim

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// clipEpsilon keeps the division of Clip away from zero.
const clipEpsilon = 1e-6

// Norm is the Euclidean norm of all gradients together. Every piece is summed
// in float64 from its first to its last element and the sums are added in the
// order of the pieces, however many goroutines there are.
func (o *AdamW) Norm() float64 {
	sums := make([]float64, len(o.pieces))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(o.pieces)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(o.pieces) {
					return
				}
				sums[i] = squares(o.pieces[i].windows[1].Bytes())
			}
		})
	}
	wg.Wait()
	total := 0.0
	for _, s := range sums {
		total += s
	}
	return math.Sqrt(total)
}

// squares sums the squares of float32 values.
func squares(raw []byte) float64 {
	sum := 0.0
	for ; len(raw) >= 4; raw = raw[4:] {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		sum += v * v
	}
	return sum
}

// Clip is what gradients of the given norm are multiplied by so that their
// norm is at most limit; 0 is no limit.
func Clip(norm, limit float64) float64 {
	if limit <= 0 {
		return 1
	}
	return min(1, limit/(norm+clipEpsilon))
}
