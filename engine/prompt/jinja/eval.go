package jinja

import "fmt"

func (e *constExpr) eval(in *interp, _ *scope) Value { return e.v }

func (e *nameExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	if v, ok := sc.get(e.name); ok {
		return v
	}
	if v, ok := globals[e.name]; ok {
		return v
	}
	return &Undefined{msg: "'" + e.name + "' is undefined"}
}

func (in *interp) evalAll(items []expr, sc *scope) []Value {
	in.list(len(items))
	out := make([]Value, len(items))
	for i, x := range items {
		out[i] = x.eval(in, sc)
	}
	return out
}

func (e *listExpr) eval(in *interp, sc *scope) Value { return &List{in.evalAll(e.items, sc)} }

func (e *tupleExpr) eval(in *interp, sc *scope) Value { return Tuple(in.evalAll(e.items, sc)) }

func (e *dictExpr) eval(in *interp, sc *scope) Value {
	d := NewDict()
	for i, k := range e.keys {
		in.set(d, k.eval(in, sc), e.vals[i].eval(in, sc))
	}
	return d
}

func (e *unaryExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	v := e.x.eval(in, sc)
	if e.op == "not" {
		return !truth(v)
	}
	return negate(e.op, v)
}

func (e *binaryExpr) eval(in *interp, sc *scope) Value {
	l := e.l.eval(in, sc)
	return in.binary(e.op, l, e.r.eval(in, sc))
}

func (e *andExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	if l := e.l.eval(in, sc); !truth(l) {
		return l
	}
	return e.r.eval(in, sc)
}

func (e *orExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	if l := e.l.eval(in, sc); truth(l) {
		return l
	}
	return e.r.eval(in, sc)
}

func (e *concatExpr) eval(in *interp, sc *scope) Value {
	parts := make([]Str, len(e.parts))
	for i, x := range e.parts {
		parts[i] = in.str(x.eval(in, sc))
	}
	return concat(in, parts...)
}

func (e *compareExpr) eval(in *interp, sc *scope) Value {
	l := e.first.eval(in, sc)
	for i, op := range e.ops {
		r := e.rest[i].eval(in, sc)
		if !in.compare(op, l, r) {
			return false
		}
		l = r
	}
	return true
}

func (e *condExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	switch {
	case truth(e.test.eval(in, sc)):
		return e.yes.eval(in, sc)
	case e.no != nil:
		return e.no.eval(in, sc)
	}
	return &Undefined{msg: fmt.Sprintf(
		"the inline if-expression on line %d evaluated to false and no else section was defined.", e.line)}
}

func (e *attrExpr) eval(in *interp, sc *scope) Value { return in.getattr(e.x.eval(in, sc), e.name) }

func (e *itemExpr) eval(in *interp, sc *scope) Value {
	x := e.x.eval(in, sc)
	return in.getitem(x, e.key.eval(in, sc))
}

func (e *sliceExpr) eval(in *interp, sc *scope) Value {
	x := e.x.eval(in, sc)
	var part [3]Value
	for i, p := range [3]expr{e.lo, e.hi, e.step} {
		if p != nil {
			part[i] = p.eval(in, sc)
		}
	}
	return in.slice(x, part[0], part[1], part[2])
}

func (e *callExpr) eval(in *interp, sc *scope) Value {
	fn := e.fn.eval(in, sc)
	return in.call(fn, in.args(&e.args, sc))
}

func (e *filterExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	var x Value
	if e.x == nil {
		x, _ = sc.get(blockText)
	} else {
		x = e.x.eval(in, sc)
	}
	if e.def == nil {
		panic(newErr("TemplateRuntimeError", "no filter named '%s'", e.name))
	}
	return in.filter(e.name, e.def, x, in.args(&e.args, sc))
}

func (e *testExpr) eval(in *interp, sc *scope) Value {
	in.tick(1)
	x := e.x.eval(in, sc)
	if e.def == nil {
		panic(newErr("TemplateRuntimeError", "no test named '%s'", e.name))
	}
	return in.test(e.name, e.def, x, in.args(&e.args, sc))
}
