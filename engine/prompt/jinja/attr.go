package jinja

import "strings"

// getattr is x.name: Python's attribute first, then the item of that name.
func (in *interp) getattr(x Value, name string) Value {
	in.tick(1)
	if v, ok := in.attribute(x, name); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v
		}
	}
	return missingAttr(x, name)
}

// getitem is x[key]: the item first, then the attribute of that name.
func (in *interp) getitem(x, key Value) Value {
	in.tick(1)
	if v, ok := in.item(x, key); ok {
		return v
	}
	if name, ok := key.(Str); ok {
		if v, ok := in.attribute(x, name.text); ok {
			return v
		}
		return missingAttr(x, name.text)
	}
	return &Undefined{msg: "'" + typeName(x) + " object' has no element " + in.show(key)}
}

// show is repr for messages.
func (in *interp) show(v Value) string {
	b := newBuf(in)
	in.repr(b, v)
	if s := b.str().text; len(s) <= 80 {
		return s
	}
	return "of type " + typeName(v)
}

func missingAttr(x Value, name string) Value {
	if len(name) > 80 {
		name = strings.ToValidUTF8(name[:80], "") + "..."
	}
	return &Undefined{msg: "'" + typeName(x) + " object' has no attribute '" + name + "'"}
}

// unsafeAttrs are what the immutable sandbox refuses: they would change data.
var unsafeAttrs = map[string]map[string]bool{
	"list": {"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "remove": true,
		"reverse": true, "sort": true},
	"dict": {"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true},
}

// attribute is getattr(x, name) as the sandbox has it.
func (in *interp) attribute(x Value, name string) (Value, bool) {
	switch x := x.(type) {
	case *Undefined:
		if strings.HasPrefix(name, "__") {
			return missingAttr(x, name), true
		}
		panic(x.err())
	case *Namespace:
		return x.attrs.Get(name)
	}
	typ := typeName(x)
	if unsafeAttrs[typ][name] || strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return &Undefined{msg: "access to attribute '" + name + "' of '" + typ + "' object is unsafe.", unsafe: true}, true
	}
	switch x := x.(type) {
	case Str:
		if m, ok := strMethods[name]; ok {
			return &builtin{name, func(in *interp, a *args) Value { return in.callStrMethod(x, name, m, a) }}, true
		}
	case *loopVar:
		return x.attr(name)
	case *Macro:
		return x.attr(name)
	case attrer:
		return x.attr(name)
	default:
		if m, ok := methods[typ][name]; ok {
			return &builtin{name, func(in *interp, a *args) Value { return m.fn(in, x, a.bind(name, m.need, m.params...)) }}, true
		}
	}
	return nil, false
}

// attrer is a builtin object with attributes of its own.
type attrer interface {
	attr(name string) (Value, bool)
}

// item is x[key] of sequences and dicts.
func (in *interp) item(x, key Value) (Value, bool) {
	switch x := x.(type) {
	case *Undefined:
		panic(x.err())
	case *Dict:
		k, ok := in.tryHash(key)
		if !ok {
			return nil, false
		}
		i, ok := x.index[k]
		if !ok {
			return nil, false
		}
		return x.vals[i], true
	}
	i, ok := index(key)
	if !ok {
		return nil, false
	}
	switch x := x.(type) {
	case *List:
		return at(x.Items, i)
	case Tuple:
		return at(x, i)
	case *Range:
		n := x.len()
		if i < 0 {
			i += n
		}
		return x.start + i*x.step, i >= 0 && i < n
	case Str:
		n := int64(x.length(in))
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return nil, false
		}
		from := x.offset(int(i))
		return x.sub(from, from+runeLen(x.text[from:])), true
	}
	return nil, false
}

func at(items []Value, i int64) (Value, bool) {
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil, false
	}
	return items[i], true
}

// slice is x[lo:hi:step].
func (in *interp) slice(x, lo, hi, step Value) Value {
	in.tick(1)
	switch x := x.(type) {
	case *Undefined:
		panic(x.err())
	case *List:
		return &List{in.sliceItems(x.Items, lo, hi, step)}
	case Tuple:
		return Tuple(in.sliceItems(x, lo, hi, step))
	case *Range:
		from, n, by := sliceBounds(int(x.len()), lo, hi, step)
		return &Range{x.start + int64(from)*x.step, x.start + int64(from+n*by)*x.step, x.step * int64(by)}
	case Str:
		return in.sliceStr(x, lo, hi, step)
	case *Dict:
		panic(typeErr("unhashable type: 'slice'"))
	}
	panic(typeErr("'%s' object is not subscriptable", typeName(x)))
}

func (in *interp) sliceItems(items []Value, lo, hi, step Value) []Value {
	from, n, by := sliceBounds(len(items), lo, hi, step)
	in.list(n)
	out := make([]Value, n)
	for i := range out {
		out[i] = items[from+i*by]
	}
	return out
}

func (in *interp) sliceStr(s Str, lo, hi, step Value) Value {
	from, n, by := sliceBounds(s.length(in), lo, hi, step)
	if by == 1 {
		i := s.offset(from)
		j := i
		for k := 0; k < n; k++ {
			j += runeLen(s.text[j:])
		}
		in.scan(len(s.text) + 16*len(s.runs))
		in.grow(16 * len(s.runs))
		return s.sub(i, j)
	}
	in.tick(n)
	starts := make([]int, 0, len(s.text)+1)
	in.grow(8 * cap(starts))
	for i := range s.text {
		starts = append(starts, i)
	}
	starts = append(starts, len(s.text))
	b := newBuf(in)
	for k := range n {
		i := from + k*by
		b.add(s.sub(starts[i], starts[i+1]))
	}
	out := b.str()
	out.safe = s.safe
	return out
}

// sliceBounds is slice(lo, hi, step).indices(n): where to begin, how many, and
// by how much to go on.
func sliceBounds(n int, lo, hi, step Value) (from, count, by int) {
	by = 1
	if step != nil {
		by = clampIndex(step)
	}
	if by == 0 {
		panic(valueErr("slice step cannot be zero"))
	}
	bound := func(v Value, def int) int {
		if v == nil {
			return def
		}
		i := clampIndex(v)
		if i < 0 {
			i += n
		}
		if by < 0 {
			return max(-1, min(i, n-1))
		}
		return max(0, min(i, n))
	}
	if by > 0 {
		from = bound(lo, 0)
		if to := bound(hi, n); to > from {
			count = (to-from-1)/by + 1
		}
		return from, count, by
	}
	from = bound(lo, n-1)
	if to := bound(hi, -1); from > to {
		count = (from-to-1)/-by + 1
	}
	return from, count, by
}

// clampIndex is an index within what no sequence here can reach.
func clampIndex(v Value) int {
	if u, ok := v.(*Undefined); ok {
		panic(u.err())
	}
	i, ok := index(v)
	if !ok {
		panic(typeErr("slice indices must be integers or None or have an __index__ method"))
	}
	const far = 1 << 40
	return int(max(-far, min(i, far)))
}
