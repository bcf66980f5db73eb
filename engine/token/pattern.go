package token

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// Bounds on patterns and replacements taken from a file.
const (
	maxPattern = 16 << 10
	maxContent = 4 << 10
	// matchTimeout ends one search of a pattern that backtracks without end.
	// What is left of that piece then stays in one piece.
	matchTimeout = time.Second
)

// pattern is {"String": …} or {"Regex": …}.
type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// replaceOptions are those of the Replace normalizer and decoder.
type replaceOptions struct {
	Pattern pattern
	Content string
}

func (o *replaceOptions) check() error {
	if len(o.Content) > maxContent {
		return malformed("Replace: content of %d bytes, at most %d", len(o.Content), maxContent)
	}
	if o.Pattern.String != nil && *o.Pattern.String == "" {
		return malformed("Replace: empty pattern")
	}
	return o.Pattern.check()
}

func (p pattern) check() error {
	if (p.String == nil) == (p.Regex == nil) {
		return malformed("pattern: exactly one of String and Regex is needed")
	}
	if p.String != nil && len(*p.String) > maxPattern || p.Regex != nil && len(*p.Regex) > maxPattern {
		return malformed("pattern longer than %d bytes", maxPattern)
	}
	return nil
}

// A finder reports the matches of a pattern from left to right.
type finder interface {
	find(s string, yield func(i, j int))
}

// scanner is a finder written by hand: it returns the bounds of the next match
// at or after i, and a start of len(s) where there is none.
type scanner func(s string, i int) (start, end int)

func (f scanner) find(s string, yield func(i, j int)) {
	for i := 0; i < len(s); {
		start, end := f(s, i)
		if start >= len(s) {
			return
		}
		yield(start, end)
		i = end
	}
}

// literal finds a fixed string.
type literal string

func (l literal) find(s string, yield func(i, j int)) {
	if l == "" {
		return
	}
	for i := 0; ; {
		k := strings.Index(s[i:], string(l))
		if k < 0 {
			return
		}
		yield(i+k, i+k+len(l))
		i += k + len(l)
	}
}

// each finds every rune of a class by itself.
type each func(r rune) bool

func (f each) find(s string, yield func(i, j int)) {
	for i, r := range s {
		if f(r) {
			yield(i, i+utf8.RuneLen(r))
		}
	}
}

// expression is a pattern without a scanner of its own.
type expression struct{ re *regexp2.Regexp }

func (x expression) find(s string, yield func(i, j int)) {
	runes := []rune(s)
	at, pos := 0, 0 // rune index and its byte offset
	advance := func(to int) int {
		for ; at < to; at++ {
			pos += utf8.RuneLen(runes[at])
		}
		return pos
	}
	last := -1
	// The one error is the time limit; the rest then counts as no match.
	_ = x.re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		k, n, _ := m.GroupRange(0)
		if n == 0 && k == last {
			return true // nothing, right behind a match, is no match
		}
		last = k + n
		i := advance(k)
		yield(i, advance(last))
		return true
	})
}

// compilePattern prefers a hand-written scanner, which is ten times faster and
// cannot backtrack.
func compilePattern(p pattern) (finder, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.String != nil {
		return literal(*p.String), nil
	}
	if s, ok := scanners[*p.Regex]; ok {
		return s, nil
	}
	return compileExpression(*p.Regex)
}

func compileExpression(src string) (finder, error) {
	translated, err := translate(src)
	if err != nil {
		return nil, err
	}
	// The patterns are written for Oniguruma, where ^ and $ always mean lines.
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, unsupported("regular expression %q (%v)", src, err)
	}
	re.MatchTimeout = matchTimeout
	return expression{re}, nil
}

// What \w means to Oniguruma inside a class; by itself it also takes the
// Latin-1 numbers. regexp2 has another set.
const (
	wordClass  = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\p{Other_Alphabetic}`
	wordLatin1 = `²³¹¼½¾`
)

// translate turns a pattern for Oniguruma into one for regexp2, and refuses
// what the two read differently, so that no pattern is silently understood as
// another one.
func translate(src string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(src); i++ {
		rest := src[i:]
		bad := ""
		switch {
		case src[i] == '\\' && len(rest) > 1:
			var s string
			s, bad = translateEscape(rest[1], inClass)
			out.WriteString(s)
			i++
			if bad == "" {
				continue
			}
		case inClass && strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "[]"), strings.HasPrefix(rest, "(?m"):
			bad = rest[:2]
		case strings.HasPrefix(rest, "[^]"):
			bad = "[^]"
		case inClass && src[i] == '[':
			bad = "a class in a class"
		case src[i] == '[':
			inClass = true
		case src[i] == ']':
			inClass = false
		}
		if bad != "" {
			return "", unsupported("regular expression %q: %s", src, bad)
		}
		out.WriteByte(src[i])
	}
	return out.String(), nil
}

// translateEscape translates the escape \c; bad names one that cannot be.
func translateEscape(c byte, inClass bool) (s, bad string) {
	switch {
	case c == 'w' && inClass:
		return wordClass, ""
	case c == 'w':
		return "[" + wordClass + wordLatin1 + "]", ""
	case c == 'W' && !inClass:
		return "[^" + wordClass + wordLatin1 + "]", ""
	case strings.IndexByte("WhHRXKGOyYNbB", c) >= 0:
		return "", "escape \\" + string(c)
	}
	return "\\" + string(c), ""
}

// scanners are the patterns of published tokenizers, by their exact source.
var scanners = map[string]scanner{
	gpt2Pattern:   scanGPT2,
	llama3Pattern: scanLlama(3),
	qwen2Pattern:  scanLlama(1),
	clipPattern:   scanCLIP,
	`[0-9][0-9][0-9]`: func(s string, i int) (int, int) {
		for n := 0; i < len(s); i++ {
			if s[i] < '0' || s[i] > '9' {
				n = 0
			} else if n++; n == 3 {
				return i - 2, i + 1
			}
		}
		return len(s), len(s)
	},
	`\s+`:    scanRuns(unicode.IsSpace),
	` {2,}`:  scanSpaces,
	`\p{N}`:  scanRune(isNumber),
	`\p{N}+`: scanRuns(isNumber),
}

func scanRuns(is func(rune) bool) scanner {
	return func(s string, i int) (int, int) {
		k := strings.IndexFunc(s[i:], is)
		if k < 0 {
			return len(s), len(s)
		}
		start := i + k
		n := strings.IndexFunc(s[start:], func(r rune) bool { return !is(r) })
		if n < 0 {
			return start, len(s)
		}
		return start, start + n
	}
}

func scanRune(is func(rune) bool) scanner {
	return func(s string, i int) (int, int) {
		k := strings.IndexFunc(s[i:], is)
		if k < 0 {
			return len(s), len(s)
		}
		_, n := utf8.DecodeRuneInString(s[i+k:])
		return i + k, i + k + n
	}
}

func scanSpaces(s string, i int) (int, int) {
	k := strings.Index(s[i:], "  ")
	if k < 0 {
		return len(s), len(s)
	}
	end := i + k
	for end < len(s) && s[end] == ' ' {
		end++
	}
	return i + k, end
}
