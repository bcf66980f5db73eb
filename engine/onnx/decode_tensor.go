package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

// The typed fields of TensorProto.
const (
	floatData  = 4
	int32Data  = 5
	int64Data  = 7
	doubleData = 10
	uint64Data = 11
)

func decodeTensor(b message) (*Tensor, error) {
	t := &Tensor{}
	var typed []field
	var external map[string]string
	raw, outside := false, false
	err := b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			err = f.varints(t.appendDim)
		case 2:
			var v int64
			v, err = f.int()
			t.Type = DataType(v)
		case floatData, int32Data, int64Data, doubleData, uint64Data:
			if len(typed) >= MaxCount {
				return fmt.Errorf("more than %d entries", MaxCount)
			}
			typed = append(typed, f)
		case 3, 6:
			err = fmt.Errorf("segments and strings in tensors: %w", ErrUnsupported)
		case 8:
			t.Name, err = f.string()
		case 9:
			raw = true
			t.Raw, err = nested(f, decodeBytes)
		case 13:
			external, err = addEntry(external, f)
		case 14:
			var v int64
			v, err = f.int()
			outside = v == 1
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if outside {
		t.External, err = newExternal(external)
	} else if !raw {
		t.Raw, err = t.fromTyped(typed)
	}
	if err == nil && t.External == nil {
		err = t.checkRaw()
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return t, nil
}

func (t *Tensor) appendDim(v uint64) error {
	if len(t.Dims) >= MaxRank {
		return fmt.Errorf("more than %d dimensions", MaxRank)
	}
	t.Dims = append(t.Dims, int64(v))
	return nil
}

// checkRaw compares the data with what shape and type ask for.
func (t *Tensor) checkRaw() error {
	want, err := t.ByteSize()
	if err != nil {
		return err
	}
	if int64(len(t.Raw)) != want {
		return fmt.Errorf("tensor %q: %d bytes of data, shape %v needs %d", t.Name, len(t.Raw), t.Dims, want)
	}
	return nil
}

func addEntry(m map[string]string, f field) (map[string]string, error) {
	kv, err := nested(f, decodeEntry)
	if err != nil {
		return m, err
	}
	if m == nil {
		m = map[string]string{}
	}
	if len(m) >= 64 {
		return m, fmt.Errorf("more than 64 entries")
	}
	m[kv[0]] = kv[1]
	return m, nil
}

// newExternal reads the entries of external_data. The location must stay inside
// the model's folder.
func newExternal(m map[string]string) (*External, error) {
	e := &External{Location: m["location"]}
	if !localPath(e.Location) {
		return nil, fmt.Errorf("external data: location %q leaves the model's folder", e.Location)
	}
	for key, dst := range map[string]*int64{"offset": &e.Offset, "length": &e.Length} {
		s, ok := m[key]
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("external data: %s is %q", key, s)
		}
		*dst = v
	}
	if e.Offset > math.MaxInt64-e.Length {
		return nil, fmt.Errorf("external data: offset %d and length %d overflow", e.Offset, e.Length)
	}
	return e, nil
}

// localPath reports whether p is relative and has no step upwards. A leading
// star is refused as well: runtimes give such names meanings of their own
// (ONNX Runtime reads "*/_ORT_MEM_ADDR_/*" as an address in memory).
func localPath(p string) bool {
	if strings.HasPrefix(p, "*") {
		return false
	}
	clean := path.Clean(strings.ReplaceAll(p, `\`, "/"))
	return p != "" && !path.IsAbs(clean) && clean != ".." && !strings.HasPrefix(clean, "../") && !strings.Contains(p, "\x00")
}

// fromTyped converts the typed data fields to the layout of raw_data.
func (t *Tensor) fromTyped(fields []field) ([]byte, error) {
	want := map[DataType]int{Float: floatData, Double: doubleData, Int64: int64Data, Uint64: uint64Data, Uint32: uint64Data}[t.Type]
	if want == 0 {
		want = int32Data
	}
	out := []byte{}
	for _, f := range fields {
		if int(f.num) != want {
			return nil, fmt.Errorf("data type %d in field %d", t.Type, f.num)
		}
		var err error
		switch want {
		case floatData, doubleData:
			var b []byte
			b, err = f.fixed(t.Type.Bits() / 8)
			out = append(out, b...)
		default:
			err = f.varints(func(v uint64) error { out = appendInt(out, v, t.Type.Bits()); return nil })
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// appendInt appends the low bits of v; a pair of 4-bit elements shares one.
func appendInt(out []byte, v uint64, bits int) []byte {
	switch bits {
	case 16:
		return binary.LittleEndian.AppendUint16(out, uint16(v))
	case 32:
		return binary.LittleEndian.AppendUint32(out, uint32(v))
	case 64:
		return binary.LittleEndian.AppendUint64(out, v)
	}
	return append(out, byte(v))
}

func float32At(b []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// anyValue is a ValueInfoProto; tensor says whether it declares a tensor.
type anyValue struct {
	ValueInfo
	tensor bool
}

func decodeValue(b message) (ValueInfo, error) {
	v, err := decodeAnyValue(b)
	if err == nil && !v.tensor {
		err = fmt.Errorf("value %q is not a tensor: %w", v.Name, ErrUnsupported)
	}
	return v.ValueInfo, err
}

func decodeAnyValue(b message) (v anyValue, err error) {
	err = b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			v.Name, err = f.string()
		case 2: // TypeProto, whose field 1 is the tensor type
			body, err := f.message()
			if err != nil {
				return err
			}
			return body.each(func(f field) error {
				if f.num != 1 {
					return nil
				}
				v.tensor = true
				body, err := f.message()
				if err != nil {
					return err
				}
				return body.each(v.tensorType)
			})
		}
		return err
	})
	return v, err
}

// tensorType reads a field of TypeProto.Tensor.
func (v *anyValue) tensorType(f field) error {
	switch f.num {
	case 1:
		t, err := f.int()
		v.Type = DataType(t)
		return err
	case 2:
		v.Dims = []Dim{}
		body, err := f.message()
		if err != nil {
			return err
		}
		return body.each(func(f field) (err error) {
			if f.num == 1 {
				if len(v.Dims) >= MaxRank {
					return fmt.Errorf("more than %d dimensions", MaxRank)
				}
				v.Dims, err = appendNested(v.Dims, f, decodeDim)
			}
			return err
		})
	}
	return nil
}

func decodeDim(b message) (d Dim, err error) {
	d.Size = -1
	err = b.each(func(f field) (err error) {
		switch f.num {
		case 1:
			d.Size, err = f.int()
			if err == nil && d.Size < 0 {
				d.Size = -1 // some exporters write -1 for an open dimension
			}
		case 2:
			d.Symbol, err = f.string()
			if d.Symbol != "" {
				d.Size = 0
			}
		}
		return err
	})
	return d, err
}
