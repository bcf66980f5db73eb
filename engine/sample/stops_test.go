package sample_test

import (
	"strings"
	"testing"

	"athanor/engine/sample"
)

// TestStopsInAllCuts feeds each text in every division into three pieces.
func TestStopsInAllCuts(t *testing.T) {
	tests := []struct {
		name, text string
		stops      []string
		want       string
		stopped    bool
	}{
		{"none given", "hello", nil, "hello", false},
		{"absent", "hello world", []string{"###"}, "hello world", false},
		{"in the middle", "one STOP two", []string{"STOP"}, "one ", true},
		{"at the start", "STOP two", []string{"STOP"}, "", true},
		{"first of several", "ab<end>cd\n\n", []string{"\n\n", "<end>"}, "ab", true},
		{"false start", "a <en and <end>", []string{"<end>"}, "a <en and ", true},
		{"overlap with itself", "aaab", []string{"aab"}, "a", true},
		{"begins and never ends", "text <en", []string{"<end>"}, "text <en", false},
		{"complete first, begun later", "xabcdy", []string{"abcd", "bc"}, "xa", true},
		{"complete at once, the longest", "xabcy", []string{"bc", "abc", "c"}, "x", true},
		{"periodic", "abababac", []string{"ababac"}, "ab", true},
		{"one byte", "a.b", []string{"."}, "a", true},
		{"empty is ignored", "ab", []string{""}, "ab", false},
		{"many bytes", "naïve — fin", []string{"— fin"}, "naïve ", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i := 0; i <= len(tt.text); i++ {
				for j := i; j <= len(tt.text); j++ {
					got, stopped := feed(tt.stops, tt.text[:i], tt.text[i:j], tt.text[j:])
					if got != tt.want || stopped != tt.stopped {
						t.Fatalf("cut at %d and %d: got %q, %v; want %q, %v", i, j, got, stopped, tt.want, tt.stopped)
					}
				}
			}
		})
	}
}

func feed(stops []string, pieces ...string) (string, bool) {
	s := sample.NewStops(stops)
	var out strings.Builder
	for _, p := range pieces {
		emit, stopped := s.Push(p)
		out.WriteString(emit)
		if stopped {
			return out.String(), true
		}
	}
	out.WriteString(s.Flush())
	return out.String(), false
}

// TestStopsHoldLittle checks that only what may become a stop string waits.
func TestStopsHoldLittle(t *testing.T) {
	s := sample.NewStops([]string{"<end>"})
	if got, _ := s.Push("hello"); got != "hello" {
		t.Errorf("got %q, nothing of it can be a stop string", got)
	}
	if got, _ := s.Push(" <e"); got != " " {
		t.Errorf("got %q, want the space alone", got)
	}
	if got, _ := s.Push("x"); got != "<ex" {
		t.Errorf("got %q, the held text is free again", got)
	}
}

// FuzzStops compares with a search of the whole text, end by end.
func FuzzStops(f *testing.F) {
	f.Add("abababac", "ababac", "ba", uint8(3))
	f.Add("aaaaaaaab", "aab", "aaab", uint8(1))
	f.Add("x", "", "yy", uint8(0))
	f.Fuzz(func(t *testing.T, text, stop1, stop2 string, size uint8) {
		stops := []string{stop1, stop2}
		want, wantStopped := text, false
		for end := range len(text) + 1 {
			longest := 0
			for _, stop := range stops {
				if stop != "" && strings.HasSuffix(text[:end], stop) {
					longest = max(longest, len(stop))
				}
			}
			if longest > 0 {
				want, wantStopped = text[:end-longest], true
				break
			}
		}
		var pieces []string
		for rest := text; rest != ""; {
			n := min(int(size)%7+1, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got, stopped := feed(stops, pieces...); got != want || stopped != wantStopped {
			t.Fatalf("got %q, %v; want %q, %v", got, stopped, want, wantStopped)
		}
	})
}

// TestStopsStayLinear would take minutes if each piece were compared with each
// beginning of the stop string.
func TestStopsStayLinear(t *testing.T) {
	s := sample.NewStops([]string{strings.Repeat("a", 100_000) + "b"})
	for range 20_000 {
		if _, stopped := s.Push("aaaaaaaaaa"); stopped {
			t.Fatal("stopped")
		}
	}
	if got := s.Flush(); len(got) != 100_000 {
		t.Fatalf("%d bytes held", len(got))
	}
}
