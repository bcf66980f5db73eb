package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// format is s.format(a): replacement fields with attributes, subscripts,
// conversions and format specifications. A specification may hold fields of its
// own, one level deep.
func (in *interp) format(s Str, a *args) Value {
	f := &braceFormat{in: in, a: a}
	out := f.expand(s, 2)
	out.safe = s.safe
	return out
}

type braceFormat struct {
	in   *interp
	a    *args
	auto int // next automatic field number; -1 once fields are numbered
}

func (f *braceFormat) expand(s Str, depth int) Str {
	if depth < 0 {
		panic(valueErr("Max string recursion exceeded"))
	}
	b := newBuf(f.in)
	text := s.text
	for at := 0; at < len(text); {
		i := strings.IndexAny(text[at:], "{}")
		if i < 0 {
			b.add(s.sub(at, len(text)))
			break
		}
		f.in.tick(1 + len(s.runs)/16)
		b.add(s.sub(at, at+i))
		at += i
		c := text[at]
		if at+1 < len(text) && text[at+1] == c {
			b.add(s.sub(at, at+1))
			at += 2
			continue
		}
		if c == '}' {
			panic(valueErr("Single '}' encountered in format string"))
		}
		end := closing(text, at)
		b.add(f.field(s.sub(at+1, end), s.safe, depth))
		at = end + 1
	}
	return b.str()
}

// closing returns where the field that begins at at ends.
func closing(s string, at int) int {
	depth := 0
	for i := at; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	panic(valueErr("expected '}' before end of string"))
}

func (f *braceFormat) field(s Str, markup bool, depth int) Str {
	name, format, conv := s.text, Str{}, byte(0)
	if i := strings.IndexAny(name, ":!"); i >= 0 {
		rest := s.sub(i, len(s.text))
		name = name[:i]
		if rest.text[0] == '!' {
			if len(rest.text) < 2 || len(rest.text) > 2 && rest.text[2] != ':' {
				panic(valueErr("expected ':' after conversion specifier"))
			}
			conv = rest.text[1]
			rest = rest.sub(2, len(rest.text))
		}
		if rest.text != "" {
			format = rest.sub(1, len(rest.text))
		}
	}
	v := f.value(name)
	switch conv {
	case 0:
	case 's':
		v = f.in.str(v)
	case 'r', 'a':
		b := newBuf(f.in)
		f.in.repr(b, v)
		v = b.str()
	default:
		panic(valueErr("Unknown conversion specifier '%c'", conv))
	}
	out := f.in.field(v, parseSpec(f.expand(format, depth-1).text))
	if s, ok := v.(Str); markup && !(ok && s.safe) {
		out = escape(f.in, out).plain()
	}
	return out
}

// value looks a field name such as "0.name[key]" up.
func (f *braceFormat) value(path string) Value {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	v := f.argument(path[:end])
	for rest := path[end:]; rest != ""; {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			v = f.in.getattr(v, rest[1:end])
			rest = rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 0 {
			panic(valueErr("Missing ']' in format string"))
		}
		var key Value = Trusted(rest[1:end])
		if n, err := strconv.ParseUint(rest[1:end], 10, 62); err == nil {
			key = int64(n)
		}
		v = f.in.getitem(v, key)
		rest = rest[end+1:]
	}
	return v
}

func (f *braceFormat) argument(name string) Value {
	n, err := strconv.ParseUint(name, 10, 31)
	switch {
	case name == "":
		if f.auto < 0 {
			panic(valueErr("cannot switch from manual field specification to automatic field numbering"))
		}
		n = uint64(f.auto)
		f.auto++
	case err == nil:
		if f.auto > 0 {
			panic(valueErr("cannot switch from automatic field numbering to manual field specification"))
		}
		f.auto = -1
	default:
		for _, k := range f.a.kw {
			if k.name == name {
				return k.v
			}
		}
		panic(newErr("KeyError", "%q", name))
	}
	if n >= uint64(len(f.a.pos)) {
		panic(newErr("IndexError", "Replacement index %d out of range for positional args tuple", n))
	}
	return f.a.pos[n]
}

// parseSpec reads [[fill]align][sign][#][0][width][group][.precision][type].
func parseSpec(s string) spec {
	f := spec{prec: -1}
	isAlign := func(i int) bool { return i < len(s) && strings.IndexByte("<>^=", s[i]) >= 0 }
	if r, n := utf8.DecodeRuneInString(s); s != "" && isAlign(n) {
		f.fill, f.align, s = r, s[n], s[n+1:]
	} else if isAlign(0) {
		f.align, s = s[0], s[1:]
	}
	take := func(set string) byte {
		if s == "" || strings.IndexByte(set, s[0]) < 0 {
			return 0
		}
		c := s[0]
		s = s[1:]
		return c
	}
	number := func() (n int64, any bool) {
		for c := take("0123456789"); c != 0; c = take("0123456789") {
			n, any = min(n*10+int64(c-'0'), 1<<31), true
		}
		return n, any
	}
	f.sign = take("+- ")
	f.alt = take("#") != 0
	if take("0") != 0 && f.align == 0 {
		f.align = '='
		if f.fill == 0 {
			f.fill = '0'
		}
	}
	f.width, _ = number()
	f.group = take(",_")
	if take(".") != 0 {
		var ok bool
		if f.prec, ok = number(); !ok {
			panic(valueErr("Format specifier missing precision"))
		}
	}
	if len(s) > 1 {
		panic(valueErr("Invalid format specifier"))
	}
	if s != "" {
		f.letter = s[0]
	}
	return f
}
