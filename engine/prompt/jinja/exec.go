package jinja

// run executes statements until one of them leaves the loop around it.
func (in *interp) run(body []stmt, sc *scope, out *strBuf) flow {
	for _, s := range body {
		if f := s.exec(in, sc, out); f != flowNext {
			return f
		}
	}
	return flowNext
}

// capture runs a body and returns what it prints.
func (in *interp) capture(body []stmt, sc *scope) (Str, flow) {
	buf := newBuf(in)
	f := in.run(body, sc, buf)
	return buf.str(), f
}

func (s *dataStmt) exec(in *interp, _ *scope, out *strBuf) flow {
	in.tick(1)
	out.add(s.text)
	return flowNext
}

func (s *outputStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	in.line = s.line
	switch v := s.x.eval(in, sc).(type) {
	case Str:
		out.add(v)
	default:
		out.add(in.str(v))
	}
	return flowNext
}

func (s *ifStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	for i, body := range s.bodies {
		in.line = s.line
		in.tick(1)
		if truth(s.tests[i].eval(in, sc)) {
			return in.run(body, sc, out)
		}
	}
	return in.run(s.orElse, sc, out)
}

func (s *setStmt) exec(in *interp, sc *scope, _ *strBuf) flow {
	in.line = s.line
	in.tick(1)
	s.target.assign(in, sc, s.x.eval(in, sc))
	return flowNext
}

func (s *setBlockStmt) exec(in *interp, sc *scope, _ *strBuf) flow {
	in.line = s.line
	in.tick(1)
	inner := newScope(sc)
	text, f := in.capture(s.body, inner)
	if f != flowNext {
		return f
	}
	in.line = s.line
	var v Value = text
	if s.filter != nil {
		v = in.filterBlock(s.filter, inner, text)
	}
	s.target.assign(in, sc, v)
	return flowNext
}

func (s *filterStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	in.line = s.line
	in.tick(1)
	inner := newScope(sc)
	text, f := in.capture(s.body, inner)
	if f != flowNext {
		return f
	}
	in.line = s.line
	out.add(in.str(in.filterBlock(s.filter, inner, text)))
	return flowNext
}

// blockText is the name under which a block's text reaches its filters; no
// template can write it.
const blockText = "\x00text"

func (in *interp) filterBlock(filter expr, sc *scope, text Str) Value {
	sc.set(blockText, text)
	return filter.eval(in, sc)
}

func (s *withStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	inner := newScope(sc)
	func() {
		in.line = s.line
		in.tick(1)
		for i, t := range s.targets {
			t.assign(in, inner, s.vals[i].eval(in, sc))
		}
	}()
	return in.run(s.body, inner, out)
}

func (s *generationStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	in.tick(1)
	from := out.b.Len()
	f := in.run(s.body, newScope(sc), out)
	switch {
	case in.generation == nil:
	case out != in.root:
		in.generation(-1, -1)
	default:
		in.generation(from, out.b.Len())
	}
	return f
}

func (s *jumpStmt) exec(in *interp, _ *scope, _ *strBuf) flow {
	in.tick(1)
	return s.how
}

func (s *macroStmt) exec(in *interp, sc *scope, _ *strBuf) flow {
	in.tick(1)
	sc.set(s.def.name, &Macro{s.def, sc})
	return flowNext
}

func (s *callStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	in.line = s.line
	in.tick(1)
	a := in.args(&s.call.args, sc)
	a.kw = append(a.kw, kwarg{"caller", &Macro{s.caller, sc}})
	out.add(in.str(in.call(s.call.fn.eval(in, sc), a)))
	return flowNext
}

func (t *nameTarget) assign(_ *interp, sc *scope, v Value) { sc.set(t.name, v) }

func (t *tupleTarget) assign(in *interp, sc *scope, v Value) {
	if u, ok := v.(*Undefined); ok && len(t.items) > 0 {
		panic(valueErr("not enough values to unpack: %s", u.msg))
	}
	next, ok := in.iter(v)
	if !ok {
		panic(typeErr("cannot unpack non-iterable %s object", typeName(v)))
	}
	items := make([]Value, 0, len(t.items))
	for item, ok := next(); ok; item, ok = next() {
		in.tick(1)
		if len(items) == len(t.items) {
			panic(valueErr("too many values to unpack (expected %d)", len(t.items)))
		}
		items = append(items, item)
	}
	if len(items) < len(t.items) {
		panic(valueErr("not enough values to unpack (expected %d, got %d)", len(t.items), len(items)))
	}
	for i, item := range items {
		t.items[i].assign(in, sc, item)
	}
}

func (t *attrTarget) assign(in *interp, sc *scope, v Value) {
	obj, _ := sc.get(t.obj)
	ns, ok := obj.(*Namespace)
	if !ok {
		panic(newErr("TemplateRuntimeError", "cannot assign attribute on non-namespace object"))
	}
	in.set(ns.attrs, Trusted(t.name), v)
}
