package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
)

// DecodeJSON reads one JSON value as Python's json.loads does: objects keep
// their order (a repeated key keeps its first place and its last value), numbers
// without fraction or exponent are ints of any size up to 4300 digits. All text
// is untrusted. Values nested deeper than 200 are refused.
func DecodeJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("byte %d: more than one JSON value", d.InputOffset())
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (Value, error) {
	tok, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Delim:
		if depth >= maxDepth {
			return nil, fmt.Errorf("nested deeper than %d", maxDepth)
		}
		if tok == '[' {
			return decodeList(d, depth+1)
		}
		return decodeDict(d, depth+1)
	case json.Number:
		return decodeNumber(tok.String())
	case string:
		return Untrusted(tok), nil
	case bool:
		return tok, nil
	}
	return nil, nil
}

func decodeList(d *json.Decoder, depth int) (Value, error) {
	l := &List{}
	for d.More() {
		v, err := decodeValue(d, depth)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	_, err := d.Token()
	return l, err
}

func decodeDict(d *json.Decoder, depth int) (Value, error) {
	out := NewDict()
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := tok.(string)
		if !ok {
			return nil, errors.New("an object key is not a string")
		}
		v, err := decodeValue(d, depth)
		if err != nil {
			return nil, err
		}
		out.Set(Untrusted(key), v)
	}
	_, err := d.Token()
	return out, err
}

func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, _ := strconv.ParseFloat(s, 64) // out of range is inf, as in Python
		return f, nil
	}
	if len(s) > 4300 {
		return nil, errors.New("an integer of more than 4300 digits")
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.BitLen() > maxBits {
		return nil, fmt.Errorf("not an integer within bounds: %.40s", s)
	}
	return normInt(n), nil
}

// jsonWriter is json.dumps.
type jsonWriter struct {
	in       *interp
	b        *strBuf
	ascii    bool
	sortKeys bool
	indent   *string // nil: all on one line
	pad      mark    // provenance of indent
	item     string  // between entries
	key      string  // between key and value
	seps     mark    // provenance of the two
}

func (w *jsonWriter) value(v Value, level int) {
	w.in.tick(1)
	switch v := v.(type) {
	case nil:
		w.b.put("null", neutral)
	case bool:
		w.b.put(strconv.FormatBool(v), neutral)
	case int64, *big.Int:
		w.in.repr(w.b, v)
	case float64:
		w.b.put(jsonFloat(v), neutral)
	case Str:
		w.str(v)
	case *List:
		w.items(v.Items, level+1)
	case Tuple:
		w.items(v, level+1)
	case *Dict:
		w.dict(v, level+1)
	default:
		panic(typeErr("Object of type %s is not JSON serializable", typeName(v)))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func (w *jsonWriter) newline(level int) {
	if w.indent != nil {
		w.b.put("\n", neutral)
		for range level {
			w.b.put(*w.indent, w.pad)
		}
	}
}

func (w *jsonWriter) items(items []Value, level int) {
	if len(items) == 0 {
		w.b.put("[]", neutral)
		return
	}
	w.in.enter()
	defer w.in.leave()
	w.b.put("[", neutral)
	for i, item := range items {
		if i > 0 {
			w.b.put(w.item, w.seps)
		}
		w.newline(level)
		w.value(item, level)
	}
	w.newline(level - 1)
	w.b.put("]", neutral)
}

func (w *jsonWriter) dict(d *Dict, level int) {
	if len(d.keys) == 0 {
		w.b.put("{}", neutral)
		return
	}
	w.in.enter()
	defer w.in.leave()
	order := make([]Value, len(d.keys))
	w.in.list(len(order))
	for i := range order {
		order[i] = int64(i)
	}
	if w.sortKeys {
		w.in.sort(order, false, func(v Value) Value { return d.keys[v.(int64)] })
	}
	w.b.put("{", neutral)
	for n, at := range order {
		if n > 0 {
			w.b.put(w.item, w.seps)
		}
		w.newline(level)
		w.dictKey(d.keys[at.(int64)])
		w.b.put(w.key, w.seps)
		w.value(d.vals[at.(int64)], level)
	}
	w.newline(level - 1)
	w.b.put("}", neutral)
}

// dictKey writes a key; numbers, booleans and None become strings.
func (w *jsonWriter) dictKey(k Value) {
	switch k.(type) {
	case Str:
		w.value(k, 0)
	case nil, bool, int64, *big.Int, float64:
		w.b.put(`"`, neutral)
		w.value(k, 0)
		w.b.put(`"`, neutral)
	default:
		panic(typeErr("keys must be str, int, float, bool or None, not %s", typeName(k)))
	}
}

func (w *jsonWriter) str(s Str) {
	w.in.scan(2 * len(s.text))
	w.b.put(`"`, neutral)
	for text, ok := range s.Spans {
		w.b.put(jsonEscape(text, w.ascii), provenance(ok))
	}
	w.b.put(`"`, neutral)
}

func jsonEscape(s string, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || ascii && r > 0x7e && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case ascii && r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
