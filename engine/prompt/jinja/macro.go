package jinja

// Macro is a macro together with the scope that it was made in.
type Macro struct {
	def *macroDef
	sc  *scope
}

// args are the evaluated arguments of a call.
type args struct {
	pos []Value
	kw  []kwarg
}

type kwarg struct {
	name string
	v    Value
}

// takeKw removes a keyword argument.
func (a *args) takeKw(name string) (Value, bool) {
	for i, k := range a.kw {
		if k.name == name {
			a.kw = append(a.kw[:i:i], a.kw[i+1:]...)
			return k.v, true
		}
	}
	return nil, false
}

// args evaluates arguments, with * and ** opened.
func (in *interp) args(e *argExprs, sc *scope) *args {
	a := &args{}
	for _, x := range e.pos {
		a.pos = append(a.pos, x.eval(in, sc))
	}
	if e.star != nil {
		a.pos = append(a.pos, in.collect(e.star.eval(in, sc))...)
	}
	seen := map[string]bool{}
	add := func(name string, v Value) {
		if seen[name] {
			panic(typeErr("got multiple values for keyword argument '%s'", name))
		}
		seen[name] = true
		a.kw = append(a.kw, kwarg{name, v})
	}
	for i, x := range e.kw {
		add(e.names[i], x.eval(in, sc))
	}
	if e.kwstar != nil {
		d, ok := e.kwstar.eval(in, sc).(*Dict)
		if !ok {
			panic(typeErr("argument after ** must be a mapping"))
		}
		for i, k := range d.keys {
			name, ok := k.(Str)
			if !ok {
				panic(typeErr("keywords must be strings"))
			}
			in.list(2)
			add(name.text, d.vals[i])
		}
	}
	return a
}

// call is fn(a).
func (in *interp) call(fn Value, a *args) Value {
	in.tick(1)
	switch fn := fn.(type) {
	case *builtin:
		return fn.call(in, a)
	case *Macro:
		return in.callMacro(fn, a)
	case *Undefined:
		panic(fn.err())
	case *loopVar:
		panic(typeErr("recursive loops are not supported in chat templates"))
	}
	panic(typeErr("'%s' object is not callable", typeName(fn)))
}

// callMacro binds the arguments and returns what the body prints.
func (in *interp) callMacro(m *Macro, a *args) Value {
	in.enter()
	in.tick(4) // a call makes a scope
	line := in.line
	def, sc := m.def, newScope(m.sc)
	given := map[string]bool{}
	for i, name := range def.params {
		if i < len(a.pos) {
			sc.set(name, a.pos[i])
			given[name] = true
		} else if v, ok := a.takeKw(name); ok {
			sc.set(name, v)
			given[name] = true
		}
	}
	in.bindSpecial(m, sc, a)
	for i, name := range def.params {
		if given[name] {
			continue
		}
		at := i - (len(def.params) - len(def.defaults))
		if at < 0 {
			sc.set(name, &Undefined{msg: "parameter '" + name + "' was not provided"})
		} else {
			sc.set(name, def.defaults[at].eval(in, sc))
		}
	}
	text, _ := in.capture(def.body, sc)
	in.leave()
	in.line = line
	return text
}

// bindSpecial binds caller, kwargs and varargs, where the body reads them, and
// refuses surplus arguments where it does not.
func (in *interp) bindSpecial(m *Macro, sc *scope, a *args) {
	def := m.def
	if def.caller {
		caller, ok := a.takeKw("caller")
		if !ok {
			caller = &Undefined{msg: "No caller defined"}
		}
		sc.set("caller", caller)
	}
	if def.kwargs {
		d := NewDict()
		for _, k := range a.kw {
			in.set(d, Trusted(k.name), k.v)
		}
		sc.set("kwargs", d)
	} else if len(a.kw) > 0 {
		panic(typeErr("macro '%s' takes no keyword argument '%s'", def.name, a.kw[0].name))
	}
	if rest := a.pos[min(len(a.pos), len(def.params)):]; def.varargs {
		sc.set("varargs", Tuple(rest))
	} else if len(rest) > 0 {
		panic(typeErr("macro '%s' takes not more than %d argument(s)", def.name, len(def.params)))
	}
}

func (m *Macro) attr(name string) (Value, bool) {
	switch name {
	case "name":
		return Trusted(m.def.name), true
	case "arguments":
		var t Tuple
		for _, p := range m.def.params {
			t = append(t, Trusted(p))
		}
		return t, true
	case "catch_kwargs":
		return m.def.kwargs, true
	case "catch_varargs":
		return m.def.varargs, true
	case "caller":
		return m.def.caller, true
	}
	return nil, false
}
