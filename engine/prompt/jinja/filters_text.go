package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// replaceFilter works on plain strings, as without autoescape.
func replaceFilter(in *interp, x Value, a []Value) Value {
	count := int64(-1)
	if orNone(a[2]) != nil {
		count = mustIndex(a[2])
	}
	s := in.str(x)
	in.scan(len(s.text))
	return replace(in, s, in.str(a[0]), in.str(a[1]), count)
}

// titleFilter capitalizes what follows blanks, dashes and opening brackets.
func titleFilter(in *interp, s Str) Str {
	first := true
	return s.plain().mapRuns(in, func(text string) string {
		return strings.Map(func(r rune) rune {
			was := first
			first = isSpace(r) || strings.ContainsRune("-({[<", r)
			switch {
			case first:
				return r
			case was:
				return unicode.ToUpper(r)
			}
			return unicode.ToLower(r)
		}, text)
	})
}

func indentFilter(in *interp, x Value, a []Value) Value {
	s := mustStr(x, "indent")
	pad := Trusted("    ")
	if w, ok := a[0].(Str); ok {
		pad = w
	} else if a[0] != absent {
		pad = repeat(in, Trusted(" "), mustIndex(a[0]))
	}
	lines := splitLines(in, concat(in, s, Trusted("\n")), false)
	b := newBuf(in)
	for i, line := range lines {
		if i > 0 {
			b.lit("\n")
		}
		if i > 0 && (line.text != "" || optBool(a[2], false)) || i == 0 && optBool(a[1], false) {
			b.add(pad)
		}
		b.add(line)
	}
	out := b.str()
	out.safe = s.safe
	return out
}

func truncateFilter(in *interp, x Value, a []Value) Value {
	length, leeway, end := optInt(a[0], 255), int64(5), Trusted("...")
	if a[2] != absent {
		end = mustStr(a[2], "truncate")
	}
	if orNone(a[3]) != nil {
		leeway = mustIndex(a[3])
	}
	keep := length - int64(utf8.RuneCountInString(end.text))
	if keep < 0 || leeway < 0 {
		panic(newErr("AssertionError", "truncate: length or leeway is too small"))
	}
	if n := in.length(x).(int64); n <= length+leeway {
		return x
	}
	s := mustStr(x, "truncate")
	cut := s.sub(0, s.offset(int(keep)))
	if !optBool(a[1], false) {
		if i := strings.LastIndexByte(cut.text, ' '); i >= 0 {
			cut = cut.sub(0, i)
		}
	}
	return in.addStr(cut, end)
}

func joinFilter(in *interp, x Value, a []Value) Value {
	var sep Str
	if a[0] != absent {
		sep = in.str(a[0])
	}
	get := func(v Value) Value { return v }
	if orNone(a[1]) != nil {
		get = in.attrGetter(a[1], nil)
	}
	var parts []Str
	next := in.mustIter(x)
	for item, ok := next(); ok; item, ok = next() {
		in.list(3)
		parts = append(parts, in.str(get(item)))
	}
	return join(in, sep, parts)
}

// tojsonFilter is what transformers puts in the place of Jinja2's own.
func tojsonFilter(in *interp, x Value, a []Value) Value {
	w := &jsonWriter{
		in: in, b: newBuf(in), ascii: optBool(a[0], false), sortKeys: optBool(a[3], false),
		pad: neutral, item: ", ", key: ": ", seps: neutral,
	}
	switch v := orNone(a[1]).(type) {
	case nil:
	case Str:
		w.indent, w.pad = &v.text, provenance(!v.anyUntrusted())
	default:
		pad := repeat(in, Trusted(" "), mustIndex(v)).text
		w.indent = &pad
	}
	if w.indent != nil {
		w.item = ","
	}
	if sep := orNone(a[2]); sep != nil {
		pair := in.collect(sep)
		if len(pair) != 2 {
			panic(valueErr("separators must be a pair, got %d values", len(pair)))
		}
		item, key := mustStr(pair[0], "separators"), mustStr(pair[1], "separators")
		w.item, w.key = item.text, key.text
		w.seps = provenance(!item.anyUntrusted() && !key.anyUntrusted())
	}
	w.value(x, 0)
	return w.b.str()
}
