package jinja

// absent is the value of an optional argument that was not given.
type absentArg struct{}

var absent Value = absentArg{}

// bind gives the arguments their places. Those not given are absent; the first
// need must be given.
func (a *args) bind(fn string, need int, params ...string) []Value {
	out := make([]Value, len(params))
	for i := range out {
		out[i] = absent
	}
	if len(a.pos) > len(params) {
		panic(typeErr("%s() takes at most %d arguments (%d given)", fn, len(params), len(a.pos)))
	}
	copy(out, a.pos)
next:
	for _, k := range a.kw {
		for i, name := range params {
			if name != k.name {
				continue
			}
			if i < len(a.pos) {
				panic(typeErr("%s() got multiple values for argument '%s'", fn, name))
			}
			out[i] = k.v
			continue next
		}
		panic(typeErr("%s() got an unexpected keyword argument '%s'", fn, k.name))
	}
	for i, v := range out[:need] {
		if v == absent {
			panic(typeErr("%s() missing required argument '%s'", fn, params[i]))
		}
	}
	return out
}

// orNone makes an absent argument None.
func orNone(v Value) Value {
	if v == absent {
		return nil
	}
	return v
}

// optInt is an integer argument with a default.
func optInt(v Value, def int64) int64 {
	if v == absent {
		return def
	}
	return mustIndex(v)
}

// optBool is the truth of an argument with a default.
func optBool(v Value, def bool) bool {
	if v == absent {
		return def
	}
	return truth(v)
}

// mustStr is an argument that has to be a string.
func mustStr(v Value, fn string) Str {
	switch v := v.(type) {
	case Str:
		return v
	case *Undefined:
		panic(v.err())
	}
	panic(typeErr("%s: expected str, got %s", fn, typeName(v)))
}
