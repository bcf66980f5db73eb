package jinja

import "strings"

// globals are the functions that every template sees. Variables hide them.
var globals map[string]Value

func init() {
	globals = map[string]Value{}
	for name, fn := range map[string]func(in *interp, a *args) Value{
		"cycler":          newCycler,
		"dict":            newDict,
		"joiner":          newJoiner,
		"namespace":       newNamespace,
		"raise_exception": raiseException,
		"range":           newRange,
		"strftime_now":    strftimeNow,
	} {
		globals[name] = &builtin{name, fn}
	}
}

// raiseException is how a template refuses its input.
func raiseException(in *interp, a *args) Value {
	msg := a.bind("raise_exception", 1, "message")[0]
	panic(&TemplateError{Message: in.str(msg).text})
}

func strftimeNow(in *interp, a *args) Value {
	format := mustStr(a.bind("strftime_now", 1, "format")[0], "strftime")
	in.tick(8 * strings.Count(format.text, "%"))
	return format.mapRuns(in, func(s string) string { return strftime(s, in.now) })
}

func newRange(_ *interp, a *args) Value {
	v := a.bind("range", 1, "start", "stop", "step")
	r := &Range{0, mustIndex(v[0]), 1}
	if v[1] != absent {
		r = &Range{r.stop, mustIndex(v[1]), optInt(v[2], 1)}
	}
	if r.step == 0 {
		panic(valueErr("range() arg 3 must not be zero"))
	}
	if r.len() > maxRange {
		panic(&LimitError{What: "elements in a range", Limit: maxRange})
	}
	return r
}

func newDict(in *interp, a *args) Value {
	d := NewDict()
	if len(a.pos) > 1 {
		panic(typeErr("dict expected at most 1 argument, got %d", len(a.pos)))
	}
	if len(a.pos) == 1 {
		in.merge(d, a.pos[0])
	}
	for _, k := range a.kw {
		in.set(d, Trusted(k.name), k.v)
	}
	return d
}

func newNamespace(in *interp, a *args) Value {
	return &Namespace{newDict(in, a).(*Dict)}
}

// cycler goes round its items.
type cycler struct {
	items []Value
	at    int
}

func newCycler(_ *interp, a *args) Value {
	if len(a.pos) == 0 {
		panic(newErr("RuntimeError", "at least one item has to be provided"))
	}
	return &cycler{items: a.pos}
}

func (c *cycler) attr(name string) (Value, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return &builtin{name, func(*interp, *args) Value {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &builtin{name, func(*interp, *args) Value { c.at = 0; return nil }}, true
	}
	return nil, false
}

// newJoiner returns a function that yields nothing the first time and the
// separator after that.
func newJoiner(_ *interp, a *args) Value {
	sep := a.bind("joiner", 0, "sep")[0]
	if sep == absent {
		sep = Trusted(", ")
	}
	used := false
	return &builtin{"joiner", func(*interp, *args) Value {
		if !used {
			used = true
			return Str{}
		}
		return sep
	}}
}
