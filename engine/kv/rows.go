package kv

// Move is a copy of one row's cache to another row.
type Move struct{ From, To int }

// Rows is the assignment of cache rows to sequences. Not safe for concurrent
// use. The zero value is not usable; see New.
type Rows[S comparable] struct {
	capacity   int
	decoding   []S
	prefilling *S
}

// New makes the account of a cache with capacity rows.
func New[S comparable](capacity int) *Rows[S] {
	return &Rows[S]{capacity: capacity}
}

// Free is the number of rows that nobody owns.
func (r *Rows[S]) Free() int {
	n := r.capacity - len(r.decoding)
	if r.prefilling != nil {
		n--
	}
	return n
}

// Decoding lists the sequences in row order; the caller must not keep it
// across a change.
func (r *Rows[S]) Decoding() []S { return r.decoding }

// Prefilling is the sequence whose prompt is being read and its row.
func (r *Rows[S]) Prefilling() (s S, row int, ok bool) {
	if r.prefilling == nil {
		return s, 0, false
	}
	return *r.prefilling, len(r.decoding), true
}

// Admit gives the next row to s, whose prompt will be read. It reports false
// when no row is free or another prompt is being read.
func (r *Rows[S]) Admit(s S) (row int, ok bool) {
	if r.prefilling != nil || r.Free() == 0 {
		return 0, false
	}
	r.prefilling = &s
	return len(r.decoding), true
}

// Promote lets the sequence that was prefilled decode; its row stays.
func (r *Rows[S]) Promote() {
	if r.prefilling != nil {
		r.decoding = append(r.decoding, *r.prefilling)
		r.prefilling = nil
	}
}

// Remove frees the row of s and says, in order, which rows to move so that the
// invariants hold again.
func (r *Rows[S]) Remove(s S) []Move {
	if r.prefilling != nil && *r.prefilling == s {
		r.prefilling = nil
		return nil
	}
	for i, d := range r.decoding {
		if d == s {
			return r.removeAt(i)
		}
	}
	return nil
}

func (r *Rows[S]) removeAt(i int) []Move {
	var moves []Move
	last := len(r.decoding) - 1
	if i != last {
		moves = append(moves, Move{From: last, To: i})
		r.decoding[i] = r.decoding[last]
	}
	r.decoding = r.decoding[:last]
	if r.prefilling != nil {
		moves = append(moves, Move{From: last + 1, To: last})
	}
	return moves
}

// Row finds the row of s.
func (r *Rows[S]) Row(s S) (int, bool) {
	if r.prefilling != nil && *r.prefilling == s {
		return len(r.decoding), true
	}
	for i, d := range r.decoding {
		if d == s {
			return i, true
		}
	}
	return 0, false
}
