package sample

import "strings"

// Stops finds stop strings in text that comes in pieces. It gives text out as
// soon as it can no longer be part of a stop string. Not safe for concurrent use.
type Stops struct {
	stops []string
	held  string
}

// NewStops makes the finder for one sequence; empty strings are ignored.
func NewStops(stops []string) *Stops {
	s := &Stops{}
	for _, stop := range stops {
		if stop != "" {
			s.stops = append(s.stops, stop)
		}
	}
	return s
}

// Push takes the next piece of text and returns what is final. stopped reports
// that a stop string came: emit then ends before it, and the rest is dropped.
// Among stop strings the one that begins first counts.
func (s *Stops) Push(text string) (emit string, stopped bool) {
	if len(s.stops) == 0 {
		return text, false
	}
	s.held += text
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		emit, s.held = s.held[:first], ""
		return emit, true
	}
	keep := s.pending()
	emit, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return emit, false
}

// Flush returns the text that was held back, for the end of the sequence.
func (s *Stops) Flush() string {
	text := s.held
	s.held = ""
	return text
}

// pending is the length of the longest end of held that begins a stop string.
func (s *Stops) pending() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > longest; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}
