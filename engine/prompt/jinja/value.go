package jinja

import (
	"math"
	"math/big"
)

// Value is a value of the template language:
//
//	nil         None
//	bool        bool
//	int64       int; *big.Int where it does not fit
//	float64     float
//	Str         str
//	*List       list
//	Tuple       tuple
//	*Dict       dict, in order of insertion
//
// and the values that only templates make: *Undefined, *Range, *Namespace,
// *Macro, *builtin, *iterator, *dictView, *loopVar.
type Value any

// List is a Python list. Templates can't change one.
type List struct{ Items []Value }

// Tuple is a Python tuple.
type Tuple []Value

// Range is what range() returns.
type Range struct{ start, stop, step int64 }

// len is the number of elements, cut at a number that range() refuses.
func (r *Range) len() int64 {
	var n uint64
	switch { // unsigned: the distance of two int64 may not fit one
	case r.step > 0 && r.start < r.stop:
		n = (uint64(r.stop)-uint64(r.start)-1)/uint64(r.step) + 1
	case r.step < 0 && r.start > r.stop:
		n = (uint64(r.start)-uint64(r.stop)-1)/-uint64(r.step) + 1
	}
	return int64(min(n, maxRange+1))
}

// Namespace is what namespace() returns, the one thing a template can change.
type Namespace struct{ attrs *Dict }

// Undefined is Jinja2's Undefined: it prints as nothing, iterates as nothing,
// is false, and refuses everything else.
type Undefined struct {
	msg    string
	unsafe bool // the sandbox refused the attribute
}

// err is what using an Undefined raises.
func (u *Undefined) err() *RuntimeError {
	if u.unsafe {
		return newErr("SecurityError", "%s", u.msg)
	}
	return newErr("UndefinedError", "%s", u.msg)
}

// builtin is a function or bound method of the language.
type builtin struct {
	name string
	call func(in *interp, a *args) Value
}

// iterator is a Python generator or iterator: it can be read once.
type iterator struct {
	kind string // for printing
	next func() (Value, bool)
}

// dictView is what dict.keys, values and items return.
type dictView struct {
	d    *Dict
	kind string // "keys", "values", "items"
}

func (v *dictView) item(i int) Value {
	switch v.kind {
	case "keys":
		return v.d.keys[i]
	case "values":
		return v.d.vals[i]
	}
	return Tuple{v.d.keys[i], v.d.vals[i]}
}

// typeName is type(v).__name__.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case Str:
		if v.safe {
			return "Markup"
		}
		return "str"
	case *List:
		return "list"
	case Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Range:
		return "range"
	case *Undefined:
		return "Undefined"
	case *Namespace:
		return "Namespace"
	case *Macro:
		return "Macro"
	case *iterator:
		return v.kind
	case *dictView:
		return "dict_" + v.kind
	case *loopVar:
		return "LoopContext"
	}
	return "builtin_function_or_method"
}

// truth is bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case nil, *Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case Str:
		return v.text != ""
	}
	if n, ok := size(v); ok {
		return n != 0
	}
	return true
}

// size is len(v) of what has one, strings excepted.
func size(v Value) (int, bool) {
	switch v := v.(type) {
	case *List:
		return len(v.Items), true
	case Tuple:
		return len(v), true
	case *Dict:
		return len(v.keys), true
	case *dictView:
		return len(v.d.keys), true
	case *Range:
		return int(v.len()), true
	case *Undefined:
		return 0, true
	case *loopVar:
		return v.length(), true
	}
	return 0, false
}

// iter is iter(v); ok is false where v can't be iterated over.
func (in *interp) iter(v Value) (next func() (Value, bool), ok bool) {
	i := -1
	switch v := v.(type) {
	case *iterator:
		return func() (Value, bool) { // iterators read iterators: bound the chain
			in.enter()
			item, ok := v.next()
			in.leave()
			return item, ok
		}, true
	case *loopVar:
		return func() (Value, bool) {
			item, ok := v.advance()
			return Tuple{item, v}, ok
		}, true
	case Str:
		at := 0
		return func() (Value, bool) {
			if at >= len(v.text) {
				return nil, false
			}
			from := at
			at += runeLen(v.text[at:])
			in.grow(4)
			return v.sub(from, at).plain(), true
		}, true
	case *List:
		return sliceIter(v.Items), true
	case Tuple:
		return sliceIter(v), true
	case *Dict:
		return sliceIter(v.keys), true
	case *Undefined:
		return func() (Value, bool) { return nil, false }, true
	case *Range:
		return func() (Value, bool) {
			i++
			return v.start + int64(i)*v.step, int64(i) < v.len()
		}, true
	case *dictView:
		return func() (Value, bool) {
			if i++; i >= len(v.d.keys) {
				return nil, false
			}
			return v.item(i), true
		}, true
	}
	return nil, false
}

func sliceIter(items []Value) func() (Value, bool) {
	i := -1
	return func() (Value, bool) {
		if i++; i >= len(items) {
			return nil, false
		}
		return items[i], true
	}
}

// mustIter is iter(v) that raises.
func (in *interp) mustIter(v Value) func() (Value, bool) {
	next, ok := in.iter(v)
	if !ok {
		panic(typeErr("'%s' object is not iterable", typeName(v)))
	}
	return next
}

// collect is list(v), not shared with v.
func (in *interp) collect(v Value) []Value {
	next := in.mustIter(v)
	var out []Value
	for {
		item, ok := next()
		if !ok {
			return out
		}
		in.list(1)
		out = append(out, item)
	}
}

// generate makes an iterator of a given kind.
func generate(kind string, next func() (Value, bool)) *iterator {
	return &iterator{kind, next}
}

// index is operator.index: v as an int for subscripts and counts.
func index(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	case *big.Int:
		if v.Sign() < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return 0, false
}

// mustIndex is index that raises.
func mustIndex(v Value) int64 {
	if u, ok := v.(*Undefined); ok {
		panic(u.err())
	}
	n, ok := index(v)
	if !ok {
		panic(typeErr("'%s' object cannot be interpreted as an integer", typeName(v)))
	}
	return n
}
