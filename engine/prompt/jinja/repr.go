package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str(v).
func (in *interp) str(v Value) Str {
	switch v := v.(type) {
	case Str:
		return v.plain()
	case *Undefined:
		return Str{}
	case int64:
		return Trusted(strconv.FormatInt(v, 10))
	}
	b := newBuf(in)
	in.repr(b, v)
	return b.str()
}

// repr writes repr(v).
func (in *interp) repr(b *strBuf, v Value) {
	in.tick(1)
	switch v := v.(type) {
	case nil:
		b.put("None", neutral)
	case bool:
		if v {
			b.put("True", neutral)
		} else {
			b.put("False", neutral)
		}
	case int64:
		b.put(strconv.FormatInt(v, 10), neutral)
	case *big.Int:
		in.scan(v.BitLen() * 8)
		b.put(v.String(), neutral)
	case float64:
		b.put(floatRepr(v), neutral)
	case Str:
		in.reprStr(b, v)
	case *List:
		in.reprItems(b, "[", v.Items, "]")
	case Tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		in.reprItems(b, "(", v, end)
	case *Dict:
		in.reprDict(b, v)
	case *dictView:
		b.put("dict_"+v.kind+"(", neutral)
		items := make([]Value, len(v.d.keys))
		in.list(len(items))
		for i := range items {
			items[i] = v.item(i)
		}
		in.reprItems(b, "[", items, "]")
		b.put(")", neutral)
	case *Range:
		b.put(v.repr(), neutral)
	case *Namespace:
		b.put("<Namespace ", neutral)
		in.reprDict(b, v.attrs)
		b.put(">", neutral)
	case *Undefined:
		b.put("Undefined", neutral)
	case *Macro:
		b.put("<Macro '"+v.def.name+"'>", neutral)
	case *loopVar:
		b.put(fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.length()), neutral)
	case *iterator:
		b.put("<"+v.kind+" object>", neutral) // Python adds an address
	case *builtin:
		b.put("<function "+v.name+">", neutral)
	default:
		b.put("<"+typeName(v)+" object>", neutral)
	}
}

func (in *interp) reprItems(b *strBuf, open string, items []Value, end string) {
	in.enter()
	defer in.leave()
	b.put(open, neutral)
	for i, item := range items {
		if i > 0 {
			b.put(", ", neutral)
		}
		in.repr(b, item)
	}
	b.put(end, neutral)
}

func (in *interp) reprDict(b *strBuf, d *Dict) {
	in.enter()
	defer in.leave()
	b.put("{", neutral)
	for i, k := range d.keys {
		if i > 0 {
			b.put(", ", neutral)
		}
		in.repr(b, k)
		b.put(": ", neutral)
		in.repr(b, d.vals[i])
	}
	b.put("}", neutral)
}

func (r *Range) repr() string {
	if r.step == 1 {
		return fmt.Sprintf("range(%d, %d)", r.start, r.stop)
	}
	return fmt.Sprintf("range(%d, %d, %d)", r.start, r.stop, r.step)
}

// reprStr writes a string literal as Python does: single quotes unless the
// text has some and no double ones.
func (in *interp) reprStr(b *strBuf, s Str) {
	in.scan(4 * len(s.text))
	quote := "'"
	if strings.Contains(s.text, "'") && !strings.Contains(s.text, `"`) {
		quote = `"`
	}
	if s.safe {
		b.put("Markup(", neutral)
	}
	b.put(quote, neutral)
	for text, ok := range s.Spans {
		b.put(pythonEscape(text, quote[0]), provenance(ok))
	}
	b.put(quote, neutral)
	if s.safe {
		b.put(")", neutral)
	}
}

func pythonEscape(s string, quote byte) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// floatRepr is repr of a float: the shortest digits that read back the same,
// with an exponent below 1e-4 and from 1e16.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	at := strings.IndexByte(s, 'e')
	if exp, _ := strconv.Atoi(s[at+1:]); exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}
