package dataset

import (
	"bytes"
	"fmt"
)

// table checks the records of a CSV file (RFC 4180): a header with different
// names, then records with as many fields.
type table struct {
	c       *checker
	columns int    // of the header, 0 before it
	record  []byte // a record whose quotes are still open
	start   int64  // its first line
}

// line takes the next line of the file. A record in quotes may span several; a
// problem is of the line on which the record begins.
func (t *table) line(n int64, b []byte, tooLong, end bool) {
	c := t.c
	if end {
		if t.record != nil {
			t.fail("a quoted field has no end")
		}
		return
	}
	first := t.record == nil
	if first {
		t.start = n
	}
	if tooLong || len(t.record)+len(b) > MaxLine {
		t.fail(fmt.Sprintf("the record is longer than %d bytes", MaxLine))
		return
	}
	if reason := c.text(b, n == 1); reason != "" && (first || len(b) > 0) {
		t.fail(reason)
		return
	}
	if !first {
		t.record = append(append(t.record, '\n'), b...)
		if bytes.Count(b, quote)%2 == 0 {
			return // what was open still is: nothing is split twice
		}
		b = t.record
	}
	fields, open, reason := splitCSV(b)
	switch {
	case open:
		t.record = append([]byte{}, b...)
		return
	case reason != "":
		t.fail(reason)
		return
	}
	if t.columns == 0 {
		t.header(fields)
	} else {
		t.row(b, fields)
	}
	t.record = nil
}

// fail ends the record with a problem.
func (t *table) fail(reason string) {
	if t.columns == 0 {
		t.columns = -1 // without a header, only the syntax of the rest is checked
	} else {
		t.c.report.Lines++
	}
	t.c.report.add(t.start, reason, t.c.o.kept())
	t.record = nil
}

func (t *table) header(fields [][]byte) {
	seen := map[string]bool{}
	for i, f := range fields {
		name := string(bytes.TrimSpace(f))
		switch {
		case name == "":
			t.fail(fmt.Sprintf("the name of column %d is empty", i+1))
			return
		case seen[name]:
			t.fail(fmt.Sprintf("the column %s is there twice", show(name)))
			return
		}
		seen[name] = true
	}
	t.columns = len(fields)
}

func (t *table) row(b []byte, fields [][]byte) {
	if t.columns > 0 && len(fields) != t.columns {
		t.fail(fmt.Sprintf("the record has %d fields, the header has %d", len(fields), t.columns))
		return
	}
	t.c.report.Lines++
	t.c.seen.add(b)
}

var quote = []byte{'"'}

// maxColumns bounds the fields of one record.
const maxColumns = 10000

// splitCSV splits a record into its fields, quotes included. open means that the
// last field begins with a quote and has no end yet.
func splitCSV(b []byte) (fields [][]byte, open bool, reason string) {
	for i := 0; ; {
		if len(fields) >= maxColumns {
			return nil, false, fmt.Sprintf("the record has more than %d fields", maxColumns)
		}
		start := i
		if i < len(b) && b[i] == '"' {
			for i++; ; i += 2 {
				n := bytes.IndexByte(b[min(i, len(b)):], '"')
				if n < 0 {
					return nil, true, ""
				}
				if i += n; i+1 >= len(b) || b[i+1] != '"' {
					break
				}
			}
			if i++; i < len(b) && b[i] != ',' {
				return nil, false, fmt.Sprintf("field %d goes on after its closing quote", len(fields)+1)
			}
		} else {
			n := bytes.IndexByte(b[i:], ',')
			if n < 0 {
				n = len(b) - i
			}
			if bytes.IndexByte(b[i:i+n], '"') >= 0 {
				return nil, false, fmt.Sprintf("field %d has a quote inside and does not begin with one", len(fields)+1)
			}
			i += n
		}
		fields = append(fields, b[start:i])
		if i >= len(b) {
			return fields, false, ""
		}
		i++
	}
}
