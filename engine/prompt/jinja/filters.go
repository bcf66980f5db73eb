package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// filterDef is what "| name" does: fn with bound arguments, or raw.
type filterDef struct {
	params []string
	need   int
	fn     func(in *interp, x Value, a []Value) Value
	raw    func(in *interp, x Value, a *args) Value
}

var filters map[string]*filterDef

// refusedFilters are those of Jinja2 that a chat template has no use for.
var refusedFilters = map[string]bool{
	"filesizeformat": true, "pprint": true, "random": true, "striptags": true, "urlencode": true, "urlize": true,
	"wordwrap": true, "xmlattr": true,
}

func init() {
	filters = map[string]*filterDef{}
	add := func(name, params string, need int, fn func(in *interp, x Value, a []Value) Value) {
		filters[name] = &filterDef{strings.Fields(params), need, fn, nil}
	}
	text := func(f func(in *interp, s Str) Str) func(*interp, Value, []Value) Value {
		return func(in *interp, x Value, _ []Value) Value { return f(in, in.soft(x)) }
	}
	add("abs", "", 0, func(in *interp, x Value, _ []Value) Value { return in.abs(x) })
	add("attr", "name", 1, attrFilter)
	add("batch", "linecount fill_with", 1, batchFilter)
	add("capitalize", "", 0, text(capitalize))
	add("center", "width", 0, func(in *interp, x Value, a []Value) Value {
		return in.pad(in.soft(x), "center", optInt(a[0], 80), Trusted(" "))
	})
	add("default", "default_value boolean", 0, defaultFilter)
	add("dictsort", "case_sensitive by reverse", 0, dictsortFilter)
	add("escape", "", 0, text(escape))
	add("first", "", 0, firstFilter)
	add("float", "default", 0, floatFilter)
	add("forceescape", "", 0, text(func(in *interp, s Str) Str { return escape(in, s.plain()) }))
	add("groupby", "attribute default case_sensitive", 1, groupbyFilter)
	add("indent", "width first blank", 0, indentFilter)
	add("int", "default base", 0, intFilter)
	add("items", "", 0, itemsFilter)
	add("join", "d attribute", 0, joinFilter)
	add("last", "", 0, lastFilter)
	add("length", "", 0, func(in *interp, x Value, _ []Value) Value { return in.length(x) })
	add("list", "", 0, func(in *interp, x Value, _ []Value) Value { return &List{in.collect(x)} })
	add("lower", "", 0, text(lower))
	add("max", "case_sensitive attribute", 0, extremeFilter(1))
	add("min", "case_sensitive attribute", 0, extremeFilter(-1))
	add("replace", "old new count", 2, replaceFilter)
	add("reverse", "", 0, reverseFilter)
	add("round", "precision method", 0, roundFilter)
	add("safe", "", 0, func(in *interp, x Value, _ []Value) Value {
		s := in.str(x)
		s.safe = true
		return s
	})
	add("slice", "slices fill_with", 1, sliceFilter)
	add("sort", "reverse case_sensitive attribute", 0, sortFilter)
	add("string", "", 0, text(func(_ *interp, s Str) Str { return s }))
	add("sum", "attribute start", 0, sumFilter)
	add("title", "", 0, text(titleFilter))
	add("tojson", "ensure_ascii indent separators sort_keys", 0, tojsonFilter)
	add("trim", "chars", 0, func(in *interp, x Value, a []Value) Value {
		s := in.soft(x)
		in.scan(len(s.text) + 16*len(s.runs))
		return strip(s, orNone(a[0]), true, true)
	})
	add("truncate", "length killwords end leeway", 0, truncateFilter)
	add("unique", "case_sensitive attribute", 0, uniqueFilter)
	add("upper", "", 0, text(upper))
	add("wordcount", "", 0, func(in *interp, x Value, _ []Value) Value {
		return int64(len(strings.FieldsFunc(in.soft(x).text, func(r rune) bool { return !isWord(r) })))
	})
	for name, raw := range map[string]func(*interp, Value, *args) Value{
		"format": formatFilter, "map": mapFilter,
		"select": selectFilter(false, true), "reject": selectFilter(false, false),
		"selectattr": selectFilter(true, true), "rejectattr": selectFilter(true, false),
	} {
		filters[name] = &filterDef{raw: raw}
	}
	for alias, name := range map[string]string{"count": "length", "d": "default", "e": "escape"} {
		filters[alias] = filters[name]
	}
}

// filter is x | name(a).
func (in *interp) filter(name string, def *filterDef, x Value, a *args) Value {
	if def.raw != nil {
		return def.raw(in, x, a)
	}
	return def.fn(in, x, a.bind(name, def.need, def.params...))
}

// soft is markupsafe.soft_str: str(x) that keeps Markup.
func (in *interp) soft(x Value) Str {
	if s, ok := x.(Str); ok {
		return s
	}
	return in.str(x)
}

func (in *interp) abs(x Value) Value {
	switch x := x.(type) {
	case *Undefined:
		panic(typeErr("bad operand type for abs(): 'Undefined'"))
	case float64:
		return math.Abs(x)
	}
	if !isNumber(x) {
		panic(typeErr("bad operand type for abs(): '%s'", typeName(x)))
	}
	return normInt(new(big.Int).Abs(toBig(x)))
}

// length is len(x).
func (in *interp) length(x Value) Value {
	if s, ok := x.(Str); ok {
		return int64(s.length(in))
	}
	n, ok := size(x)
	if !ok {
		panic(typeErr("object of type '%s' has no len()", typeName(x)))
	}
	return int64(n)
}

func attrFilter(in *interp, x Value, a []Value) Value {
	name := mustStr(a[0], "attr").text
	if _, ok := x.(*Undefined); ok {
		return in.getattr(x, name)
	}
	if v, ok := in.attribute(x, name); ok {
		return v
	}
	return missingAttr(x, name)
}

func defaultFilter(_ *interp, x Value, a []Value) Value {
	if isUndefined(x) || optBool(a[1], false) && !truth(x) {
		if a[0] == absent {
			return Str{}
		}
		return a[0]
	}
	return x
}

func floatFilter(_ *interp, x Value, a []Value) Value {
	if u, ok := x.(*Undefined); ok {
		panic(u.err())
	}
	if f, ok := asFloat(x); ok {
		return f
	}
	if a[0] == absent {
		return 0.0
	}
	return a[0]
}

// asFloat is float(x).
func asFloat(x Value) (float64, bool) {
	if isNumber(x) {
		return toFloat(x), true
	}
	s, ok := x.(Str)
	if !ok {
		return 0, false
	}
	text := strings.TrimFunc(s.text, isSpace)
	if strings.ContainsAny(text, "xXpP") || len(text) > 4300 { // Go reads more forms
		return 0, false
	}
	text, ok = plainDigits(text)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// plainDigits drops the underscores of a Python number, which stand between
// digits only.
func plainDigits(s string) (string, bool) {
	for i := range len(s) {
		if s[i] != '_' {
			continue
		}
		if i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1]) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

func isDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func intFilter(_ *interp, x Value, a []Value) Value {
	switch x := x.(type) {
	case *Undefined:
		panic(x.err())
	case bool, int64, *big.Int:
		return normInt(toBig(x))
	case Str:
		if n, ok := parseInt(x.text, optInt(a[1], 10)); ok {
			return n
		}
	}
	f, ok := asFloat(x)
	switch {
	case !ok || math.IsNaN(f):
		if a[0] == absent {
			return int64(0)
		}
		return a[0]
	case math.IsInf(f, 0):
		panic(newErr("OverflowError", "cannot convert float infinity to integer"))
	}
	n, _ := new(big.Float).SetFloat64(f).Int(nil)
	return normInt(n)
}

// parseInt is int(s, base).
func parseInt(s string, base int64) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > 4300 || base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return nil, false
	}
	if p := map[int64]string{2: "0b", 8: "0o", 16: "0x"}[base]; p != "" && strings.HasPrefix(strings.ToLower(digits), p) {
		digits = digits[2:]
	}
	digits, ok := plainDigits(digits)
	if !ok || digits == "" || digits[0] == '+' || digits[0] == '-' {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits, int(base))
	if !ok {
		return nil, false
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	return normInt(n), true
}

func roundFilter(_ *interp, x Value, a []Value) Value {
	precision, method := optInt(a[0], 0), "common"
	if a[1] != absent {
		method = mustStr(a[1], "round").text
	}
	if u, ok := x.(*Undefined); ok {
		panic(u.err())
	}
	if !isNumber(x) {
		panic(typeErr("type %s doesn't define __round__ method", typeName(x)))
	}
	f, isFloat := x.(float64)
	switch method {
	case "common":
		if !isFloat {
			return roundInt(toBig(x), precision)
		}
		return roundFloat(f, precision)
	case "ceil", "floor":
		scale := math.Pow(10, float64(precision))
		if method == "ceil" {
			return pyFloat(math.Ceil(toFloat(x)*scale) / scale)
		}
		return pyFloat(math.Floor(toFloat(x)*scale) / scale)
	}
	panic(newErr("FilterArgumentError", "method must be common, ceil or floor"))
}

func pyFloat(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic(newErr("OverflowError", "cannot round this float"))
	}
	return f
}

// roundFloat rounds the exact decimal value half to even.
func roundFloat(f float64, precision int64) Value {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0) || precision > 400:
		return f
	case precision < -400:
		return 0 * f
	case precision >= 0:
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
		return out
	}
	scale := math.Pow(10, float64(-precision))
	return math.RoundToEven(f/scale) * scale
}

// roundInt is round(n, precision): only a negative precision changes an int.
func roundInt(n *big.Int, precision int64) Value {
	if precision >= 0 {
		return normInt(n)
	}
	if precision < -4300 {
		return int64(0)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-precision), nil)
	q, r := new(big.Int).DivMod(n, unit, new(big.Int))
	switch r.Lsh(r, 1).Cmp(unit) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	}
	return normInt(q.Mul(q, unit))
}
