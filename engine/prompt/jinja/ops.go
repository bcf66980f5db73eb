package jinja

import (
	"cmp"
	"strings"
)

// binary is l op r.
func (in *interp) binary(op string, l, r Value) Value {
	in.tick(1)
	if isNumber(l) && isNumber(r) {
		return arith(op, l, r)
	}
	if s, ok := l.(Str); ok && op == "%" {
		return in.percent(s, r)
	}
	for _, v := range [2]Value{l, r} {
		if u, ok := v.(*Undefined); ok {
			panic(u.err())
		}
	}
	switch op {
	case "+":
		if v, ok := in.addSeq(l, r); ok {
			return v
		}
	case "*":
		if v, ok := in.mulSeq(l, r); ok {
			return v
		}
		if v, ok := in.mulSeq(r, l); ok {
			return v
		}
	}
	if _, ok := l.(Str); ok && op == "+" {
		panic(typeErr(`can only concatenate str (not "%s") to str`, typeName(r)))
	}
	if op == "**" {
		op = "** or pow()"
	}
	panic(typeErr("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(l), typeName(r)))
}

func (in *interp) addSeq(l, r Value) (Value, bool) {
	switch a := l.(type) {
	case Str:
		if b, ok := r.(Str); ok {
			return in.addStr(a, b), true
		}
	case *List:
		if b, ok := r.(*List); ok {
			in.list(len(a.Items) + len(b.Items))
			return &List{append(append([]Value(nil), a.Items...), b.Items...)}, true
		}
	case Tuple:
		if b, ok := r.(Tuple); ok {
			in.list(len(a) + len(b))
			return append(append(Tuple(nil), a...), b...), true
		}
	}
	return nil, false
}

// addStr is a + b. Where one is Markup the other is escaped, whatever the
// autoescape setting: real templates depend on it.
func (in *interp) addStr(a, b Str) Str {
	if !a.safe && !b.safe {
		return concat(in, a, b)
	}
	out := concat(in, escape(in, a), escape(in, b))
	out.safe = true
	return out
}

func (in *interp) mulSeq(seq, count Value) (Value, bool) {
	n, ok := index(count)
	if !ok {
		return nil, false
	}
	switch v := seq.(type) {
	case Str:
		return repeat(in, v, n), true
	case *List:
		return &List{in.repeatItems(v.Items, n)}, true
	case Tuple:
		return Tuple(in.repeatItems(v, n)), true
	}
	return nil, false
}

func (in *interp) repeatItems(items []Value, n int64) []Value {
	if n <= 0 || len(items) == 0 {
		return nil
	}
	n = min(n, in.lim.Bytes) // more is refused below anyway
	in.list(len(items) * int(n))
	out := make([]Value, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	return out
}

// compare is l op r for the comparison operators and in.
func (in *interp) compare(op string, l, r Value) bool {
	in.tick(1)
	switch op {
	case "==":
		return in.equal(l, r)
	case "!=":
		return !in.equal(l, r)
	case "in":
		return in.contains(r, l)
	case "not in":
		return !in.contains(r, l)
	}
	c, ok := in.order(op, l, r)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// order compares l and r for op; ok is false where a NaN makes every order
// false. It raises where Python has no order.
func (in *interp) order(op string, l, r Value) (c int, ok bool) {
	in.tick(1)
	if isNumber(l) && isNumber(r) {
		return compareNumbers(l, r)
	}
	switch a := l.(type) {
	case Str:
		if b, ok := r.(Str); ok {
			in.scan(min(len(a.text), len(b.text)))
			return strings.Compare(a.text, b.text), true
		}
	case *List:
		if b, ok := r.(*List); ok {
			return in.orderItems(op, a.Items, b.Items)
		}
	case Tuple:
		if b, ok := r.(Tuple); ok {
			return in.orderItems(op, a, b)
		}
	}
	for _, v := range [2]Value{l, r} {
		if u, ok := v.(*Undefined); ok {
			panic(u.err())
		}
	}
	panic(typeErr("'%s' not supported between instances of '%s' and '%s'", op, typeName(l), typeName(r)))
}

func (in *interp) orderItems(op string, a, b []Value) (int, bool) {
	in.enter()
	defer in.leave()
	for i := range min(len(a), len(b)) {
		if !in.equal(a[i], b[i]) {
			return in.order(op, a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b)), true
}

// equal is l == r.
func (in *interp) equal(l, r Value) bool {
	in.tick(1)
	if isNumber(l) && isNumber(r) {
		c, ok := compareNumbers(l, r)
		return ok && c == 0
	}
	switch a := l.(type) {
	case nil:
		return r == nil
	case Str:
		b, ok := r.(Str)
		if ok && len(a.text) == len(b.text) {
			in.scan(len(a.text))
			return a.text == b.text
		}
		return false
	case *List:
		b, ok := r.(*List)
		return ok && (a == b || in.equalItems(a.Items, b.Items))
	case Tuple:
		b, ok := r.(Tuple)
		return ok && in.equalItems(a, b)
	case *Dict:
		b, ok := r.(*Dict)
		return ok && (a == b || in.equalDicts(a, b))
	case *dictView:
		b, ok := r.(*dictView)
		return ok && a.kind == b.kind && a.kind != "values" && in.equalViews(a, b)
	case *Range:
		b, ok := r.(*Range)
		n := a.len()
		return ok && n == b.len() && (n == 0 || a.start == b.start && (n == 1 || a.step == b.step))
	case *Undefined:
		_, ok := r.(*Undefined)
		return ok
	case bool, int64, float64:
		return false
	}
	if _, ok := r.(Tuple); ok { // not comparable in Go
		return false
	}
	return l == r
}

func (in *interp) equalItems(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	in.enter()
	defer in.leave()
	for i := range a {
		if !in.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (in *interp) equalDicts(a, b *Dict) bool {
	if len(a.keys) != len(b.keys) {
		return false
	}
	in.enter()
	defer in.leave()
	for i, k := range a.keys {
		v, ok := in.get(b, k)
		if !ok || !in.equal(a.vals[i], v) {
			return false
		}
	}
	return true
}

// equalViews compares keys or items as sets.
func (in *interp) equalViews(a, b *dictView) bool {
	if len(a.d.keys) != len(b.d.keys) {
		return false
	}
	for i, k := range a.d.keys {
		v, ok := in.get(b.d, k)
		if !ok || a.kind == "items" && !in.equal(a.d.vals[i], v) {
			return false
		}
	}
	return true
}

// contains is item in seq.
func (in *interp) contains(seq, item Value) bool {
	switch s := seq.(type) {
	case Str:
		sub, ok := item.(Str)
		if !ok {
			panic(typeErr("'in <string>' requires string as left operand, not %s", typeName(item)))
		}
		in.scan(len(s.text))
		return strings.Contains(s.text, sub.text)
	case *Dict:
		_, ok := in.get(s, item)
		return ok
	case *dictView:
		if s.kind == "keys" {
			_, ok := in.get(s.d, item)
			return ok
		}
	case *Range:
		if n, ok := item.(int64); ok {
			return s.contains(n)
		}
	}
	next, ok := in.iter(seq)
	if !ok {
		panic(typeErr("argument of type '%s' is not iterable", typeName(seq)))
	}
	for v, ok := next(); ok; v, ok = next() {
		if in.equal(v, item) {
			return true
		}
	}
	return false
}

func (r *Range) contains(n int64) bool {
	if r.len() == 0 || (n-r.start)%r.step != 0 {
		return false
	}
	i := (n - r.start) / r.step
	return i >= 0 && i < r.len()
}
