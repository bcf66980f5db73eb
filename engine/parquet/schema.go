package parquet

import "strings"

// names are the columns that are read, in the order of Row's fields.
var names = [3]string{"input_ids", "attention_mask", "labels"}

// column is what the schema says of a column of lists.
type column struct {
	name   string
	leaf   int   // its place among the leaves of the schema
	kind   int64 // int32Type or int64Type
	outer  int   // definition level of a list that is there, 0 or 1
	maxDef int   // definition level of a value
}

// columns finds the columns of the schema; those that are absent have no name.
func (f *footer) columns() (out [3]column, err error) {
	if len(f.elements) == 0 || f.elements[0].children != int64(f.top()) {
		return out, wrong("the schema cannot be read")
	}
	leaf := 0
	for i := 1; i < len(f.elements); {
		c, n, err := f.column(i)
		if err != nil {
			return out, err
		}
		c.leaf = leaf
		leaf++
		i += n
		for k, name := range names {
			if name != c.name {
				continue
			}
			if out[k].name != "" {
				return out, wrong("the column `%s` is there twice", name)
			}
			out[k] = c
		}
	}
	if out[0].name == "" {
		return out, wrong("the file must have a column `input_ids`")
	}
	return out, nil
}

// top counts the columns of the schema.
func (f *footer) top() (n int) {
	for i := 1; i < len(f.elements); n++ {
		open := int64(1)
		for open > 0 && i < len(f.elements) {
			c := f.elements[i].children
			if c < 0 || c > maxElements {
				return -1
			}
			open += c - 1
			i++
		}
		if open != 0 {
			return -1
		}
	}
	return n
}

// column reads the column at element i and says how many elements it takes.
func (f *footer) column(i int) (column, int, error) {
	e := f.elements[i]
	known := false
	for _, name := range names {
		known = known || e.name == name
	}
	if !known {
		return column{}, 0, wrong("the column `%s` is not known: a file of tokens has %s", printable(e.name), "`input_ids`, and may have `attention_mask` and `labels`")
	}
	c := column{name: e.name}
	leaf, size := e, 1
	switch {
	case e.children == 0 && e.repetition == repeated: // an unannotated list
		c.maxDef = 1
	case e.children == 1 && e.repetition != repeated && (e.list || e.annotation == listAnnotation):
		if e.repetition == optional {
			c.outer = 1
		}
		middle := f.elements[i+1]
		leaf, size = middle, 2
		if middle.repetition != repeated {
			return c, 0, notList(e.name)
		}
		c.maxDef = c.outer + 1
		if middle.children == 1 {
			leaf, size = f.elements[i+2], 3
			if leaf.repetition == optional {
				c.maxDef++
			}
			if leaf.repetition == repeated {
				return c, 0, notList(e.name)
			}
		} else if middle.children != 0 {
			return c, 0, notList(e.name)
		}
	default:
		return c, 0, notList(e.name)
	}
	if leaf.children != 0 || leaf.kind != int32Type && leaf.kind != int64Type {
		return c, 0, notList(e.name)
	}
	c.kind = leaf.kind
	return c, size, nil
}

func notList(name string) error {
	return wrong("the column `%s` must be a list of integers, INT32 or INT64", name)
}

// printable makes a name from the file fit for a message.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '`' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 60)], "?"))
}
