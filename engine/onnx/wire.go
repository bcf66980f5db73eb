package onnx

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is the body of one protobuf message with its place in the file.
type message struct {
	b   []byte
	off int // of b[0] in the file
}

// field is one field of a message; which of val and body is set depends on typ.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	val  uint64  // varint, fixed32, fixed64
	body message // length-delimited
}

var errWireType = errors.New("wrong wire type")

// each calls fn for every field. Errors name the byte where the field starts.
func (m message) each(fn func(f field) error) error {
	for at := 0; at < len(m.b); {
		f, n, err := m.field(at)
		if err == nil {
			err = fn(f)
		}
		if err != nil {
			var located *locatedError
			if errors.As(err, &located) {
				return err // the innermost place is the useful one
			}
			return &locatedError{at: m.off + at, num: f.num, err: err}
		}
		at += n
	}
	return nil
}

// field reads the field at offset at and its length with tag.
func (m message) field(at int) (field, int, error) {
	b := m.b[at:]
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return field{}, 0, protowire.ParseError(n)
	}
	f := field{num: num, typ: typ}
	var k int
	switch typ {
	case protowire.VarintType:
		f.val, k = protowire.ConsumeVarint(b[n:])
	case protowire.Fixed32Type:
		var v uint32
		v, k = protowire.ConsumeFixed32(b[n:])
		f.val = uint64(v)
	case protowire.Fixed64Type:
		f.val, k = protowire.ConsumeFixed64(b[n:])
	case protowire.BytesType:
		var v []byte
		v, k = protowire.ConsumeBytes(b[n:])
		if k >= 0 {
			f.body = message{b: v[:len(v):len(v)], off: m.off + at + n + k - len(v)}
		}
	default:
		return f, 0, errWireType // groups are not part of the format
	}
	if k < 0 {
		return f, 0, protowire.ParseError(k)
	}
	return f, n + k, nil
}

func (f field) int() (int64, error) {
	if f.typ != protowire.VarintType {
		return 0, errWireType
	}
	return int64(f.val), nil
}

func (f field) float() (float32, error) {
	if f.typ != protowire.Fixed32Type {
		return 0, errWireType
	}
	return math.Float32frombits(uint32(f.val)), nil
}

func (f field) message() (message, error) {
	if f.typ != protowire.BytesType {
		return message{}, errWireType
	}
	return f.body, nil
}

func (f field) string() (string, error) {
	m, err := f.message()
	return string(m.b), err
}

// varints calls fn for each value of a repeated varint field, packed or not.
func (f field) varints(fn func(v uint64) error) error {
	if f.typ == protowire.VarintType {
		return fn(f.val)
	}
	if f.typ != protowire.BytesType {
		return errWireType
	}
	for b := f.body.b; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := fn(v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// fixed is the little-endian bytes of a repeated fixed-size field, packed or not.
func (f field) fixed(size int) ([]byte, error) {
	switch {
	case f.typ == protowire.BytesType && len(f.body.b)%size == 0:
		return f.body.b, nil
	case f.typ == protowire.BytesType:
		return nil, fmt.Errorf("%d bytes are no multiple of %d", len(f.body.b), size)
	case f.typ == protowire.Fixed32Type && size == 4:
		return protowire.AppendFixed32(nil, uint32(f.val)), nil
	case f.typ == protowire.Fixed64Type && size == 8:
		return protowire.AppendFixed64(nil, f.val), nil
	}
	return nil, errWireType
}

// locatedError says where in the file a message is broken.
type locatedError struct {
	at  int
	num protowire.Number
	err error
}

func (e *locatedError) Error() string {
	return fmt.Sprintf("byte %d: field %d: %v", e.at, e.num, e.err)
}

func (e *locatedError) Unwrap() error { return e.err }
