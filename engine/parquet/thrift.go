package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of the Thrift compact protocol.
const (
	typeStop   = 0
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeMap    = 11
	typeStruct = 12
)

// maxNesting bounds the structs and lists inside each other.
const maxNesting = 16

var errShort = errors.New("the metadata ends too early")

// thrift reads the Thrift compact protocol from memory. After an error, which
// it keeps, everything reads as zero or absent.
type thrift struct {
	b     []byte
	at    int
	depth int
	err   error
}

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.at = len(t.b)
}

func (t *thrift) byte() byte {
	if t.at >= len(t.b) {
		t.fail(errShort)
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.b[t.at:])
	if n <= 0 {
		t.fail(errShort)
		return 0
	}
	t.at += n
	return v
}

// int reads a zigzag integer.
func (t *thrift) int() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// bytes reads a binary, which stays part of the input.
func (t *thrift) bytes() []byte {
	n := t.uvarint()
	if n > uint64(len(t.b)-t.at) {
		t.fail(errShort)
		return nil
	}
	t.at += int(n)
	return t.b[t.at-int(n) : t.at]
}

// fields calls f for each field of a struct. What f does not read must be passed
// to skip.
func (t *thrift) fields(f func(id int16, kind byte)) {
	if t.depth++; t.depth > maxNesting {
		t.fail(errors.New("the metadata is nested too deep"))
		return
	}
	defer func() { t.depth-- }()
	id := int16(0)
	for {
		head := t.byte()
		kind := head & 15
		if kind == typeStop || t.err != nil {
			return
		}
		if delta := int16(head >> 4); delta != 0 {
			id += delta
		} else {
			id = int16(t.int())
		}
		f(id, kind)
	}
}

// list calls f for each element; it refuses lists of more than most.
func (t *thrift) list(most int, f func(kind byte)) {
	if t.depth++; t.depth > maxNesting {
		t.fail(errors.New("the metadata is nested too deep"))
		return
	}
	defer func() { t.depth-- }()
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	// An element takes at least a byte, except that booleans are said to.
	if n > uint64(most) || n > uint64(len(t.b)-t.at) {
		t.fail(fmt.Errorf("the metadata holds a list of %d elements, %d are allowed", n, most))
		return
	}
	for range n {
		if t.err != nil {
			return
		}
		f(head & 15)
	}
}

// skip passes over a value.
func (t *thrift) skip(kind byte) { t.pass(kind, false) }

// pass is skip; booleans take a byte inside a list or map only.
func (t *thrift) pass(kind byte, element bool) {
	switch kind {
	case typeTrue, typeFalse:
		if element {
			t.byte()
		}
	case typeByte:
		t.byte()
	case typeI16, typeI32, typeI64:
		t.uvarint()
	case typeDouble:
		for range 8 {
			t.byte()
		}
	case typeBinary:
		t.bytes()
	case typeList, typeSet:
		t.list(len(t.b), func(kind byte) { t.pass(kind, true) })
	case typeMap:
		t.passMap()
	case typeStruct:
		t.fields(func(_ int16, kind byte) { t.skip(kind) })
	default:
		t.fail(fmt.Errorf("the metadata holds a value of the unknown type %d", kind))
	}
}

func (t *thrift) passMap() {
	if t.depth++; t.depth > maxNesting {
		t.fail(errors.New("the metadata is nested too deep"))
		return
	}
	defer func() { t.depth-- }()
	n := t.uvarint()
	if n == 0 {
		return
	}
	kinds := t.byte()
	if n > uint64(len(t.b)-t.at) {
		t.fail(errShort)
		return
	}
	for range n {
		if t.err != nil {
			return
		}
		t.pass(kinds>>4, true)
		t.pass(kinds&15, true)
	}
}

// Typed fields: a value of another type than the specification's is an error.

func (t *thrift) wantInt(kind byte) int64 {
	if kind < typeI16 || kind > typeI64 {
		t.fail(errors.New("the metadata has a field of the wrong type"))
		return 0
	}
	return t.int()
}

func (t *thrift) wantBytes(kind byte) []byte {
	if kind != typeBinary {
		t.fail(errors.New("the metadata has a field of the wrong type"))
		return nil
	}
	return t.bytes()
}

func (t *thrift) wantStruct(kind byte, f func(id int16, kind byte)) {
	if kind != typeStruct {
		t.fail(errors.New("the metadata has a field of the wrong type"))
		return
	}
	t.fields(f)
}

func (t *thrift) wantList(kind byte, most int, f func(kind byte)) {
	if kind != typeList {
		t.fail(errors.New("the metadata has a field of the wrong type"))
		return
	}
	t.list(most, f)
}
