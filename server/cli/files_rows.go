package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// lossMarks stand around tokens that are learnt.
type lossMarks struct{ begin, end string }

// marksFor are colours on a terminal and brackets elsewhere.
func marksFor(out io.Writer) lossMarks {
	if terminal(out) {
		return lossMarks{"\x1b[32m", "\x1b[0m"}
	}
	return lossMarks{"⟦", "⟧"}
}

// sampleRow is a sequence as training sees it.
type sampleRow struct {
	name      string   // sample, chosen or rejected
	tokens    []string // text of each
	spans     [][2]int // [from, to) in tokens, of what is learnt
	learnt    int      // tokens
	truncated bool
}

// printRows prints samples token by token. Their text comes from anywhere, so nothing
// in it may steer a terminal.
func printRows(out io.Writer, rows []sampleRow, m lossMarks) {
	for i, row := range rows {
		note := ""
		if row.truncated {
			note = ", cut"
		}
		fmt.Fprintf(out, "\n%s %d: %d tokens, %d learnt%s\n", row.name, i+1, len(row.tokens), row.learnt, note)
		at := 0
		// A character may be split over tokens, but not over spans.
		put := func(to int) {
			to = min(max(to, at), len(row.tokens))
			fmt.Fprint(out, strings.Map(harmless, strings.Join(row.tokens[at:to], "")))
			at = to
		}
		for _, s := range row.spans {
			put(s[0])
			fmt.Fprint(out, m.begin)
			put(s[1])
			fmt.Fprint(out, m.end)
		}
		put(len(row.tokens))
		fmt.Fprintln(out)
	}
}

// harmless replaces control characters but for the ends of lines.
func harmless(r rune) rune {
	switch {
	case r == '\n':
		return r
	case r == '\t':
		return ' '
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
		return '\uFFFD'
	}
	return r
}
