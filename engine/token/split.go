package token

// behavior says what becomes of the matches of a split.
type behavior string

// The behaviors, named as in the file.
const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	contiguous         behavior = "Contiguous"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// UnmarshalText refuses behaviors that do not exist.
func (b *behavior) UnmarshalText(text []byte) error {
	switch v := behavior(text); v {
	case removed, isolated, contiguous, mergedWithPrevious, mergedWithNext:
		*b = v
		return nil
	}
	return unsupported("split behavior %q", text)
}

// split cuts pieces at the matches of f; invert takes the stretches between
// the matches for the matches.
func split(f finder, b behavior, invert bool) preTokenizer {
	if s, ok := f.(scanner); ok && b == isolated {
		return splitScanned(s)
	}
	return func(next func(piece)) func(piece) {
		c := &cutter{behavior: b, invert: invert, next: next}
		match := c.match
		return func(p piece) {
			c.p, c.done, c.open, c.matched = p, 0, false, false
			f.find(p.s, match)
			c.finish()
		}
	}
}

// splitScanned is the hot path: everything is kept, matched or not.
func splitScanned(f scanner) preTokenizer {
	return func(next func(piece)) func(piece) {
		return func(p piece) {
			for i := 0; i < len(p.s); {
				start, stop := f(p.s, i)
				if start > i {
					next(piece{p.s[i:start], p.first && i == 0})
				}
				if stop > start {
					next(piece{p.s[start:stop], p.first && start == 0})
				}
				i = stop
			}
		}
	}
}

// cutter joins spans, matched or not, into pieces by one behavior.
type cutter struct {
	behavior behavior
	invert   bool
	next     func(piece)

	p       piece
	done    int  // p.s[:done] has been cut into spans
	start   int  // where the open span begins
	stop    int  // and ends
	open    bool // there is one
	matched bool // the span before this one was a match
}

// match takes the next match and what lies before it.
func (c *cutter) match(i, j int) {
	if c.done != i {
		c.add(c.done, i, false)
	}
	c.add(i, j, true)
	c.done = j
}

func (c *cutter) finish() {
	if c.done != len(c.p.s) {
		c.add(c.done, len(c.p.s), false)
	}
	c.close()
}

func (c *cutter) add(i, j int, match bool) {
	match = match != c.invert
	switch c.behavior {
	case removed:
		if !match {
			c.span(i, j, false)
		}
	case contiguous:
		c.span(i, j, match == c.matched)
	case mergedWithPrevious:
		c.span(i, j, match && !c.matched)
	case mergedWithNext:
		c.span(i, j, !match && c.matched)
	default:
		c.span(i, j, false)
	}
	c.matched = match
}

// span opens a new span, or lengthens the open one.
func (c *cutter) span(i, j int, join bool) {
	if join && c.open {
		c.stop = j
		return
	}
	c.close()
	c.start, c.stop, c.open = i, j, true
}

func (c *cutter) close() {
	if c.open && c.stop > c.start {
		c.next(piece{c.p.s[c.start:c.stop], c.p.first && c.start == 0})
	}
	c.open = false
}
