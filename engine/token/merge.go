package token

import (
	"math"
	"math/bits"
	"slices"
)

// smallWord is the number of symbols up to which scanning for the best pair
// beats a heap.
const smallWord = 40

const noRank = math.MaxInt32

// mergeSmall merges in place by looking for the best pair each time: O(n²).
func (b *bpe) mergeSmall(ids []ID, s *scratch) []ID {
	if len(ids) < 2 {
		return ids
	}
	ranks := s.ranks[:0]
	for i := range len(ids) - 1 {
		ranks = append(ranks, b.pairs.get(ids[i], ids[i+1]))
	}
	s.ranks = ranks
	for len(ranks) > 0 {
		best, at := ranks[0], 0
		for i, r := range ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		ids[at] = b.merges[best].result
		ids = slices.Delete(ids, at+1, at+2)
		ranks = slices.Delete(ranks, at, at+1)
		if at > 0 {
			ranks[at-1] = b.pairs.get(ids[at-1], ids[at])
		}
		if at < len(ranks) {
			ranks[at] = b.pairs.get(ids[at], ids[at+1])
		}
	}
	return ids
}

// mergeLong merges over a linked list of symbols with a heap of candidates:
// O(n log n). A candidate is rank<<32 | position of its left symbol, so that
// equal ranks go left to right; it is stale when the two symbols are no longer
// those of its merge.
func (b *bpe) mergeLong(ids []ID, s *scratch) []ID {
	n := len(ids)
	s.prev, s.next = slices.Grow(s.prev[:0], n)[:n], slices.Grow(s.next[:0], n)[:n]
	prev, next := s.prev, s.next
	h := s.heap[:0]
	for i := range n {
		prev[i], next[i] = int32(i-1), int32(i+1)
		if i+1 < n {
			if r := b.pairs.get(ids[i], ids[i+1]); r != noRank {
				h = append(h, uint64(r)<<32|uint64(i))
			}
		}
	}
	next[n-1] = -1
	slices.Sort(h) // a sorted slice is a heap
	candidate := func(i, j int32) {
		if r := b.pairs.get(ids[i], ids[j]); r != noRank {
			h = heapPush(h, uint64(r)<<32|uint64(i))
		}
	}
	for len(h) > 0 {
		top := h[0]
		h = heapPop(h)
		i, m := int32(top&math.MaxUint32), b.merges[top>>32]
		j := next[i]
		if j < 0 || ids[i] != m.left || ids[j] != m.right {
			continue
		}
		ids[i], ids[j] = m.result, -1
		next[i] = next[j]
		if k := next[i]; k >= 0 {
			prev[k] = i
			candidate(i, k)
		}
		if k := prev[i]; k >= 0 {
			candidate(k, i)
		}
	}
	s.heap = h[:0]
	return slices.DeleteFunc(ids, func(id ID) bool { return id < 0 })
}

func heapPush(h []uint64, v uint64) []uint64 {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if h[p] <= v {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = v
	return h
}

// heapPop removes the least element, h[0].
func heapPop(h []uint64) []uint64 {
	n := len(h) - 1
	v := h[n]
	h = h[:n]
	if n == 0 {
		return h
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1] < h[c] {
			c++
		}
		if v <= h[c] {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = v
	return h
}

// pairTable maps pairs of ids to ranks: open addressing, at most half full.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	left, right ID
	rank        int32 // noRank: empty
}

func newPairTable(n int) *pairTable {
	log := max(4, bits.Len(uint(2*n)))
	t := &pairTable{make([]pairSlot, 1<<log), uint(64 - log)}
	for i := range t.slots {
		t.slots[i].rank = noRank
	}
	return t
}

func (t *pairTable) at(left, right ID) *pairSlot {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	i := key * 0x9E3779B97F4A7C15 >> t.shift
	for {
		s := &t.slots[i]
		if s.rank == noRank || s.left == left && s.right == right {
			return s
		}
		i = (i + 1) & uint64(len(t.slots)-1)
	}
}

func (t *pairTable) put(left, right ID, rank int32) { *t.at(left, right) = pairSlot{left, right, rank} }

// get returns the rank of a pair, noRank where it does not merge.
func (t *pairTable) get(left, right ID) int32 { return t.at(left, right).rank }
