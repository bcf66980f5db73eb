package jinja

import "math"

// method is a method of a type other than str.
type method struct {
	params []string
	need   int
	fn     func(in *interp, self Value, a []Value) Value
}

// methods by the name of the type. The mutating ones are refused elsewhere.
var methods map[string]map[string]method

func init() {
	none := []string{}
	view := func(kind string) method {
		return method{none, 0, func(_ *interp, self Value, _ []Value) Value { return &dictView{self.(*Dict), kind} }}
	}
	seq := map[string]method{
		"count": {[]string{"value"}, 1, countItems},
		"index": {[]string{"value", "start", "stop"}, 1, indexItem},
	}
	methods = map[string]map[string]method{
		"dict": {
			"items":  view("items"),
			"keys":   view("keys"),
			"values": view("values"),
			"get":    {[]string{"key", "default"}, 1, dictGet},
			"copy": {none, 0, func(in *interp, self Value, _ []Value) Value {
				d := NewDict()
				in.merge(d, self)
				return d
			}},
		},
		"list": {
			"count": seq["count"],
			"index": seq["index"],
			"copy": {none, 0, func(in *interp, self Value, _ []Value) Value {
				return &List{in.collect(self)}
			}},
		},
		"tuple": seq,
		"range": seq,
		"float": {"is_integer": {none, 0, func(_ *interp, self Value, _ []Value) Value {
			f := self.(float64)
			return f == math.Trunc(f) && !math.IsInf(f, 0)
		}}},
	}
}

func dictGet(in *interp, self Value, a []Value) Value {
	if v, ok := in.get(self.(*Dict), a[0]); ok {
		return v
	}
	return orNone(a[1])
}

func countItems(in *interp, self Value, a []Value) Value {
	n := int64(0)
	next := in.mustIter(self)
	for item, ok := next(); ok; item, ok = next() {
		if in.equal(item, a[0]) {
			n++
		}
	}
	return n
}

func indexItem(in *interp, self Value, a []Value) Value {
	items := in.collect(self)
	from, count, _ := sliceBounds(len(items), orNone(a[1]), orNone(a[2]), nil)
	for i := from; i < from+count; i++ {
		if in.equal(items[i], a[0]) {
			return int64(i)
		}
	}
	panic(valueErr("%s is not in %s", in.show(a[0]), typeName(self)))
}

// merge adds the entries of a dict, or the pairs of an iterable, to d.
func (in *interp) merge(d *Dict, from Value) {
	if src, ok := from.(*Dict); ok {
		for i, k := range src.keys {
			in.set(d, k, src.vals[i])
		}
		return
	}
	next := in.mustIter(from)
	for item, ok := next(); ok; item, ok = next() {
		pair := in.collect(item)
		if len(pair) != 2 {
			panic(valueErr("dictionary update sequence element has length %d; 2 is required", len(pair)))
		}
		in.set(d, pair[0], pair[1])
	}
}
