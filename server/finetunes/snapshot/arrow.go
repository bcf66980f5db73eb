package snapshot

import (
	"encoding/binary"
	"io"
	"math"
)

// Constants of the Arrow IPC schema (Message.fbs, Schema.fbs).
const (
	versionV5     = 4
	headerSchema  = 1
	headerBatch   = 3
	typeInt       = 2
	typeList      = 12
	continuation  = 0xffffffff
	bodyAlignment = 8
)

// column is a list column: the lists of all rows, and the bits of an item.
type column struct {
	name string
	bits int // 8, 32 or 64, signed
	rows [][]int64
}

func number(size int, v int) scalar { return scalar{size, uint64(v)} }

// fits reports whether v can be an item of the column.
func (c column) fits(v int64) bool {
	return c.bits == 64 || v >= -1<<(c.bits-1) && v < 1<<(c.bits-1)
}

// writeArrow writes the columns, all with the same number of rows, as an Arrow IPC
// stream with one record batch. meta becomes metadata of the schema.
func writeArrow(w io.Writer, columns []column, meta [][2]string) error {
	if err := writeMessage(w, headerSchema, schema(columns, meta), nil); err != nil {
		return err
	}
	header, body := batch(columns)
	if err := writeMessage(w, headerBatch, header, body); err != nil {
		return err
	}
	_, err := w.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) // the end of the stream
	return err
}

// writeMessage frames a header table and its body.
func writeMessage(w io.Writer, kind int, header table, body []byte) error {
	meta := flatten(table{number(2, versionV5), number(1, kind), header, number(8, len(body))})
	for len(meta)%8 != 0 {
		meta = append(meta, 0)
	}
	var prefix [8]byte
	binary.LittleEndian.PutUint32(prefix[:], continuation)
	binary.LittleEndian.PutUint32(prefix[4:], uint32(len(meta)))
	for _, part := range [][]byte{prefix[:], meta, body} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// schema describes the columns: Schema{endianness, fields, custom_metadata}.
func schema(columns []column, meta [][2]string) table {
	var fields, pairs []table
	for _, c := range columns {
		item := field("item", typeInt, table{number(4, c.bits), number(1, 1)}, []table{})
		fields = append(fields, field(c.name, typeList, table{}, []table{item}))
	}
	for _, kv := range meta {
		pairs = append(pairs, table{kv[0], kv[1]})
	}
	return table{number(2, 0), fields, pairs}
}

// field is Field{name, nullable, type_type, type, dictionary, children}.
func field(name string, kind int, typ table, children []table) table {
	return table{name, number(1, 1), number(1, kind), typ, nil, children}
}

// batch gives RecordBatch{length, nodes, buffers} and its body. A list column has
// two nodes, the lists and their items, each with an empty validity bitmap, and the
// buffers of the offsets and of the items.
func batch(columns []column) (header table, body []byte) {
	var nodes, buffers structs
	add := func(data []byte) {
		buffers = append(buffers, [2]int64{int64(len(body)), int64(len(data))})
		body = append(body, data...)
		for len(body)%bodyAlignment != 0 {
			body = append(body, 0)
		}
	}
	rows := 0
	for _, c := range columns {
		rows = len(c.rows)
		var items []byte
		offsets := binary.LittleEndian.AppendUint32(nil, 0)
		count := 0
		for _, row := range c.rows {
			for _, v := range row {
				items = appendItem(items, c.bits, v)
			}
			count += len(row)
			offsets = binary.LittleEndian.AppendUint32(offsets, uint32(count))
		}
		nodes = append(nodes, [2]int64{int64(rows), 0}, [2]int64{int64(count), 0})
		add(nil)
		add(offsets)
		add(nil)
		add(items)
	}
	return table{number(8, rows), nodes, buffers}, body
}

func appendItem(b []byte, bits int, v int64) []byte {
	switch bits {
	case 8:
		return append(b, byte(v))
	case 32:
		return binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(b, uint64(v))
}

// maxItems keeps the offsets of a column within 32 bits.
const maxItems = math.MaxInt32
