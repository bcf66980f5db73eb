package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is a format specification, of str.format or of the % operator.
type spec struct {
	fill   rune // 0: none given
	align  byte // '<', '>', '^', '=', or 0
	sign   byte // '+', '-' or ' '
	alt    bool // '#'
	width  int64
	group  byte  // ',' or '_', or 0
	prec   int64 // -1: none given
	letter byte  // or 0
}

// field writes v as a specification says. Width and precision are bounded by
// the budget of strings.
func (in *interp) field(v Value, f spec) Str {
	switch x := v.(type) {
	case Str:
		if f.letter != 0 && f.letter != 's' || f.align == '=' || f.sign != 0 || f.group != 0 {
			panic(valueErr("Invalid format specifier for object of type 'str'"))
		}
		if f.prec >= 0 && f.prec < int64(x.length(in)) {
			x = x.sub(0, x.offset(int(f.prec)))
		}
		return in.fillTo(x, f, '<')
	case float64:
		return in.formatNumber(x, f)
	case bool, int64, *big.Int:
		return in.formatNumber(x, f)
	case *Undefined:
		if f == (spec{prec: -1}) {
			return Str{}
		}
		panic(x.err())
	}
	if f != (spec{prec: -1}) {
		panic(typeErr("unsupported format string passed to %s.__format__", typeName(v)))
	}
	return in.str(v)
}

func (in *interp) fillTo(s Str, f spec, align byte) Str {
	if f.align != 0 {
		align = f.align
	}
	fill := f.fill
	if fill == 0 {
		fill = ' '
	}
	missing := f.width - int64(s.length(in))
	if missing <= 0 {
		return s
	}
	left, right := missing, int64(0)
	switch align {
	case '<':
		left, right = 0, missing
	case '^':
		left, right = missing/2, missing-missing/2
	}
	pad := Trusted(string(fill))
	return concat(in, repeat(in, pad, left), s, repeat(in, pad, right))
}

func (in *interp) formatNumber(v Value, f spec) Str {
	_, isFloat := v.(float64)
	if _, isBool := v.(bool); isBool && f == (spec{prec: -1}) {
		return in.fillTo(in.str(v), f, '<')
	}
	digits, negative := "", false
	switch f.letter {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		digits, negative = in.formatFloat(toFloat(v), f)
	case 0:
		if isFloat {
			digits, negative = in.formatFloat(toFloat(v), f)
			break
		}
		fallthrough
	case 'd', 'n', 'b', 'o', 'x', 'X', 'c':
		if isFloat {
			panic(valueErr("Unknown format code '%c' for object of type 'float'", f.letter))
		}
		if f.prec >= 0 {
			panic(valueErr("Precision not allowed in integer format specifier"))
		}
		digits, negative = formatInt(toBig(v), f)
	default:
		panic(valueErr("Unknown format code '%c' for object of type '%s'", f.letter, typeName(v)))
	}
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign == '+' || f.sign == ' ':
		sign = string(f.sign)
	}
	if f.align == '=' {
		inner := f
		inner.align, inner.width = '>', f.width-int64(len(sign))
		return concat(in, Trusted(sign), in.fillTo(Trusted(digits), inner, '>'))
	}
	return in.fillTo(Trusted(sign+digits), f, '>')
}

func formatInt(n *big.Int, f spec) (digits string, negative bool) {
	abs := new(big.Int).Abs(n)
	negative = n.Sign() < 0
	prefix, every := "", 3
	switch f.letter {
	case 'c':
		if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune || !utf8.ValidRune(rune(n.Int64())) {
			panic(newErr("OverflowError", "%%c arg not in range(0x110000)"))
		}
		return string(rune(n.Int64())), false
	case 'b', 'o', 'x', 'X':
		every = 4
		base := map[byte]int{'b': 2, 'o': 8, 'x': 16, 'X': 16}[f.letter]
		digits = abs.Text(base)
		if f.letter == 'X' {
			digits = strings.ToUpper(digits)
		}
		if f.alt {
			prefix = "0" + string(f.letter)
		}
	default:
		digits = abs.String()
	}
	return prefix + grouped(digits, f.group, every), negative
}

// grouped puts a separator between groups of digits, counted from the right.
func grouped(digits string, sep byte, every int) string {
	if sep == 0 {
		return digits
	}
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (in *interp) formatFloat(v float64, f spec) (digits string, negative bool) {
	negative = math.Signbit(v) && !math.IsNaN(v)
	v = math.Abs(v)
	percent := ""
	if f.letter == '%' {
		v, percent = v*100, "%"
	}
	switch {
	case math.IsNaN(v):
		digits = "nan"
	case math.IsInf(v, 0):
		digits = "inf"
	default:
		digits = in.floatDigits(v, f)
	}
	if f.letter == 'E' || f.letter == 'G' || f.letter == 'F' {
		digits = strings.ToUpper(digits)
	}
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".eE"); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	return grouped(whole, f.group, 3) + rest + percent, negative
}

func (in *interp) floatDigits(v float64, f spec) string {
	prec := f.prec
	if prec > 10_000 {
		panic(valueErr("precision too big"))
	}
	in.tick(int(max(prec, 0)))
	if prec < 0 {
		prec = 6
	}
	switch f.letter {
	case 'e', 'E':
		return strconv.FormatFloat(v, 'e', int(prec), 64)
	case 'f', 'F', '%':
		return strconv.FormatFloat(v, 'f', int(prec), 64)
	case 0:
		if f.prec < 0 {
			return floatRepr(v)
		}
	}
	return general(v, int(max(prec, 1)), f.alt, f.letter == 0)
}

// general is the g format: exponents below 1e-4 and from 10**prec. Without a
// letter a float keeps one digit after its point.
func general(v float64, prec int, alt, bare bool) string {
	e := strconv.FormatFloat(v, 'e', prec-1, 64)
	at := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[at+1:])
	limit := prec
	if bare {
		limit = prec - 1
	}
	trim := func(s string) string {
		if !alt && strings.Contains(s, ".") {
			s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if exp < -4 || exp >= limit && (exp >= prec || bare) {
		return trim(e[:at]) + e[at:]
	}
	s := trim(strconv.FormatFloat(v, 'f', max(prec-1-exp, 0), 64))
	if bare && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// formatFilter is the filter format: the % operator.
func formatFilter(in *interp, x Value, a *args) Value {
	if len(a.kw) == 0 {
		return in.percent(in.soft(x), Tuple(a.pos))
	}
	if len(a.pos) > 0 {
		panic(newErr("FilterArgumentError", "can't handle positional and keyword arguments at the same time"))
	}
	d := NewDict()
	for _, k := range a.kw {
		in.set(d, Trusted(k.name), k.v)
	}
	return in.percent(in.soft(x), d)
}

// percent is s % v.
func (in *interp) percent(s Str, v Value) Value {
	p := &percentFormat{in: in, s: s, b: newBuf(in)}
	p.args, _ = v.(Tuple)
	if _, isTuple := v.(Tuple); !isTuple {
		p.args = Tuple{v}
	}
	p.named, _ = v.(*Dict)
	switch v.(type) {
	case *Dict, *List, *Range, *Undefined: // whatever Python can subscript
		p.all = true
	}
	in.scan(len(s.text))
	for p.at < len(s.text) {
		i := strings.IndexByte(s.text[p.at:], '%')
		if i < 0 {
			break
		}
		p.b.add(s.sub(p.at, p.at+i))
		p.at += i + 1
		p.directive()
	}
	p.b.add(s.sub(p.at, len(s.text)))
	if !p.all && p.used < len(p.args) {
		panic(typeErr("not all arguments converted during string formatting"))
	}
	out := p.b.str()
	out.safe = s.safe
	return out
}

type percentFormat struct {
	in    *interp
	s     Str
	b     *strBuf
	at    int
	args  Tuple
	used  int
	named *Dict // for %(name)s
	all   bool  // unused arguments are fine
}

func (p *percentFormat) next() Value {
	if p.used >= len(p.args) {
		panic(typeErr("not enough arguments for format string"))
	}
	p.used++
	return p.args[p.used-1]
}

func (p *percentFormat) peek() byte {
	if p.at >= len(p.s.text) {
		panic(valueErr("incomplete format"))
	}
	return p.s.text[p.at]
}

// directive writes what follows a "%".
func (p *percentFormat) directive() {
	p.in.tick(1)
	var v Value = absent
	if p.peek() == '(' {
		end := strings.IndexByte(p.s.text[p.at:], ')')
		if end < 0 {
			panic(valueErr("incomplete format key"))
		}
		if p.named == nil {
			panic(typeErr("format requires a mapping"))
		}
		name := p.s.text[p.at+1 : p.at+end]
		var ok bool
		if v, ok = p.named.Get(name); !ok {
			panic(newErr("KeyError", "%q", name))
		}
		p.at += end + 1
	}
	f := spec{prec: -1}
	left, zero := false, false
	for ; strings.IndexByte("-+ #0", p.peek()) >= 0; p.at++ {
		switch c := p.peek(); c {
		case '-':
			left = true
		case '0':
			zero = true
		case '#':
			f.alt = true
		default:
			f.sign = c
		}
	}
	f.width = p.size()
	if f.width < 0 {
		left, f.width = true, -f.width
	}
	if p.peek() == '.' {
		p.at++
		f.prec = max(p.size(), 0)
	}
	f.letter = p.peek()
	p.at++
	if f.letter == '%' {
		p.b.lit("%")
		return
	}
	if v == absent {
		v = p.next()
	}
	f.align = '>'
	if zero {
		f.align, f.fill = '=', '0'
	}
	if left {
		f.align, f.fill = '<', 0
	}
	p.convert(v, f)
}

// size reads a number or "*".
func (p *percentFormat) size() int64 {
	if p.peek() == '*' {
		p.at++
		return mustIndex(p.next())
	}
	n := int64(0)
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.at++
		n = min(n*10+int64(c-'0'), 1<<31)
	}
	return n
}

func (p *percentFormat) convert(v Value, f spec) {
	in := p.in
	var text Str
	switch f.letter {
	case 's', 'r', 'a':
		text = in.soft(v)
		if f.letter != 's' {
			b := newBuf(in)
			in.repr(b, v)
			text = b.str()
		}
		if p.s.safe {
			text = escape(in, text)
		}
		plain := spec{prec: f.prec, width: f.width, align: f.align}
		if plain.align == '=' {
			plain.align = '>'
		}
		text = in.field(text.plain(), plain)
	case 'd', 'i', 'u', 'x', 'X', 'o', 'c':
		text = p.integer(v, f)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if u, ok := v.(*Undefined); ok {
			panic(u.err())
		}
		if !isNumber(v) {
			panic(typeErr("must be real number, not %s", typeName(v)))
		}
		text = in.field(toFloat(v), f)
	default:
		panic(valueErr("unsupported format character '%c'", f.letter))
	}
	p.b.add(text)
}

func (p *percentFormat) integer(v Value, f spec) Str {
	if u, ok := v.(*Undefined); ok {
		panic(u.err())
	}
	if s, ok := v.(Str); ok && f.letter == 'c' && s.length(p.in) == 1 {
		return p.in.fillTo(s, f, '>')
	}
	if x, ok := v.(float64); ok && (f.letter == 'd' || f.letter == 'i' || f.letter == 'u') {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			panic(newErr("OverflowError", "cannot convert float to integer"))
		}
		n, _ := new(big.Float).SetFloat64(x).Int(nil)
		v = normInt(n)
	}
	if _, ok := v.(float64); ok || !isNumber(v) {
		panic(typeErr("%%%c format: a number is required, not %s", f.letter, typeName(v)))
	}
	if f.letter == 'i' || f.letter == 'u' {
		f.letter = 'd'
	}
	f.prec = -1
	return p.in.field(normInt(toBig(v)), f)
}
