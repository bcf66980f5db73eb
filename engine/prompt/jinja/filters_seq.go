package jinja

import (
	"sort"
	"strconv"
	"strings"
)

// attrGetter reads a dotted path, whose all-digit parts are numbers. A default
// stands for what is undefined on the way.
func (in *interp) attrGetter(path, def Value) func(Value) Value {
	var parts []Value
	switch p := path.(type) {
	case nil:
	case Str:
		for _, part := range strings.Split(p.text, ".") {
			in.list(1)
			if n, err := strconv.ParseUint(part, 10, 62); err == nil {
				parts = append(parts, int64(n))
			} else {
				parts = append(parts, Str{text: part, untrusted: p.anyUntrusted()})
			}
		}
	default:
		parts = []Value{path}
	}
	return func(v Value) Value {
		for _, part := range parts {
			v = in.getitem(v, part)
			if isUndefined(v) && def != nil {
				v = def
			}
		}
		return v
	}
}

// folded reads a path and ignores the case of strings unless told otherwise.
func (in *interp) folded(path, def Value, caseSensitive bool) func(Value) Value {
	get := in.attrGetter(path, def)
	if caseSensitive {
		return get
	}
	return func(v Value) Value {
		v = get(v)
		if s, ok := v.(Str); ok {
			return lower(in, s)
		}
		return v
	}
}

// sort sorts in place by key, stably.
func (in *interp) sort(items []Value, reversed bool, key func(Value) Value) {
	type pair struct{ key, item Value }
	pairs := make([]pair, len(items))
	in.list(2 * len(items))
	for i, item := range items {
		pairs[i] = pair{key(item), item}
	}
	sort.SliceStable(pairs, func(i, j int) bool {
		if reversed {
			i, j = j, i
		}
		c, ok := in.order("<", pairs[i].key, pairs[j].key)
		return ok && c < 0
	})
	for i, p := range pairs {
		items[i] = p.item
	}
}

// sortFilter sorts by a tuple of attributes, of which there may be only one:
// tuples find equals first, so that equal keys need no order.
func sortFilter(in *interp, x Value, a []Value) Value {
	items := in.collect(x)
	paths := []Value{orNone(a[2])}
	if p, ok := paths[0].(Str); ok {
		paths = nil
		for _, part := range strings.Split(p.text, ",") {
			paths = append(paths, Trusted(part))
		}
	}
	keys := make([]func(Value) Value, len(paths))
	for i, path := range paths {
		keys[i] = in.folded(path, nil, optBool(a[1], false))
	}
	in.sort(items, optBool(a[0], false), func(v Value) Value {
		t := make(Tuple, len(keys))
		for i, k := range keys {
			t[i] = k(v)
		}
		return t
	})
	return &List{items}
}

func dictsortFilter(in *interp, x Value, a []Value) Value {
	d, ok := x.(*Dict)
	if !ok {
		panic(newErr("AttributeError", "'%s' object has no attribute 'items'", typeName(x)))
	}
	at := 0
	if a[1] != absent {
		switch mustStr(a[1], "dictsort").text {
		case "key":
		case "value":
			at = 1
		default:
			panic(newErr("FilterArgumentError", `You can only sort by either "key" or "value"`))
		}
	}
	items := in.collect(&dictView{d, "items"})
	in.sort(items, optBool(a[2], false), in.folded(int64(at), nil, optBool(a[0], false)))
	return &List{items}
}

func uniqueFilter(in *interp, x Value, a []Value) Value {
	key := in.folded(orNone(a[1]), nil, optBool(a[0], false))
	next := in.mustIter(x)
	seen := map[dictKey]bool{}
	return generate("generator", func() (Value, bool) {
		for item, ok := next(); ok; item, ok = next() {
			in.list(4)
			if k := in.hash(key(item)); !seen[k] {
				seen[k] = true
				return item, true
			}
		}
		return nil, false
	})
}

func extremeFilter(sign int) func(*interp, Value, []Value) Value {
	return func(in *interp, x Value, a []Value) Value {
		key := in.folded(orNone(a[1]), nil, optBool(a[0], false))
		next := in.mustIter(x)
		best, ok := next()
		if !ok {
			return &Undefined{msg: "No aggregated item, sequence was empty."}
		}
		bestKey := key(best)
		for item, ok := next(); ok; item, ok = next() {
			k := key(item)
			op := "<"
			if sign > 0 {
				op = ">"
			}
			if c, ok := in.order(op, k, bestKey); ok && c*sign > 0 {
				best, bestKey = item, k
			}
		}
		return best
	}
}

func groupbyFilter(in *interp, x Value, a []Value) Value {
	def, caseSensitive := orNone(a[1]), optBool(a[2], false)
	key, show := in.folded(a[0], def, caseSensitive), in.attrGetter(a[0], def)
	items := in.collect(x)
	in.sort(items, false, key)
	var groups []Value
	for i := 0; i < len(items); {
		k := key(items[i])
		j := i + 1
		for j < len(items) && in.equal(key(items[j]), k) {
			j++
		}
		in.list(4)
		groups = append(groups, Tuple{show(items[i]), &List{items[i:j:j]}})
		i = j
	}
	return &List{groups}
}

func sumFilter(in *interp, x Value, a []Value) Value {
	get := in.attrGetter(orNone(a[0]), nil)
	var total Value = int64(0)
	if a[1] != absent {
		total = a[1]
	}
	if _, ok := total.(Str); ok {
		panic(typeErr("sum() can't sum strings [use ''.join(seq) instead]"))
	}
	next := in.mustIter(x)
	for item, ok := next(); ok; item, ok = next() {
		total = in.binary("+", total, get(item))
	}
	return total
}

func firstFilter(in *interp, x Value, _ []Value) Value {
	if v, ok := in.mustIter(x)(); ok {
		return v
	}
	return &Undefined{msg: "No first item, sequence was empty."}
}

func lastFilter(in *interp, x Value, _ []Value) Value {
	if s, ok := x.(Str); ok {
		if s.text == "" {
			return &Undefined{msg: "No last item, sequence was empty."}
		}
		return in.getitem(s, int64(-1))
	}
	items, ok := in.reversible(x)
	switch {
	case !ok:
		panic(typeErr("'%s' object is not reversible", typeName(x)))
	case len(items) == 0:
		return &Undefined{msg: "No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

// reversible returns the items of what Python's reversed takes.
func (in *interp) reversible(x Value) ([]Value, bool) {
	switch x := x.(type) {
	case *List:
		return x.Items, true
	case Tuple:
		return x, true
	case *Dict, *dictView, *Range, *Undefined:
		return in.collect(x), true
	}
	return nil, false
}

func reverseFilter(in *interp, x Value, _ []Value) Value {
	if s, ok := x.(Str); ok {
		return in.slice(s, nil, nil, int64(-1))
	}
	items, ok := in.reversible(x)
	if !ok {
		items = in.collect(x)
		reverse(items)
		return &List{items}
	}
	i := len(items)
	return generate(typeName(x)+"_reverseiterator", func() (Value, bool) {
		if i--; i < 0 {
			return nil, false
		}
		return items[i], true
	})
}

func itemsFilter(in *interp, x Value, _ []Value) Value {
	next, kind := func() (Value, bool) { return nil, false }, "generator"
	switch x := x.(type) {
	case *Undefined:
	case *Dict:
		next, _ = in.iter(&dictView{x, "items"})
	default:
		// The generator of Jinja2 raises when it is read.
		next = func() (Value, bool) { panic(typeErr("Can only get item pairs from a mapping.")) }
	}
	return generate(kind, next)
}

func batchFilter(in *interp, x Value, a []Value) Value {
	size := mustIndex(a[0])
	next := in.mustIter(x)
	var held []Value
	flush := func() Value {
		l := &List{held}
		held = nil
		return l
	}
	done := false
	return generate("generator", func() (Value, bool) {
		for !done {
			item, ok := next()
			if !ok {
				done = true
				break
			}
			in.list(1)
			full := int64(len(held)) == size
			var out Value
			if full {
				out = flush()
			}
			held = append(held, item)
			if full {
				return out, true
			}
		}
		if len(held) == 0 {
			return nil, false
		}
		for fill := orNone(a[1]); fill != nil && int64(len(held)) < size; {
			in.list(1)
			held = append(held, fill)
		}
		return flush(), true
	})
}

func sliceFilter(in *interp, x Value, a []Value) Value {
	items, n := in.collect(x), int(min(mustIndex(a[0]), maxRange))
	if n == 0 {
		panic(zeroDivision())
	}
	k, from := -1, 0
	return generate("generator", func() (Value, bool) {
		if k++; k >= n {
			return nil, false
		}
		size, extra := len(items)/n, len(items)%n
		long := k < extra
		if long {
			size++
		}
		in.list(size + 1)
		part := append([]Value(nil), items[from:from+size]...)
		from += size
		if fill := orNone(a[1]); fill != nil && !long {
			part = append(part, fill)
		}
		return &List{part}, true
	})
}

// mapFilter applies a filter, or reads an attribute.
func mapFilter(in *interp, x Value, a *args) Value {
	return lazy(in, x, func() func(Value) (Value, bool) {
		f := in.mapper(a)
		return func(v Value) (Value, bool) { return f(v), true }
	})
}

func (in *interp) mapper(a *args) func(Value) Value {
	if len(a.pos) == 0 {
		if path, ok := a.takeKw("attribute"); ok {
			def, _ := a.takeKw("default")
			if len(a.kw) > 0 {
				panic(newErr("FilterArgumentError", "Unexpected keyword argument '%s'", a.kw[0].name))
			}
			return in.attrGetter(path, def)
		}
		panic(newErr("FilterArgumentError", "map requires a filter argument"))
	}
	name := mustStr(a.pos[0], "map").text
	def := filters[name]
	if def == nil {
		panic(newErr("TemplateRuntimeError", "No filter named '%s'.", name))
	}
	rest := args{a.pos[1:], a.kw}
	return func(v Value) Value {
		in.tick(1)
		each := rest // a filter may take its arguments apart
		return in.filter(name, def, v, &each)
	}
}

// selectFilter keeps the items for which a test (or their truth) is want.
func selectFilter(byAttr, want bool) func(*interp, Value, *args) Value {
	return func(in *interp, x Value, a *args) Value {
		return lazy(in, x, func() func(Value) (Value, bool) {
			holds := in.selector(a, byAttr)
			return func(v Value) (Value, bool) { return v, holds(v) == want }
		})
	}
}

func (in *interp) selector(a *args, byAttr bool) func(Value) bool {
	get := func(v Value) Value { return v }
	pos := a.pos
	if byAttr {
		if len(pos) == 0 {
			panic(newErr("FilterArgumentError", "Missing parameter for attribute name"))
		}
		get, pos = in.attrGetter(pos[0], nil), pos[1:]
	}
	if len(pos) == 0 {
		return func(v Value) bool { return truth(get(v)) }
	}
	name := mustStr(pos[0], "select").text
	def := tests[name]
	if def == nil {
		panic(newErr("TemplateRuntimeError", "No test named '%s'.", name))
	}
	return func(v Value) bool {
		in.tick(1)
		return in.test(name, def, get(v), &args{pos[1:], a.kw})
	}
}

// lazy is a generator over x, if x is true; it prepares f when it is first read.
func lazy(in *interp, x Value, prepare func() func(Value) (Value, bool)) Value {
	var next func() (Value, bool)
	var f func(Value) (Value, bool)
	return generate("generator", func() (Value, bool) {
		if !truth(x) {
			return nil, false
		}
		if next == nil {
			f, next = prepare(), in.mustIter(x)
		}
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			in.tick(1)
			if v, keep := f(item); keep {
				return v, true
			}
		}
	})
}
