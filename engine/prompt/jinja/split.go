package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func splitMethod(right bool) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value {
		limit := optInt(a[1], -1)
		sep := orNone(a[0])
		var parts []Value
		switch {
		case sep == nil:
			parts = splitSpace(in, s, limit, right)
		case mustStr(sep, "split").text == "":
			panic(valueErr("empty separator"))
		default:
			parts = splitSep(in, s, sep.(Str).text, limit, right)
		}
		in.list(4 * len(parts))
		return &List{parts}
	}
}

func splitSep(in *interp, s Str, sep string, limit int64, right bool) []Value {
	var parts []Value
	lo, hi := 0, len(s.text)
	for ; limit != 0; limit-- {
		in.tick(1 + len(s.runs)/16)
		if right {
			i := strings.LastIndex(s.text[:hi], sep)
			if i < 0 {
				break
			}
			parts = append(parts, s.sub(i+len(sep), hi))
			hi = i
			continue
		}
		i := strings.Index(s.text[lo:], sep)
		if i < 0 {
			break
		}
		parts = append(parts, s.sub(lo, lo+i))
		lo += i + len(sep)
	}
	parts = append(parts, s.sub(lo, hi))
	if right {
		reverse(parts)
	}
	return parts
}

// splitSpace splits at runs of whitespace and yields no empty parts. Once the
// limit is reached, what is left keeps the blanks of its far side.
func splitSpace(in *interp, s Str, limit int64, right bool) []Value {
	var parts []Value
	rest := strip(s, nil, !right, right)
	for rest.text != "" {
		in.tick(1 + len(s.runs)/16)
		cut := strings.IndexFunc
		if right {
			cut = strings.LastIndexFunc
		}
		i := cut(rest.text, isSpace)
		if i < 0 || limit == 0 {
			parts = append(parts, rest)
			break
		}
		limit--
		if right {
			parts = append(parts, rest.sub(i+runeLen(rest.text[i:]), len(rest.text)))
			rest = strip(rest.sub(0, i), nil, false, true)
		} else {
			parts = append(parts, rest.sub(0, i))
			rest = strip(rest.sub(i, len(rest.text)), nil, true, false)
		}
	}
	if right {
		reverse(parts)
	}
	return parts
}

func reverse(items []Value) {
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
}

func splitLinesMethod(in *interp, s Str, a []Value) Value {
	lines := splitLines(in, s, optBool(a[0], false))
	out := make([]Value, len(lines))
	for i, l := range lines {
		out[i] = l
	}
	return &List{out}
}

// splitLines is s.splitlines(keep).
func splitLines(in *interp, s Str, keep bool) []Str {
	var lines []Str
	from := 0
	for from < len(s.text) {
		in.list(4)
		in.tick(len(s.runs) / 16)
		i := strings.IndexFunc(s.text[from:], isLineBreak)
		if i < 0 {
			return append(lines, s.sub(from, len(s.text)))
		}
		end := from + i
		next := end + runeLen(s.text[end:])
		if s.text[end] == '\r' && next < len(s.text) && s.text[next] == '\n' {
			next++
		}
		if keep {
			end = next
		}
		lines = append(lines, s.sub(from, end))
		from = next
	}
	return lines
}

func isLineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// charTests are the str methods that begin with "is".
var charTests = map[string]func(string) bool{
	"isalnum":   all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isalpha":   all(unicode.IsLetter),
	"isascii":   func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 },
	"isdecimal": all(unicode.IsDigit),
	"isdigit":   all(unicode.IsDigit),
	"isnumeric": all(unicode.IsNumber),
	"isspace":   all(isSpace),
	"islower":   cased(unicode.IsLower, unicode.IsUpper),
	"isupper":   cased(unicode.IsUpper, unicode.IsLower),
	"istitle":   isTitle,
	"isidentifier": func(s string) bool {
		for i, r := range s {
			if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.IsMark(r)) {
				return false
			}
		}
		return s != ""
	},
	"isprintable": func(s string) bool {
		return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	},
}

func all(is func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

// cased says whether s has a character of one case and none of the other.
func cased(want, not func(rune) bool) func(string) bool {
	return func(s string) bool {
		return strings.IndexFunc(s, want) >= 0 &&
			strings.IndexFunc(s, func(r rune) bool { return not(r) || unicode.IsTitle(r) }) < 0
	}
}

func isTitle(s string) bool {
	inWord, any := false, false
	for _, r := range s {
		up, low := unicode.IsUpper(r) || unicode.IsTitle(r), unicode.IsLower(r)
		if up && inWord || low && !inWord {
			return false
		}
		inWord = up || low
		any = any || inWord
	}
	return any
}
