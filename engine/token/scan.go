package token

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// The split patterns of the families, exactly as their files spell them. Go's
// regexp has no lookahead and backtracking engines are slow, so each has a
// scanner below.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	clipPattern   = `<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
)

// class is what the patterns distinguish.
type class uint8

const (
	other class = iota
	letter
	number
	space
	newline // \r and \n, which are also \s
	end     // behind the text
)

func classify(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case isLetter(r):
		return letter
	case isNumber(r):
		return number
	case unicode.Is(unicode.White_Space, r):
		return space
	}
	return other
}

// basicPlane is the class of every rune below 0x10000: one load in place of
// three searches in range tables.
var basicPlane = sync.OnceValue(func() *[1 << 16]class {
	var t [1 << 16]class
	for r := range t {
		t[r] = classify(rune(r))
	}
	return &t
})

var ascii = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

// at returns the class of the rune at s[i:] and its length.
func at(s string, i int) (class, int) {
	if i >= len(s) {
		return end, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < 1<<16 {
		return basicPlane()[r], n
	}
	return classify(r), n
}

// run returns the end of the run of class c that begins at i.
func run(s string, i int, c class) int {
	for {
		d, n := at(s, i)
		if d != c {
			return i
		}
		i += n
	}
}

// contraction returns the length of 's 't 're 've 'm 'll 'd at s[i:], or 0.
// With fold it ignores case, where ſ is an s.
func contraction(s string, i int, fold bool) int {
	if s[i] != '\'' || i+1 >= len(s) {
		return 0
	}
	var mask byte
	if fold {
		mask = 0x20
		if i+2 < len(s) && s[i+1:i+3] == "ſ" {
			return 3
		}
	}
	a := s[i+1] | mask
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	}
	if i+2 >= len(s) {
		return 0
	}
	b := s[i+2] | mask
	if a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}

// scanGPT2 is gpt2Pattern, which matches everywhere.
func scanGPT2(s string, i int) (int, int) {
	if n := contraction(s, i, false); n > 0 {
		return i, i + n
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := at(s, j); c == letter || c == number || c == other {
		return i, run(s, j+n, c)
	}
	return i, whitespace(s, i)
}

// whitespace is \s+(?!\S)|\s+ : a run of spaces leaves its last one to what
// follows, unless that is all there is.
func whitespace(s string, i int) int {
	j, last := i, i
	for {
		c, n := at(s, j)
		if c == end {
			return j
		}
		if c != space && c != newline {
			break
		}
		last, j = j, j+n
	}
	if last > i {
		return last
	}
	return j
}

// scanLlama is llama3Pattern (numbers of up to 3 digits) and qwen2Pattern (1).
func scanLlama(digits int) scanner {
	return func(s string, i int) (int, int) {
		if n := contraction(s, i, true); n > 0 {
			return i, i + n
		}
		c, n := at(s, i)
		switch c {
		case letter:
			return i, run(s, i+n, letter)
		case number:
			j := i + n
			for range digits - 1 {
				d, m := at(s, j)
				if d != number {
					break
				}
				j += m
			}
			return i, j
		case space, other:
			if d, m := at(s, i+n); d == letter {
				return i, run(s, i+n+m, letter)
			}
		}
		return i, scanLlamaRest(s, i)
	}
}

// scanLlamaRest is  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func scanLlamaRest(s string, i int) int {
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := at(s, j); c == other {
		return run(s, run(s, j+n, other), newline)
	}
	lastNewline := -1
	for j = i; ; {
		c, n := at(s, j)
		if c != space && c != newline {
			break
		}
		j += n
		if c == newline {
			lastNewline = j
		}
	}
	if lastNewline >= 0 {
		return lastNewline
	}
	return whitespace(s, i)
}

// scanCLIP is clipPattern, which skips white space.
func scanCLIP(s string, i int) (int, int) {
	for {
		c, n := at(s, i)
		switch {
		case c == end:
			return len(s), len(s)
		case c == space || c == newline:
			i += n
			continue
		case c == letter:
			return i, run(s, i+n, letter)
		case c == number:
			return i, i + n
		}
		for _, special := range []string{"<|startoftext|>", "<|endoftext|>"} {
			if len(s)-i >= len(special) && s[i:i+len(special)] == special {
				return i, i + len(special)
			}
		}
		if k := contraction(s, i, false); k > 0 {
			return i, i + k
		}
		return i, run(s, i+n, other)
	}
}
