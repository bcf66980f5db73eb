package data

import "math/bits"

// rows are the rows that an epoch is made of: row r holds the sequences
// order[starts[r]:starts[r+1]].
type rows struct {
	order  []int32
	starts []int32
}

func (r *rows) len() int { return len(r.starts) - 1 }

func (r *rows) of(row int) []int32 { return r.order[r.starts[row]:r.starts[row+1]] }

// single gives every sequence, or every group of sequences that belong together,
// a row of its own.
func single(n, group int) *rows {
	r := &rows{order: make([]int32, n), starts: make([]int32, 0, n/group+1)}
	for i := range n {
		r.order[i] = int32(i)
	}
	for i := 0; i <= n; i += group {
		r.starts = append(r.starts, int32(i))
	}
	return r
}

// LongestPacked bounds packed rows that hold several samples, in tokens: long
// enough that little is left empty, and short enough for any machine, because what
// attention takes grows with the square of the row.
const LongestPacked = 2048

// rowSize is how many tokens the packed rows hold that shall have at most wanted.
func rowSize(wanted, longest int) int { return max(min(wanted, LongestPacked), longest) }

// pack puts sequences into as few rows of at most size tokens as best-fit
// decreasing finds: the longest first, each into the fullest row that has room.
// (Johnson 1973: at most 11/9 of the fewest rows, plus one.) Sequences of
// one length keep their order, and so do those of one row. It takes
// O(n log size) time; every length must be at most size.
func pack(lengths []int32, size int) *rows {
	byLength := sortByLength(lengths, size)
	rowOf := make([]int32, len(lengths))
	// next[r] is the row behind r in the stack of rows with the same room.
	var next []int32
	heads := make([]int32, size+1) // row+1 on top of the stack for each room
	room := newSizes(size + 1)
	for _, i := range byLength {
		need := int(lengths[i])
		row := int32(len(next))
		left := size
		if at := room.next(need); at >= 0 {
			left = at
			row = heads[at] - 1
			if heads[at] = next[row]; heads[at] == 0 {
				room.remove(at)
			}
		} else {
			next = append(next, 0)
		}
		rowOf[i] = row
		left -= need
		if heads[left] == 0 {
			room.add(left)
		}
		next[row], heads[left] = heads[left], row+1
	}
	return collect(rowOf, len(next))
}

// collect lists the sequences of each row.
func collect(rowOf []int32, n int) *rows {
	r := &rows{order: make([]int32, len(rowOf)), starts: make([]int32, n+1)}
	for _, row := range rowOf {
		r.starts[row+1]++
	}
	for i := range n {
		r.starts[i+1] += r.starts[i]
	}
	at := append([]int32(nil), r.starts...)
	for i, row := range rowOf {
		r.order[at[row]] = int32(i)
		at[row]++
	}
	return r
}

// sortByLength lists the sequences from the longest to the shortest, those of one
// length in their order.
func sortByLength(lengths []int32, size int) []int32 {
	starts := make([]int32, size+2)
	for _, n := range lengths {
		starts[size-int(n)+1]++
	}
	for i := range size + 1 {
		starts[i+1] += starts[i]
	}
	out := make([]int32, len(lengths))
	for i, n := range lengths {
		k := size - int(n)
		out[starts[k]] = int32(i)
		starts[k]++
	}
	return out
}

// sizes is a set of small integers with a fast search for the next one: a tree of
// bit sets, 64 to a node.
type sizes struct{ levels [][]uint64 }

func newSizes(n int) *sizes {
	s := &sizes{}
	for {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]uint64, n))
		if n == 1 {
			return s
		}
	}
}

func (s *sizes) add(v int) {
	for _, l := range s.levels {
		l[v/64] |= 1 << (v % 64)
		v /= 64
	}
}

func (s *sizes) remove(v int) {
	for _, l := range s.levels {
		if l[v/64] &^= 1 << (v % 64); l[v/64] != 0 {
			return
		}
		v /= 64
	}
}

// next is the smallest member that is at least v, or -1.
func (s *sizes) next(v int) int {
	for k, l := range s.levels {
		if v/64 >= len(l) {
			return -1
		}
		if w := l[v/64] >> (v % 64); w != 0 {
			v += bits.TrailingZeros64(w)
			for k--; k >= 0; k-- {
				v = v*64 + bits.TrailingZeros64(s.levels[k][v])
			}
			return v
		}
		v = v/64 + 1
	}
	return -1
}
