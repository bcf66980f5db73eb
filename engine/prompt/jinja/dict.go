package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Dict is a Python dict: it keeps the order of insertion.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[dictKey]int
}

// dictKey is what equal keys share: 1, 1.0 and True are one key.
type dictKey struct {
	kind byte
	n    int64
	s    string
	p    any
}

// NewDict returns an empty dict. It may be changed until it is given to Render.
func NewDict() *Dict { return &Dict{index: map[dictKey]int{}} }

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

// Set sets the value of a string key; a new key goes to the end.
func (d *Dict) Set(key Str, v Value) { d.put(dictKey{kind: 's', s: key.text}, key, v) }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) {
	i, ok := d.index[dictKey{kind: 's', s: key}]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func (d *Dict) put(k dictKey, key, v Value) {
	if i, ok := d.index[k]; ok {
		d.vals[i] = v
		return
	}
	d.index[k] = len(d.keys)
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
}

// set is d[key] = v.
func (in *interp) set(d *Dict, key, v Value) {
	in.list(4)
	d.put(in.hash(key), key, v)
}

// get is d.get(key) with presence; it raises for a key that can't be one.
func (in *interp) get(d *Dict, key Value) (Value, bool) {
	i, ok := d.index[in.hash(key)]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// hash is the dict key of a value, a TypeError where it has none.
func (in *interp) hash(v Value) dictKey {
	k, ok := in.tryHash(v)
	if !ok {
		panic(typeErr("unhashable type: '%s'", typeName(v)))
	}
	return k
}

func (in *interp) tryHash(v Value) (dictKey, bool) {
	switch v := v.(type) {
	case nil:
		return dictKey{kind: 'n'}, true
	case Str:
		in.scan(len(v.text))
		return dictKey{kind: 's', s: v.text}, true
	case bool:
		n, _ := index(v)
		return dictKey{kind: 'i', n: n}, true
	case int64:
		return dictKey{kind: 'i', n: v}, true
	case *big.Int:
		return dictKey{kind: 'b', s: v.String()}, true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return dictKey{kind: 'i', n: int64(v)}, true
		}
		return dictKey{kind: 'f', n: int64(math.Float64bits(v))}, true
	case Tuple:
		return in.hashTuple(v)
	case *Undefined:
		return dictKey{kind: 'u'}, true
	case *List, *Dict, *dictView:
		return dictKey{}, false
	}
	return dictKey{kind: 'p', p: v}, true
}

func (in *interp) hashTuple(v Tuple) (dictKey, bool) {
	in.enter()
	defer in.leave()
	var b strings.Builder
	for _, item := range v {
		k, ok := in.tryHash(item)
		if !ok || k.kind == 'p' {
			return dictKey{}, false
		}
		s := string(k.kind) + strconv.FormatInt(k.n, 36) + "," + strconv.Itoa(len(k.s)) + ":" + k.s
		in.grow(len(s))
		in.tick(1)
		b.WriteString(s)
	}
	return dictKey{kind: 't', s: b.String()}, true
}
