package sample

import "slices"

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
	for turns := 0; hi-lo > 1; turns++ {
		mid := lo + split(set[lo:hi], turns)
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
	for turns := 0; hi-lo > 1; turns++ {
		mid := lo + split(set[lo:hi], turns)
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

// maxTurns is more partitions than chance ever takes; an order of logits that
// needs more was made to, and is sorted instead.
const maxTurns = 64

// split is partition, or a sort, which is one too, after too many turns.
func split(set []candidate, turns int) int {
	if turns < maxTurns {
		return partition(set)
	}
	slices.SortFunc(set, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	return len(set) / 2
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
