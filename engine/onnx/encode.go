package onnx

import (
	"fmt"
	"math"
	"sort"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encode writes m in the protobuf wire format. The result is deterministic. It
// fails when the result would exceed MaxBytes, when graphs nest deeper than
// MaxDepth, or when an attribute's Type is not one of the declared ones.
func Encode(m *Model) ([]byte, error) {
	if m.Graph == nil {
		return nil, fmt.Errorf("encode model: no graph")
	}
	e := &encoder{buf: make([]byte, 0, sizeHint(m.Graph))}
	e.int(1, m.IRVersion)
	e.string(2, m.Producer)
	e.message(7, func() { e.graph(m.Graph, 0) })
	for _, o := range m.Opsets {
		e.message(8, func() {
			e.string(1, o.Domain)
			e.int(2, o.Version)
		})
	}
	keys := make([]string, 0, len(m.Metadata))
	for k := range m.Metadata {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		e.entry(14, k, m.Metadata[k])
	}
	if e.err == nil && len(e.buf) > MaxBytes {
		e.err = fmt.Errorf("%d bytes exceed the format's limit of %d", len(e.buf), MaxBytes)
	}
	if e.err != nil {
		return nil, fmt.Errorf("encode model: %w", e.err)
	}
	return e.buf, nil
}

// sizeHint guesses the encoded size so that large weights are appended once.
func sizeHint(g *Graph) int {
	n := 64 + 128*len(g.Nodes)
	for _, t := range g.Initializers {
		n += 128 + len(t.Raw)
	}
	return n
}

// encoder appends fields; the first error sticks.
type encoder struct {
	buf []byte
	err error
}

// int writes a varint field, leaving out zero as proto3 does.
func (e *encoder) int(num protowire.Number, v int64) {
	if v != 0 {
		e.rawInt(num, v)
	}
}

// rawInt writes a varint field even when it is zero.
func (e *encoder) rawInt(num protowire.Number, v int64) {
	e.buf = protowire.AppendTag(e.buf, num, protowire.VarintType)
	e.buf = protowire.AppendVarint(e.buf, uint64(v))
}

func (e *encoder) string(num protowire.Number, s string) {
	if s != "" {
		e.rawString(num, s)
	}
}

// rawString writes a string field even when it is empty.
func (e *encoder) rawString(num protowire.Number, s string) {
	e.buf = protowire.AppendTag(e.buf, num, protowire.BytesType)
	e.buf = protowire.AppendString(e.buf, s)
}

func (e *encoder) bytes(num protowire.Number, b []byte) {
	e.buf = protowire.AppendTag(e.buf, num, protowire.BytesType)
	e.buf = protowire.AppendBytes(e.buf, b)
}

// message writes body as a nested message. Its length is known only afterwards,
// so the body is moved to make room: one memmove a level, no extra buffer.
func (e *encoder) message(num protowire.Number, body func()) {
	e.buf = protowire.AppendTag(e.buf, num, protowire.BytesType)
	start := len(e.buf)
	body()
	size := len(e.buf) - start
	room := protowire.SizeVarint(uint64(size))
	e.buf = append(e.buf, make([]byte, room)...)
	copy(e.buf[start+room:], e.buf[start:start+size])
	protowire.AppendVarint(e.buf[:start], uint64(size))
}

// ints writes a packed repeated int64 field.
func (e *encoder) ints(num protowire.Number, vs []int64) {
	if len(vs) == 0 {
		return
	}
	e.message(num, func() {
		for _, v := range vs {
			e.buf = protowire.AppendVarint(e.buf, uint64(v))
		}
	})
}

// entry writes a StringStringEntryProto.
func (e *encoder) entry(num protowire.Number, key, value string) {
	e.message(num, func() {
		e.string(1, key)
		e.string(2, value)
	})
}

func (e *encoder) graph(g *Graph, depth int) {
	if depth >= MaxDepth {
		e.fail("graphs nest deeper than %d", MaxDepth)
		return
	}
	for _, n := range g.Nodes {
		e.message(1, func() { e.node(n, depth) })
	}
	e.string(2, g.Name)
	for _, t := range g.Initializers {
		e.message(5, func() { e.tensor(t) })
	}
	for _, v := range g.Inputs {
		e.message(11, func() { e.value(v) })
	}
	for _, v := range g.Outputs {
		e.message(12, func() { e.value(v) })
	}
	for _, v := range g.Values {
		e.message(13, func() { e.value(v) })
	}
}

func (e *encoder) node(n *Node, depth int) {
	for _, s := range n.Inputs {
		e.rawString(1, s) // an empty name is an omitted input and must stay
	}
	for _, s := range n.Outputs {
		e.rawString(2, s)
	}
	e.string(3, n.Name)
	e.string(4, n.OpType)
	for i := range n.Attributes {
		e.message(5, func() { e.attribute(&n.Attributes[i], depth) })
	}
	e.string(7, n.Domain)
}

func (e *encoder) attribute(a *Attribute, depth int) {
	e.string(1, a.Name)
	switch a.Type {
	case AttrFloat:
		e.buf = protowire.AppendTag(e.buf, 2, protowire.Fixed32Type)
		e.buf = protowire.AppendFixed32(e.buf, math.Float32bits(a.F))
	case AttrInt:
		e.rawInt(3, a.I)
	case AttrString:
		e.bytes(4, a.S)
	case AttrTensor:
		if a.T == nil {
			e.fail("attribute %q has no tensor", a.Name)
			return
		}
		e.message(5, func() { e.tensor(a.T) })
	case AttrGraph:
		if a.G == nil {
			e.fail("attribute %q has no graph", a.Name)
			return
		}
		e.message(6, func() { e.graph(a.G, depth+1) })
	case AttrFloats:
		e.floats(7, a.Floats)
	case AttrInts:
		e.ints(8, a.Ints)
	case AttrStrings:
		for _, s := range a.Strings {
			e.bytes(9, s)
		}
	default:
		e.fail("attribute %q has type %d: %w", a.Name, a.Type, ErrUnsupported)
	}
	e.int(20, int64(a.Type))
}

// floats writes a packed repeated float field.
func (e *encoder) floats(num protowire.Number, vs []float32) {
	if len(vs) == 0 {
		return
	}
	e.buf = protowire.AppendTag(e.buf, num, protowire.BytesType)
	e.buf = protowire.AppendVarint(e.buf, uint64(4*len(vs)))
	for _, v := range vs {
		e.buf = protowire.AppendFixed32(e.buf, math.Float32bits(v))
	}
}

func (e *encoder) tensor(t *Tensor) {
	e.ints(1, t.Dims)
	e.int(2, int64(t.Type))
	e.string(8, t.Name)
	if t.External == nil {
		if err := t.checkRaw(); err != nil {
			e.fail("%w", err)
		}
		e.bytes(9, t.Raw)
		return
	}
	e.entry(13, "location", t.External.Location)
	e.entry(13, "offset", strconv.FormatInt(t.External.Offset, 10))
	if t.External.Length > 0 {
		e.entry(13, "length", strconv.FormatInt(t.External.Length, 10))
	}
	e.int(14, 1) // data_location EXTERNAL
}

// value writes a ValueInfoProto of tensor type.
func (e *encoder) value(v ValueInfo) {
	e.string(1, v.Name)
	e.message(2, func() {
		e.message(1, func() {
			e.int(1, int64(v.Type))
			if v.Dims == nil {
				return
			}
			e.message(2, func() { e.dims(v.Dims) })
		})
	})
}

func (e *encoder) dims(dims []Dim) {
	for _, d := range dims {
		e.message(1, func() {
			switch {
			case d.Symbol != "":
				e.rawString(2, d.Symbol)
			case d.Size >= 0:
				e.rawInt(1, d.Size)
			}
		})
	}
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}
