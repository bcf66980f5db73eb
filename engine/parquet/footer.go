package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of a file's metadata.
const (
	MaxFooter    = 16 << 20
	maxElements  = 64
	maxRowGroups = 1 << 16
	maxName      = 256
)

// magic begins and ends a file.
const magic = "PAR1"

// FormatError is a file that cannot be read as a whole or any further.
type FormatError struct{ Reason string }

func (e *FormatError) Error() string { return e.Reason }

func wrong(format string, args ...any) error {
	return &FormatError{fmt.Sprintf(format, args...)}
}

// Physical types, repetitions and annotations of the specification.
const (
	int32Type = 1
	int64Type = 2

	required = 0
	optional = 1
	repeated = 2

	listAnnotation = 3
)

// element is a node of the schema, which is a tree listed depth first.
type element struct {
	name       string
	kind       int64 // physical type, -1 for groups
	repetition int64
	children   int64
	annotation int64 // converted type, -1 = none
	list       bool  // logical type
}

// chunk is where a column of a row group lies.
type chunk struct {
	start, end int64 // in the file
	codec      int64
	kind       int64
	values     int64 // levels, those of absent values included
	leaf       string
}

// rowGroup is a stretch of rows.
type rowGroup struct {
	rows   int64
	chunks []chunk
}

// footer is what a file says about itself.
type footer struct {
	elements []element
	groups   []rowGroup
	rows     int64
}

// readFooter reads and checks the metadata at the end of a file.
func readFooter(r io.ReaderAt, size int64) (*footer, error) {
	const ends = 12 // magic at both ends and the length
	if size < ends {
		return nil, wrong("the file is not a Parquet file: it has only %d bytes", size)
	}
	var head [4]byte
	var tail [8]byte
	if _, err := r.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the beginning of the file: %w", err)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the end of the file: %w", err)
	}
	switch {
	case string(head[:]) == "PARE" || string(tail[4:]) == "PARE":
		return nil, wrong("the file is encrypted")
	case string(head[:]) != magic:
		return nil, wrong("the file is not a Parquet file: it does not begin with %s", magic)
	case string(tail[4:]) != magic:
		return nil, wrong("the file is not a Parquet file, or not all of it: it does not end with %s", magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-ends || n > MaxFooter {
		return nil, wrong("the metadata has %d bytes, at most %d fit", n, min(size-ends, MaxFooter))
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, size-8-n); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the metadata: %w", err)
	}
	f := &footer{}
	t := &thrift{b: b}
	f.parse(t)
	if t.err != nil {
		return nil, wrong("the metadata cannot be read: %v", t.err)
	}
	return f, f.check(size - 8 - n)
}

func (f *footer) parse(t *thrift) {
	t.fields(func(id int16, kind byte) {
		switch id {
		case 2:
			t.wantList(kind, maxElements, func(kind byte) { f.elements = append(f.elements, parseElement(t, kind)) })
		case 3:
			f.rows = t.wantInt(kind)
		case 4:
			t.wantList(kind, maxRowGroups, func(kind byte) { f.groups = append(f.groups, parseGroup(t, kind)) })
		case 8:
			t.fail(errors.New("the file is encrypted"))
		default:
			t.skip(kind)
		}
	})
}

func parseElement(t *thrift, kind byte) element {
	e := element{kind: -1, annotation: -1}
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			e.kind = t.wantInt(kind)
		case 3:
			e.repetition = t.wantInt(kind)
		case 4:
			name := t.wantBytes(kind)
			e.name = string(name[:min(len(name), maxName)])
		case 5:
			e.children = t.wantInt(kind)
		case 6:
			e.annotation = t.wantInt(kind)
		case 10:
			t.wantStruct(kind, func(id int16, kind byte) {
				e.list = e.list || id == listAnnotation
				t.skip(kind)
			})
		default:
			t.skip(kind)
		}
	})
	return e
}

func parseGroup(t *thrift, kind byte) rowGroup {
	var g rowGroup
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			t.wantList(kind, maxElements, func(kind byte) { g.chunks = append(g.chunks, parseChunk(t, kind)) })
		case 3:
			g.rows = t.wantInt(kind)
		default:
			t.skip(kind)
		}
	})
	return g
}

func parseChunk(t *thrift, kind byte) chunk {
	c := chunk{kind: -1}
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			t.fail(errors.New("a column lies in another file"))
		case 3:
			c.parseMeta(t, kind)
		case 8, 9:
			t.fail(errors.New("a column is encrypted"))
		default:
			t.skip(kind)
		}
	})
	return c
}

func (c *chunk) parseMeta(t *thrift, kind byte) {
	var compressed, data, dictionary int64
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			c.kind = t.wantInt(kind)
		case 3:
			first := true
			t.wantList(kind, maxNesting, func(kind byte) {
				name := t.wantBytes(kind)
				if first {
					c.leaf = string(name[:min(len(name), maxName)])
				}
				first = false
			})
		case 4:
			c.codec = t.wantInt(kind)
		case 5:
			c.values = t.wantInt(kind)
		case 7:
			compressed = t.wantInt(kind)
		case 9:
			data = t.wantInt(kind)
		case 11:
			dictionary = t.wantInt(kind)
		default:
			t.skip(kind)
		}
	})
	c.start = data
	if dictionary > 0 && dictionary < data {
		c.start = dictionary
	}
	const far = 1 << 60 // no file is as long, and no sum of two overflows
	if c.start < 0 || c.start > far || compressed < 0 || compressed > far {
		t.fail(errors.New("a column lies outside of the file"))
		return
	}
	c.end = c.start + compressed
}

// maxExpansion bounds the values of a file by its size: a run of equal values takes
// a few bytes, however long it is.
const maxExpansion = 1024

// check compares the metadata with itself and with limit, where the data ends.
func (f *footer) check(limit int64) error {
	leaves := 0
	for _, e := range f.elements {
		if e.children == 0 {
			leaves++
		}
	}
	rows, values := int64(0), int64(0)
	most := limit*maxExpansion + maxExpansion
	for i, g := range f.groups {
		if len(g.chunks) != leaves {
			return wrong("row group %d has %d columns, the schema has %d", i, len(g.chunks), leaves)
		}
		if g.rows < 0 || g.rows > most {
			return wrong("row group %d says that it has %d rows", i, g.rows)
		}
		rows += g.rows
		for _, c := range g.chunks {
			if c.start < int64(len(magic)) || c.end > limit {
				return wrong("row group %d says that a column lies at the bytes %d to %d of a file of %d", i, c.start, c.end, limit)
			}
			if c.values < g.rows || c.values > most {
				return wrong("row group %d says that a column has %d values in %d rows", i, c.values, g.rows)
			}
			if values += c.values; values > most {
				return wrong("the file says that it has more than %d values, which is too much for its size", most)
			}
		}
	}
	if f.rows != rows {
		return wrong("the file says that it has %d rows, its row groups have %d", f.rows, rows)
	}
	return nil
}
