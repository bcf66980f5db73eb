package sample

import (
	"fmt"
	"math"
	"slices"
)

// coldest is the temperature below which the likeliest token is taken: the
// others would not be drawn anyway, and its inverse would leave the range.
const coldest = 1e-5

// pick draws from the adjusted logits. Weights are probabilities relative to the
// likeliest token's.
func (s *Sampler) pick(logits []float32) (int32, error) {
	best, err := argmax(logits)
	if err != nil || s.params.Temperature < coldest {
		return best, err
	}
	d := dist{logits, float64(logits[best]), s.params.Temperature}
	p := s.params
	var set []candidate
	switch {
	case p.TopK > 0 && p.TopK < len(logits):
		set = d.top(s.set[:0], p.TopK)
		s.set = set
		if p.TopP < 1 {
			set = nucleus(set, p.TopP*mass(set))
		}
	case p.TopP < 1:
		// Tokens of less than this weight together miss the mass that may be
		// left out, so that none of them is needed.
		total := d.total()
		least := (1 - p.TopP) * total / float64(len(logits))
		set = d.above(s.set[:0], least*(1-1e-6))
		s.set = set
		set = nucleus(set, p.TopP*total)
	case p.MinP > 0:
		set = d.above(s.set[:0], p.MinP)
		s.set = set
	default:
		return d.draw(s.rng.Float64()), nil
	}
	if p.MinP > 0 {
		set = slices.DeleteFunc(set, func(c candidate) bool { return c.weight < p.MinP })
	}
	return draw(set, s.rng.Float64()*mass(set)), nil
}

// argmax is the id with the highest logit, the lowest such id on ties.
func argmax(logits []float32) (int32, error) {
	best, high := -1, float32(math.Inf(-1))
	for id, v := range logits {
		if v > high {
			best, high = id, v
		} else if v != v {
			return 0, fmt.Errorf("logit %d is not a number: %w", id, ErrBadLogits)
		}
	}
	if best < 0 || math.IsInf(float64(high), 1) {
		return 0, ErrBadLogits
	}
	return int32(best), nil
}

// dist is the distribution of all logits at a temperature.
type dist struct {
	logits      []float32
	high        float64 // the highest logit
	temperature float64
}

func (d dist) weight(logit float32) float64 {
	return exp((float64(logit) - d.high) / d.temperature)
}

func (d dist) total() float64 {
	inverse := 1 / d.temperature
	var sum float64
	for _, v := range d.logits {
		sum += exp((float64(v) - d.high) * inverse)
	}
	return sum
}

// above appends the tokens of at least some weight; the likeliest is always one.
func (d dist) above(set []candidate, least float64) []candidate {
	from := float32(math.Inf(-1))
	if least > 0 {
		// Rounded down by more than the conversion rounds.
		from = float32(d.high + min(math.Log(least), 0)*d.temperature)
		from -= 1e-6 * max(1, float32(math.Abs(float64(from))))
	}
	for id, v := range d.logits {
		if v >= from {
			set = append(set, candidate{int32(id), d.weight(v)})
		}
	}
	return set
}

// top appends the k likeliest tokens. A sample of the logits tells where about
// the k-th is, so that few tokens have to be put in order.
func (d dist) top(set []candidate, k int) []candidate {
	from := d.guess(k)
	for {
		set = set[:0]
		for id, v := range d.logits {
			if v >= from {
				set = append(set, candidate{int32(id), float64(v)})
			}
		}
		if len(set) >= k {
			break
		}
		from = float32(math.Inf(-1)) // a bad guess: take them all
	}
	set = largest(set, k)
	for i := range set {
		set[i].weight = exp((set[i].weight - d.high) / d.temperature)
	}
	return set
}

// guess is a logit that probably k tokens reach, and not many more.
func (d dist) guess(k int) float32 {
	const size = 1024
	step := len(d.logits) / size
	if step < 4 {
		return float32(math.Inf(-1))
	}
	var some [size]float32
	for i := range some {
		some[i] = d.logits[i*step]
	}
	slices.Sort(some[:])
	expect := k/step + 1
	rank := expect + 4*int(math.Sqrt(float64(expect))) + 4
	if rank >= size {
		return float32(math.Inf(-1))
	}
	return some[size-1-rank]
}

// draw draws from all tokens, u in [0, 1). Sums of blocks spare it a list.
func (d dist) draw(u float64) int32 {
	const block = 512
	inverse := 1 / d.temperature
	sums := make([]float64, 0, len(d.logits)/block+1)
	var total float64
	for rest := d.logits; len(rest) > 0; {
		n := min(block, len(rest))
		var sum float64
		for _, v := range rest[:n] {
			sum += exp((float64(v) - d.high) * inverse)
		}
		sums = append(sums, sum)
		total += sum
		rest = rest[n:]
	}
	u *= total
	last := int32(0) // what rounding at the very end leads to
	for i, sum := range sums {
		if u >= sum && i < len(sums)-1 {
			u -= sum
			continue
		}
		for id := i * block; id < min((i+1)*block, len(d.logits)); id++ {
			w := exp((float64(d.logits[id]) - d.high) * inverse)
			if w > 0 {
				last = int32(id)
			}
			if u -= w; u < 0 {
				return last
			}
		}
	}
	return last
}

// draw is the candidate in which the running mass passes u.
func draw(set []candidate, u float64) int32 {
	for _, c := range set {
		if u -= c.weight; u < 0 {
			return c.id
		}
	}
	return set[len(set)-1].id // rounding at the very end
}
