package data

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPackAgainstPlainSearch compares with best-fit decreasing written as it is
// defined.
func TestPackAgainstPlainSearch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		size := 1 + r.IntN(300)
		lengths := make([]int32, r.IntN(200))
		for i := range lengths {
			lengths[i] = int32(1 + r.IntN(1+r.IntN(size)))
		}
		got := pack(lengths, size)
		order := make([]int, len(lengths))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return int(lengths[b] - lengths[a]) })
		var room []int
		for _, i := range order {
			best := -1
			for k, left := range room {
				if left >= int(lengths[i]) && (best < 0 || left < room[best]) {
					best = k
				}
			}
			if best < 0 {
				best = len(room)
				room = append(room, size)
			}
			room[best] -= int(lengths[i])
		}
		var filled []int
		seen := make([]bool, len(lengths))
		for row := range got.len() {
			left := size
			for _, i := range got.of(row) {
				if seen[i] {
					t.Fatalf("sequence %d twice", i)
				}
				seen[i] = true
				left -= int(lengths[i])
			}
			if left < 0 || left == size || !slices.IsSorted(got.of(row)) {
				t.Fatalf("row %d has %d left of %d: %v", row, left, size, got.of(row))
			}
			filled = append(filled, left)
		}
		slices.Sort(filled)
		slices.Sort(room)
		if slices.Contains(seen, false) || !slices.Equal(filled, room) {
			t.Fatalf("lengths %v in rows of %d: left %v, want %v", lengths, size, filled, room)
		}
	}
}

// TestRowSize: long rows are no longer than is good for attention, unless a
// sample is.
func TestRowSize(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{100, 50, 100}, {100, 150, 150}, {1 << 17, 50, LongestPacked}, {1 << 17, 5000, 5000}} {
		if got := rowSize(c[0], c[1]); got != c[2] {
			t.Errorf("rows of at most %d with a sample of %d hold %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestSizes compares with a map.
func TestSizes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 63, 64, 65, 4096, 4097, 300000} {
		s, want := newSizes(n), map[int]bool{}
		for range 2000 {
			v := r.IntN(n)
			switch r.IntN(3) {
			case 0:
				s.add(v)
				want[v] = true
			case 1:
				s.remove(v)
				delete(want, v)
			}
			next := -1
			for k := range want {
				if k >= v && (next < 0 || k < next) {
					next = k
				}
			}
			if got := s.next(v); got != next {
				t.Fatalf("%d: next of %d is %d, want %d", n, v, got, next)
			}
		}
	}
}
