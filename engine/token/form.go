package token

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// formNormalizer applies a Unicode normalization form.
func formNormalizer(f norm.Form) normalizer {
	return func(t text) text {
		if f.IsNormalString(t.s) {
			return t
		}
		if t.marks == nil && !longMarkRun(t.s) {
			return text{s: f.String(t.s)}
		}
		e := edit{src: t}
		for i := 0; i < len(t.s); {
			n := segment(f, t.s[i:])
			was := t.s[i : i+n]
			now := normalizeSegment(f, was)
			if now != was {
				e.put(i, i+n, now)
			}
			i += n
		}
		return e.text()
	}
}

// maxMarks is below the number of combining marks after which x/text inserts a
// joiner to keep streams safe (30, UAX #15); a tokenizer must not see that
// joiner, so longer runs are normalized here.
const maxMarks = 20

func longMarkRun(s string) bool {
	run := 0
	for _, r := range s {
		if r < utf8.RuneSelf || !unicode.Is(unicode.M, r) {
			run = 0
			continue
		}
		if run++; run > maxMarks {
			return true
		}
	}
	return false
}

// segment is the length of the first stretch of s that normalizes by itself.
// x/text breaks long runs of marks, so those are joined again.
func segment(f norm.Form, s string) int {
	n := f.NextBoundaryInString(s, true)
	for n < len(s) && !f.PropertiesString(s[n:]).BoundaryBefore() {
		n += max(1, f.NextBoundaryInString(s[n:], true))
	}
	return n
}

func normalizeSegment(f norm.Form, s string) string {
	if !longMarkRun(s) {
		return f.String(s)
	}
	full := norm.NFD
	if f == norm.NFKC || f == norm.NFKD {
		full = norm.NFKD
	}
	var rs []rune
	for _, r := range s {
		rs = append(rs, []rune(full.String(string(r)))...)
	}
	reorder(rs)
	if f == norm.NFC || f == norm.NFKC {
		rs = compose(rs)
	}
	return string(rs)
}

func combiningClass(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }

// reorder is the canonical ordering of UAX #15: marks between starters are
// sorted by combining class, stably.
func reorder(rs []rune) {
	for i := 0; i < len(rs); {
		j := i
		for j < len(rs) && combiningClass(rs[j]) != 0 {
			j++
		}
		slices.SortStableFunc(rs[i:j], func(a, b rune) int {
			return int(combiningClass(a)) - int(combiningClass(b))
		})
		i = j + 1
	}
}

// compose is the canonical composition of UAX #15.
func compose(rs []rune) []rune {
	out := rs[:0:0]
	starter, last := -1, -1
	for _, r := range rs {
		class := int(combiningClass(r))
		if starter >= 0 && (last < class || last == -1) {
			if c, ok := composePair(out[starter], r); ok {
				out[starter] = c
				continue
			}
		}
		if class == 0 {
			starter, last = len(out), -1
		} else {
			last = class
		}
		out = append(out, r)
	}
	return out
}

func composePair(a, b rune) (rune, bool) {
	s := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s)
}
