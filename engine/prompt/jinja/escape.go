package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// simpleEscapes are the one-letter escapes of Python string literals.
var simpleEscapes = map[byte]byte{
	'\\': '\\', '\'': '\'', '"': '"', 'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
}

// unescape decodes a Python string literal's body that begins at offset base of
// the source. Unknown escapes stay as they are.
func (l *lexer) unescape(s string, base int) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1] // a body never ends with an open backslash
		if r, ok := simpleEscapes[c]; ok {
			b.WriteByte(r)
			i += 2
			continue
		}
		switch {
		case c == '\n':
			i += 2
		case c >= '0' && c <= '7':
			end := i + 2
			for end < len(s) && end < i+4 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			n, _ := strconv.ParseUint(s[i+1:end], 8, 32)
			b.WriteRune(rune(n))
			i = end
		case c == 'x' || c == 'u' || c == 'U':
			size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			b.WriteRune(l.hexEscape(s, i, size, base))
			i += 2 + size
		case c == 'N':
			l.fail(base+i, `\N{...} escapes are not supported`)
		default:
			b.WriteByte('\\')
			i++
		}
	}
	return b.String()
}

func (l *lexer) hexEscape(s string, i, size, base int) rune {
	if i+2+size > len(s) {
		l.fail(base+i, `truncated \%c escape`, s[i+1])
	}
	n, err := strconv.ParseUint(s[i+2:i+2+size], 16, 32)
	if err != nil {
		l.fail(base+i, `truncated \%c escape`, s[i+1])
	}
	if n > utf8.MaxRune || n >= 0xd800 && n < 0xe000 {
		l.fail(base+i, `\%c escape is no character`, s[i+1])
	}
	return rune(n)
}

// isSpace is str.isspace of one character.
func isSpace(r rune) bool {
	switch {
	case r >= 0x09 && r <= 0x0d, r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}
