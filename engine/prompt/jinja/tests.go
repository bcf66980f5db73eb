package jinja

import (
	"math/big"
	"unicode"
)

// testDef is what "is name" does.
type testDef struct {
	params []string
	fn     func(in *interp, x Value, a []Value) bool
}

var tests map[string]*testDef

func init() {
	one := []string{"other"}
	is := func(f func(x Value) bool) *testDef {
		return &testDef{nil, func(_ *interp, x Value, _ []Value) bool { return f(x) }}
	}
	op := func(op string) *testDef {
		return &testDef{one, func(in *interp, x Value, a []Value) bool { return in.compare(op, x, a[0]) }}
	}
	remainder := func(in *interp, x Value, by, want int64) bool {
		return in.equal(in.binary("%", x, by), want)
	}
	tests = map[string]*testDef{
		"boolean":  is(func(x Value) bool { _, ok := x.(bool); return ok }),
		"callable": is(isCallable),
		"defined":  is(func(x Value) bool { return !isUndefined(x) }),
		"divisibleby": {[]string{"num"}, func(in *interp, x Value, a []Value) bool {
			return in.equal(in.binary("%", x, a[0]), int64(0))
		}},
		"escaped":   is(func(x Value) bool { s, ok := x.(Str); return ok && s.safe }),
		"even":      {nil, func(in *interp, x Value, _ []Value) bool { return remainder(in, x, 2, 0) }},
		"false":     is(func(x Value) bool { return x == false }),
		"filter":    {nil, func(in *interp, x Value, _ []Value) bool { return filters[in.hash(x).s] != nil }},
		"float":     is(func(x Value) bool { _, ok := x.(float64); return ok }),
		"in":        {[]string{"seq"}, func(in *interp, x Value, a []Value) bool { return in.contains(a[0], x) }},
		"integer":   is(isInteger),
		"iterable":  {nil, func(in *interp, x Value, _ []Value) bool { _, ok := in.iter(x); return ok }},
		"lower":     {nil, func(in *interp, x Value, _ []Value) bool { return charTests["islower"](in.str(x).text) }},
		"mapping":   is(func(x Value) bool { _, ok := x.(*Dict); return ok }),
		"none":      is(func(x Value) bool { return x == nil }),
		"number":    is(isNumber),
		"odd":       {nil, func(in *interp, x Value, _ []Value) bool { return remainder(in, x, 2, 1) }},
		"sameas":    {one, func(_ *interp, x Value, a []Value) bool { return same(x, a[0]) }},
		"sequence":  is(isSequence),
		"string":    is(func(x Value) bool { _, ok := x.(Str); return ok }),
		"test":      {nil, func(in *interp, x Value, _ []Value) bool { return tests[in.hash(x).s] != nil }},
		"true":      is(func(x Value) bool { return x == true }),
		"undefined": is(isUndefined),
		"upper":     {nil, func(in *interp, x Value, _ []Value) bool { return charTests["isupper"](in.str(x).text) }},
	}
	for name, o := range map[string]string{
		"==": "==", "eq": "==", "equalto": "==", "!=": "!=", "ne": "!=", ">": ">", "gt": ">", "greaterthan": ">",
		">=": ">=", "ge": ">=", "<": "<", "lt": "<", "lessthan": "<", "<=": "<=", "le": "<=",
	} {
		tests[name] = op(o)
	}
}

// test is x is name(a).
func (in *interp) test(name string, def *testDef, x Value, a *args) bool {
	return def.fn(in, x, a.bind(name, len(def.params), def.params...))
}

func isUndefined(x Value) bool {
	_, ok := x.(*Undefined)
	return ok
}

func isCallable(x Value) bool {
	switch x.(type) {
	case *builtin, *Macro, *Undefined, *loopVar:
		return true
	}
	return false
}

func isInteger(x Value) bool {
	switch x.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

// isSequence says whether x has a length and can be subscripted.
func isSequence(x Value) bool {
	switch x.(type) {
	case Str, *List, Tuple, *Dict, *Range, *Undefined:
		return true
	}
	return false
}

// same is Python's "is", as far as a template can tell: scalars of one type and
// value are the same, containers only if they are one object.
func same(x, y Value) bool {
	switch a := x.(type) {
	case Str:
		b, ok := y.(Str)
		return ok && a.text == b.text
	case Tuple:
		b, ok := y.(Tuple)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	case *big.Int, *Undefined:
		return false
	}
	if _, ok := y.(Tuple); ok {
		return false
	}
	if _, ok := y.(Str); ok {
		return false
	}
	return x == y
}

// isWord says whether r belongs to a word, as \w in a regular expression.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }
