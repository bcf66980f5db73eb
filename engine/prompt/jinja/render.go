package jinja

import "time"

// Options are what a rendering needs besides its variables.
type Options struct {
	Now    time.Time // what strftime_now tells
	Limits Limits    // zero: DefaultLimits(0, 0)
	// Generation, unless nil, is told of each {% generation %} block where in the
	// output its text lies, or (-1, -1) for a block inside a macro or a capture,
	// whose text may end up anywhere.
	Generation func(from, to int)
}

// Render runs the template with the given variables. Errors are
// *TemplateError where the template itself refuses, *RuntimeError where an
// operation fails as it would in Python, *LimitError where the budget is used
// up. vars is only read.
func (t *Template) Render(vars map[string]Value, opts Options) (out Str, err error) {
	in := &interp{budget: budget{lim: opts.Limits.orDefault()}, now: opts.Now, generation: opts.Generation}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *RuntimeError:
			r.Line, err = in.line, r
		case *TemplateError:
			r.Line, err = in.line, r
		case *LimitError:
			r.Line, err = in.line, r
		default:
			panic(r)
		}
	}()
	root := &scope{vars: map[string]Value{}, parent: &scope{vars: vars}}
	buf := newBuf(in)
	in.root = buf
	for _, s := range t.body {
		s.exec(in, root, buf)
		if n := int64(buf.b.Len()); n > in.lim.Output {
			panic(&LimitError{What: "bytes of output", Limit: in.lim.Output})
		}
	}
	return buf.str(), nil
}

// interp is the state of one rendering.
type interp struct {
	budget
	now  time.Time
	line int // of the statement that is running, for errors

	root       *strBuf // the output
	generation func(from, to int)
}

// scope is the variables of one frame: the root, a loop's turn, a macro call, a
// block. Reading goes outwards, writing stays inside, as Jinja2 has it.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) get(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = map[string]Value{}
	}
	s.vars[name] = v
}
