package jinja

func (s *forStmt) exec(in *interp, sc *scope, out *strBuf) flow {
	loop, next := s.begin(in, sc)
	completed := false // Jinja2 runs "else" unless a turn reached its end
	for {
		turn := newScope(sc)
		if !s.turn(in, turn, loop, next) {
			break
		}
		turn.set("loop", loop)
		switch in.run(s.body, turn, out) {
		case flowBreak:
			next = nil
		case flowNext:
			completed = true
		}
		if next == nil {
			break
		}
	}
	if !completed {
		return in.run(s.orElse, newScope(sc), out)
	}
	return flowNext
}

// begin evaluates what is iterated over; a condition makes it a generator, so
// that it is tested turn by turn, between the turns of the body.
func (s *forStmt) begin(in *interp, sc *scope) (*loopVar, func() (Value, bool)) {
	in.line = s.line
	in.tick(1)
	v := s.iter.eval(in, sc)
	if s.test != nil {
		items := in.mustIter(v)
		v = generate("generator", func() (Value, bool) {
			for {
				item, ok := items()
				if !ok {
					return nil, false
				}
				in.tick(1)
				test := newScope(sc)
				s.target.assign(in, test, item)
				if truth(s.test.eval(in, test)) {
					return item, true
				}
			}
		})
	}
	loop := &loopVar{in: in, over: v, next: in.mustIter(v), index0: -1}
	return loop, loop.advance
}

// turn assigns the next item; false at the end.
func (s *forStmt) turn(in *interp, sc *scope, loop *loopVar, next func() (Value, bool)) bool {
	in.line = s.line
	in.tick(3) // a turn makes a scope
	item, ok := next()
	if ok {
		s.target.assign(in, sc, item)
	}
	return ok
}

// loopVar is the variable "loop". It looks ahead only when asked to.
type loopVar struct {
	in     *interp
	over   Value
	next   func() (Value, bool)
	index0 int64
	size   int // 0 until length is asked for

	current, before Value
	ahead           *lookAhead
	lastChanged     Tuple
	changedOnce     bool
}

type lookAhead struct {
	item Value
	ok   bool
}

func (l *loopVar) advance() (Value, bool) {
	next := l.ahead
	l.ahead = nil
	if next == nil {
		item, ok := l.next()
		next = &lookAhead{item, ok}
	}
	if next.ok {
		l.index0++
		l.before, l.current = l.current, next.item
	}
	return next.item, next.ok
}

func (l *loopVar) peek() *lookAhead {
	if l.ahead == nil {
		item, ok := l.next()
		l.ahead = &lookAhead{item, ok}
	}
	return l.ahead
}

// length counts the items, reading a generator to its end for it.
func (l *loopVar) length() int {
	if l.size > 0 {
		return l.size
	}
	if s, ok := l.over.(Str); ok {
		l.size = s.length(l.in)
	} else if n, ok := size(l.over); ok {
		l.size = n
	} else {
		var rest []Value
		for item, ok := l.next(); ok; item, ok = l.next() {
			l.in.list(1)
			rest = append(rest, item)
		}
		l.size = len(rest) + int(l.index0) + 1
		if l.ahead != nil && l.ahead.ok {
			l.size++
		}
		l.next = sliceIter(rest)
	}
	return l.size
}

// attr is loop.name; ok is false where there is none.
func (l *loopVar) attr(name string) (Value, bool) {
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "first":
		return l.index0 == 0, true
	case "last":
		return !l.peek().ok, true
	case "length":
		return int64(l.length()), true
	case "revindex":
		return int64(l.length()) - l.index0, true
	case "revindex0":
		return int64(l.length()) - l.index0 - 1, true
	case "depth":
		return int64(1), true
	case "depth0":
		return int64(0), true
	case "previtem":
		if l.index0 == 0 {
			return &Undefined{msg: "there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		if next := l.peek(); next.ok {
			return next.item, true
		}
		return &Undefined{msg: "there is no next item"}, true
	case "cycle":
		return &builtin{"cycle", l.cycle}, true
	case "changed":
		return &builtin{"changed", l.changed}, true
	}
	return nil, false
}

func (l *loopVar) cycle(_ *interp, a *args) Value {
	if len(a.pos) == 0 {
		panic(typeErr("no items for cycling given"))
	}
	return a.pos[l.index0%int64(len(a.pos))]
}

func (l *loopVar) changed(in *interp, a *args) Value {
	now := Tuple(a.pos)
	same := l.changedOnce && in.equal(l.lastChanged, now)
	l.lastChanged, l.changedOnce = now, true
	return !same
}
