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
	return func(p piece, out []piece) []piece {
		c := cutter{p: p, behavior: b, invert: invert, out: out}
		done := 0
		f.find(p.s, func(i, j int) {
			if done != i {
				c.add(done, i, false)
			}
			c.add(i, j, true)
			done = j
		})
		if done != len(p.s) {
			c.add(done, len(p.s), false)
		}
		return c.finish()
	}
}

// splitScanned is the hot path: everything is kept, matched or not.
func splitScanned(f scanner) preTokenizer {
	return func(p piece, out []piece) []piece {
		for i := 0; i < len(p.s); {
			start, stop := f(p.s, i)
			if start > i {
				out = append(out, piece{p.s[i:start], p.first && i == 0})
			}
			if stop > start {
				out = append(out, piece{p.s[start:stop], p.first && start == 0})
			}
			i = stop
		}
		return out
	}
}

// cutter joins spans, matched or not, into pieces by one behavior.
type cutter struct {
	p        piece
	behavior behavior
	invert   bool
	out      []piece
	start    int  // where the open span begins
	stop     int  // and ends
	open     bool // there is one
	matched  bool // the span before this one was a match
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
		c.out = append(c.out, piece{c.p.s[c.start:c.stop], c.p.first && c.start == 0})
	}
	c.open = false
}

func (c *cutter) finish() []piece {
	c.close()
	return c.out
}
