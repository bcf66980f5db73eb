package sample

// Stops finds stop strings in text that comes in pieces. It gives text out as
// soon as it can no longer be part of a stop string, and what it finds does not
// depend on how the text is cut: the stop string that is complete first counts,
// and of those complete at once the longest. Work is linear in the text (Knuth,
// Morris and Pratt 1977), whatever the stop strings are. Not safe for concurrent
// use.
type Stops struct {
	stops []stop
	held  []byte // the longest end of the text that begins a stop string
}

// stop is one stop string with its automaton.
type stop struct {
	text   string
	border []int // border[n]: length of the longest proper border of text[:n]
	at     int   // how much of text the end of the input matches
}

// NewStops makes the finder for one sequence; empty strings are ignored.
func NewStops(stops []string) *Stops {
	s := &Stops{}
	for _, text := range stops {
		if text != "" {
			s.stops = append(s.stops, stop{text: text, border: borders(text)})
		}
	}
	return s
}

func borders(text string) []int {
	border := make([]int, len(text)+1)
	for n, at := 1, 0; n < len(text); n++ {
		for at > 0 && text[at] != text[n] {
			at = border[at]
		}
		if text[at] == text[n] {
			at++
		}
		border[n+1] = at
	}
	return border
}

// step takes one byte and says whether the stop string is complete.
func (s *stop) step(c byte) bool {
	for s.at > 0 && s.text[s.at] != c {
		s.at = s.border[s.at]
	}
	if s.text[s.at] == c {
		s.at++
	}
	return s.at == len(s.text)
}

// Push takes the next piece of text and returns what is final. stopped reports
// that a stop string came: emit then ends before it, the rest is dropped, and
// there is nothing more to push.
func (s *Stops) Push(text string) (emit string, stopped bool) {
	if len(s.stops) == 0 {
		return text, false
	}
	for i := range len(text) {
		found := 0
		for k := range s.stops {
			if s.stops[k].step(text[i]) {
				found = max(found, len(s.stops[k].text))
			}
		}
		if found > 0 {
			all := append(s.held, text[:i+1]...)
			s.restart()
			return string(all[:len(all)-found]), true
		}
	}
	keep := 0
	for _, stop := range s.stops {
		keep = max(keep, stop.at)
	}
	s.held = append(s.held, text...)
	done := len(s.held) - keep
	emit = string(s.held[:done])
	s.held = s.held[done:]
	return emit, false
}

// Flush returns the text that was held back, for the end of the sequence.
func (s *Stops) Flush() string {
	text := string(s.held)
	s.restart()
	return text
}

func (s *Stops) restart() {
	s.held = nil
	for i := range s.stops {
		s.stops[i].at = 0
	}
}
