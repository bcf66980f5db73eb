package snapshot

import "encoding/binary"

// table is a FlatBuffers table to be written: one field per slot of the schema, nil
// for an absent one. A field is a scalar (scalar), a string, a []table, a table or
// a structs value.
type table []any

// scalar is a number of 1, 2, 4 or 8 bytes.
type scalar struct {
	size  int
	value uint64
}

// structs is a vector of structs of two 64-bit numbers.
type structs [][2]int64

// flatten writes a table as a FlatBuffers buffer. (FlatBuffers internals: a table
// begins with the distance back to its vtable, which holds the place of each field;
// strings, vectors and other tables are referred to by the distance forward.)
func flatten(root table) []byte {
	w := &flat{}
	w.put(4, 0)
	w.patch(0, w.table(root))
	return w.buf
}

// flat writes forward: what refers to something is written before it and patched
// once its place is known.
type flat struct{ buf []byte }

// put appends a little-endian number of size bytes.
func (w *flat) put(size int, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	w.buf = append(w.buf, b[:size]...)
}

// pad appends zeros until the length is offset more than a multiple of align.
func (w *flat) pad(align, offset int) {
	for len(w.buf)%align != offset {
		w.buf = append(w.buf, 0)
	}
}

// patch lets the reference at position at lead to position to.
func (w *flat) patch(at, to int) { binary.LittleEndian.PutUint32(w.buf[at:], uint32(to-at)) }

// sizeOf is the size of a field within its table.
func sizeOf(field any) int {
	if s, ok := field.(scalar); ok {
		return s.size
	}
	return 4 // a reference
}

// table writes a table with its vtable before and its children after it, and
// returns its position. Fields stand in the order of their sizes, the largest
// first, so that only the first one has to be aligned.
func (w *flat) table(t table) int {
	places := make([]uint64, len(t)) // relative to the table
	next := 4
	for _, size := range []int{8, 4, 2, 1} {
		for i, field := range t {
			if field != nil && sizeOf(field) == size {
				places[i] = uint64(next)
				next += size
			}
		}
	}
	w.pad(8, (8+4-(4+2*len(t))%8)%8) // the table begins 4 before a multiple of 8
	vtable := len(w.buf)
	w.put(2, uint64(4+2*len(t)))
	w.put(2, uint64(next))
	for _, p := range places {
		w.put(2, p)
	}
	at := len(w.buf)
	w.put(4, uint64(at-vtable))
	w.buf = append(w.buf, make([]byte, next-4)...)
	for i, field := range t {
		place := at + int(places[i])
		switch f := field.(type) {
		case nil:
		case scalar:
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], f.value)
			copy(w.buf[place:place+f.size], b[:])
		default:
			w.patch(place, w.child(f))
		}
	}
	return at
}

// child writes what a field refers to and returns its position.
func (w *flat) child(field any) int {
	switch f := field.(type) {
	case table:
		return w.table(f)
	case string:
		w.pad(4, 0)
		at := len(w.buf)
		w.put(4, uint64(len(f)))
		w.buf = append(append(w.buf, f...), 0)
		return at
	case []table:
		w.pad(4, 0)
		at := len(w.buf)
		w.put(4, uint64(len(f)))
		first := len(w.buf)
		w.buf = append(w.buf, make([]byte, 4*len(f))...)
		for i, t := range f {
			w.patch(first+4*i, w.table(t))
		}
		return at
	case structs:
		w.pad(8, 4) // the numbers after the length are aligned
		at := len(w.buf)
		w.put(4, uint64(len(f)))
		for _, pair := range f {
			w.put(8, uint64(pair[0]))
			w.put(8, uint64(pair[1]))
		}
		return at
	}
	panic("snapshot: a field of another kind") // only this package makes tables
}
