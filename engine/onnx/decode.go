package onnx

import (
	"fmt"
)

// Decode reads a model. Raw data of tensors shares memory with b, which must
// not change afterwards. Unknown fields are skipped; known ones that the
// structures cannot hold (functions, sparse tensors, sequences as inputs) are
// refused with ErrUnsupported. Errors name the message and the byte.
func Decode(b []byte) (*Model, error) {
	m, err := decodeModel(message{b: b})
	if err != nil {
		return nil, fmt.Errorf("decode model: %w", err)
	}
	return m, nil
}

func decodeModel(msg message) (*Model, error) {
	if len(msg.b) > MaxBytes {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", len(msg.b), MaxBytes)
	}
	m := &Model{}
	err := msg.each(func(f field) (err error) {
		switch f.num {
		case 1:
			m.IRVersion, err = f.int()
		case 2:
			m.Producer, err = f.string()
		case 7:
			m.Graph, err = nested(f, func(b message) (*Graph, error) { return decodeGraph(b, 0) })
		case 8:
			m.Opsets, err = appendNested(m.Opsets, f, decodeOpset)
		case 14:
			err = m.metadata(f)
		case 25:
			err = fmt.Errorf("model-local functions: %w", ErrUnsupported)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.Graph == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	return m, nil
}

func (m *Model) metadata(f field) error {
	kv, err := nested(f, decodeEntry)
	if err != nil {
		return err
	}
	if m.Metadata == nil {
		m.Metadata = map[string]string{}
	}
	m.Metadata[kv[0]] = kv[1]
	return nil
}

// nested decodes the body of a message field.
func nested[T any](f field, decode func(message) (T, error)) (T, error) {
	b, err := f.message()
	if err != nil {
		var zero T
		return zero, err
	}
	return decode(b)
}

// appendNested decodes one entry of a repeated message field, bounded by MaxCount.
func appendNested[T any](list []T, f field, decode func(message) (T, error)) ([]T, error) {
	if len(list) >= MaxCount {
		return list, fmt.Errorf("more than %d entries", MaxCount)
	}
	v, err := nested(f, decode)
	if err != nil {
		return list, err
	}
	return append(list, v), nil
}

func decodeOpset(b message) (o Opset, err error) {
	err = b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			o.Domain, err = f.string()
		case 2:
			o.Version, err = f.int()
		}
		return err
	})
	return o, err
}

// decodeEntry reads a StringStringEntryProto as {key, value}.
func decodeEntry(b message) (kv [2]string, err error) {
	err = b.each(func(f field) (err error) {
		if f.num == 1 || f.num == 2 {
			kv[f.num-1], err = f.string()
		}
		return err
	})
	return kv, err
}

func decodeGraph(b message, depth int) (*Graph, error) {
	if depth >= MaxDepth {
		return nil, fmt.Errorf("graphs nest deeper than %d", MaxDepth)
	}
	g := &Graph{}
	err := b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			g.Nodes, err = appendNested(g.Nodes, f, func(b message) (*Node, error) { return decodeNode(b, depth) })
		case 2:
			g.Name, err = f.string()
		case 5:
			g.Initializers, err = appendNested(g.Initializers, f, decodeTensor)
		case 11:
			g.Inputs, err = appendNested(g.Inputs, f, decodeValue)
		case 12:
			g.Outputs, err = appendNested(g.Outputs, f, decodeValue)
		case 13:
			err = g.intermediate(f)
		case 15:
			err = fmt.Errorf("sparse initializers: %w", ErrUnsupported)
		}
		return err
	})
	return g, err
}

// intermediate keeps the declaration of a tensor. That of another kind of value
// is only a hint for tools and may be dropped.
func (g *Graph) intermediate(f field) error {
	v, err := nested(f, decodeAnyValue)
	if err != nil || !v.tensor {
		return err
	}
	if len(g.Values) >= MaxCount {
		return fmt.Errorf("more than %d entries", MaxCount)
	}
	g.Values = append(g.Values, v.ValueInfo)
	return nil
}

func decodeNode(b message, depth int) (*Node, error) {
	n := &Node{}
	err := b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			n.Inputs, err = appendNested(n.Inputs, f, decodeString)
		case 2:
			n.Outputs, err = appendNested(n.Outputs, f, decodeString)
		case 3:
			n.Name, err = f.string()
		case 4:
			n.OpType, err = f.string()
		case 5:
			n.Attributes, err = appendNested(n.Attributes, f, func(b message) (Attribute, error) { return decodeAttribute(b, depth) })
		case 7:
			n.Domain, err = f.string()
		}
		return err
	})
	return n, err
}

func decodeString(b message) (string, error) { return string(b.b), nil }

func decodeAttribute(b message, depth int) (a Attribute, err error) {
	err = b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			a.Name, err = f.string()
		case 2:
			a.F, err = f.float()
		case 3:
			a.I, err = f.int()
		case 4:
			a.S, err = nested(f, decodeBytes)
		case 5:
			a.T, err = nested(f, decodeTensor)
		case 6:
			a.G, err = nested(f, func(b message) (*Graph, error) { return decodeGraph(b, depth+1) })
		case 7:
			err = a.floats(f)
		case 8:
			err = f.varints(func(v uint64) error { a.Ints = append(a.Ints, int64(v)); return nil })
		case 9:
			a.Strings, err = appendNested(a.Strings, f, decodeBytes)
		case 20:
			var t int64
			t, err = f.int()
			a.Type = AttrType(t)
		case 10, 11, 14, 15, 21, 22, 23:
			err = fmt.Errorf("attribute %q: %w", a.Name, ErrUnsupported)
		}
		return err
	})
	if err == nil {
		err = a.check()
	}
	return a, err
}

func decodeBytes(b message) ([]byte, error) { return b.b, nil }

func (a *Attribute) floats(f field) error {
	b, err := f.fixed(4)
	if err != nil {
		return err
	}
	for ; len(b) > 0; b = b[4:] {
		a.Floats = append(a.Floats, float32At(b))
	}
	return nil
}

// check refuses an attribute whose declared type has no value here.
func (a *Attribute) check() error {
	switch {
	case a.Type < AttrFloat || a.Type > AttrStrings:
		return fmt.Errorf("attribute %q has type %d: %w", a.Name, a.Type, ErrUnsupported)
	case a.Type == AttrTensor && a.T == nil:
		return fmt.Errorf("attribute %q has no tensor", a.Name)
	case a.Type == AttrGraph && a.G == nil:
		return fmt.Errorf("attribute %q has no graph", a.Name)
	}
	return nil
}
