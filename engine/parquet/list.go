package parquet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxTokens bounds a row.
const MaxTokens = 1 << 20

// list is one row of a column.
type list struct {
	values []int64
	null   bool // the list itself is absent
	holes  bool // a value is absent
	long   bool // there are more than MaxTokens values, which are left out
}

// lists reads a column row by row, through all row groups.
type lists struct {
	c      column
	file   io.ReaderAt
	groups []rowGroup
	group  int // of the next chunk to open
	pages  *pages

	rowsLeft   int64 // of the chunk, whose first value may have been looked at
	valuesLeft int64 // of the chunk, behind the page
	inPage     int64 // values left in the page
	rep, def   hybrid
	data       decoder
	page, dict []byte

	ahead bool // an entry was read that begins the next row
	level int  // its definition level
	value int64
}

const readBuffer = 256 << 10

// open goes to the chunk of the next row group that has rows.
func (l *lists) open() error {
	for ; l.group < len(l.groups); l.group++ {
		g := l.groups[l.group]
		c := g.chunks[l.c.leaf]
		if g.rows == 0 {
			if c.values != 0 {
				return errors.New("a row group without rows has values")
			}
			continue
		}
		if c.leaf != l.c.name || c.kind != l.c.kind {
			return fmt.Errorf("row group %d has another column in the place of `%s`", l.group, l.c.name)
		}
		if err := checkCodec(c.codec); err != nil {
			return err
		}
		r := bufio.NewReaderSize(io.NewSectionReader(l.file, c.start, c.end-c.start), readBuffer)
		if l.pages == nil {
			l.pages = &pages{}
		}
		l.pages.r, l.pages.left, l.pages.codec = r, c.end-c.start, c.codec
		l.rowsLeft, l.valuesLeft, l.inPage, l.dict = g.rows, c.values, 0, nil
		l.group++
		return nil
	}
	return io.EOF
}

// next reads a row into out, whose memory it uses again; io.EOF after the last.
func (l *lists) next(out *list) error {
	*out = list{values: out.values[:0]}
	if l.rowsLeft == 0 {
		if l.ahead || l.inPage > 0 || l.valuesLeft > 0 {
			return fmt.Errorf("the column `%s` has more values than its rows", l.c.name)
		}
		if err := l.open(); err != nil {
			return err
		}
	}
	if !l.ahead {
		start, err := l.entry()
		if err != nil {
			return err
		}
		if !start {
			return fmt.Errorf("the column `%s` begins within a row", l.c.name)
		}
	}
	l.rowsLeft--
	l.ahead = false
	l.take(out)
	for l.inPage > 0 || l.valuesLeft > 0 {
		start, err := l.entry()
		if err != nil {
			return err
		}
		if start {
			l.ahead = true
			return nil
		}
		if out.null || l.level <= l.c.outer {
			return errPageBad
		}
		l.take(out)
	}
	return nil
}

// take adds the entry just read to a row.
func (l *lists) take(out *list) {
	switch {
	case l.level < l.c.outer:
		out.null = true
	case l.level == l.c.outer: // an empty list
	case l.level < l.c.maxDef:
		out.holes = true
	case len(out.values) == MaxTokens:
		out.long = true
	default:
		out.values = append(out.values, l.value)
	}
}

// entry reads one entry: its levels, and its value where it has one. start says
// that it begins a row.
func (l *lists) entry() (start bool, err error) {
	for l.inPage == 0 {
		if l.valuesLeft == 0 {
			return false, fmt.Errorf("the column `%s` has fewer rows than its row group", l.c.name)
		}
		if err := l.nextPage(); err != nil {
			return false, err
		}
	}
	l.inPage--
	rep, err := l.rep.next()
	if err != nil {
		return false, err
	}
	def, err := l.def.next()
	if err != nil {
		return false, err
	}
	if rep > 1 || int(def) > l.c.maxDef {
		return false, errPageBad
	}
	if l.level = int(def); l.level == l.c.maxDef {
		if l.value, err = l.data.next(); err != nil {
			return false, err
		}
	}
	return rep == 0, nil
}

// size of the column's values in bytes.
func (l *lists) size() int {
	if l.c.kind == int32Type {
		return 4
	}
	return 8
}

// nextPage reads pages up to one with values.
func (l *lists) nextPage() error {
	if l.pages.left == 0 {
		return fmt.Errorf("the column `%s` has fewer values than it says", l.c.name)
	}
	into := l.page
	h, data, err := l.pages.next(into)
	if err != nil {
		return err
	}
	switch h.kind {
	case dictionaryPage:
		if l.dict != nil || h.encoding != encodingPlain && h.encoding != encodingPlainDict {
			return errPageBad
		}
		l.dict, l.page = data, nil // the page's memory is the dictionary's now
		if l.dict == nil {
			l.dict = []byte{}
		}
		return nil
	case indexPage:
		l.page = data
		return nil
	case dataPage, dataPageV2:
		l.page = data
	default:
		return fmt.Errorf("the file has a page of the unknown kind %d", h.kind)
	}
	if h.values > l.valuesLeft {
		return fmt.Errorf("the column `%s` has more values than it says", l.c.name)
	}
	l.valuesLeft -= h.values
	l.inPage = h.values
	return l.levels(&h, data)
}

// levels finds the three parts of a data page.
func (l *lists) levels(h *pageHeader, b []byte) (err error) {
	var rep, def []byte
	if h.kind == dataPageV2 {
		rep, def, b = b[:h.repetition], b[h.repetition:h.repetition+h.definition], b[h.repetition+h.definition:]
	} else {
		if h.repetition != encodingRLE || h.definition != encodingRLE {
			return errors.New("a page has levels in an encoding that is not supported: write the file with a newer version of the library")
		}
		if rep, b, err = levelBytes(b); err != nil {
			return err
		}
		if def, b, err = levelBytes(b); err != nil {
			return err
		}
	}
	l.rep, l.def = hybrid{b: rep, width: 1}, hybrid{b: def, width: bitsFor(l.c.maxDef)}
	switch h.encoding {
	case encodingPlain:
		l.data = &plain{b, l.size()}
	case encodingPlainDict, encodingDictionary:
		if len(b) == 0 { // nothing but empty lists
			b = []byte{0}
		}
		l.data, err = newIndexed(b, l.dict, l.size())
	case encodingDelta:
		if len(b) == 0 {
			l.data = &plain{nil, l.size()}
			return nil
		}
		l.data, err = newDelta(b, l.size())
	default:
		name := encodings[h.encoding]
		if name == "" {
			name = fmt.Sprint(h.encoding)
		}
		return wrong("the encoding %s of the column `%s` is not supported: write the file with PLAIN, dictionary or DELTA_BINARY_PACKED", name, l.c.name)
	}
	return err
}
