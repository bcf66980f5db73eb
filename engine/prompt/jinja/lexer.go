package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	tEOF kind = iota
	tData
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tInt
	tFloat
	tOp
)

// token is one piece of a template. text is the data, the name, the unescaped
// string, the digits or the operator.
type token struct {
	kind kind
	line int32
	pos  int
	text string
}

func (t token) describe() string {
	switch t.kind {
	case tEOF:
		return "end of template"
	case tData:
		return "template data"
	case tVarBegin:
		return "begin of print statement"
	case tVarEnd:
		return "end of print statement"
	case tBlockBegin:
		return "begin of statement block"
	case tBlockEnd:
		return "end of statement block"
	case tString:
		return "string"
	case tInt:
		return "integer"
	case tFloat:
		return "float"
	}
	return "'" + t.text + "'"
}

// lexer cuts a source into tokens with the whitespace rules of trim_blocks and
// lstrip_blocks. Errors are panics with *SyntaxError; Parse recovers them.
type lexer struct {
	src       string
	pos       int
	out       []token
	lineStart bool // the last thing cut ended with a newline
	line      int  // newlines before lineAt
	lineAt    int
}

// lex returns the tokens of src, the last one tEOF.
func lex(src string) []token {
	l := &lexer{src: src, lineStart: true}
	for l.pos < len(l.src) {
		l.data()
	}
	l.emit(tEOF, l.pos, "")
	return l.out
}

// normalize makes line ends "\n" and drops one at the end of the source.
func normalize(src string) string {
	if strings.IndexByte(src, '\r') >= 0 {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	return strings.TrimSuffix(src, "\n")
}

func (l *lexer) fail(pos int, format string, args ...any) {
	panic(syntaxAt(l.src, pos, format, args...))
}

func (l *lexer) emit(k kind, pos int, text string) {
	if len(l.out) >= maxTokens {
		l.fail(pos, "more than %d tokens", maxTokens)
	}
	l.line += strings.Count(l.src[l.lineAt:pos], "\n") // tokens come in order
	l.lineAt = pos
	l.out = append(l.out, token{k, int32(l.line + 1), pos, text})
}

// moved notes that src[from:l.pos] has been cut.
func (l *lexer) moved(from int) {
	l.lineStart = l.pos > from && l.src[l.pos-1] == '\n'
}

// data cuts the text before the next tag, and that tag.
func (l *lexer) data() {
	start := l.pos
	at := nextTag(l.src, start)
	if at < 0 {
		l.emit(tData, start, l.src[start:])
		l.pos = len(l.src)
		return
	}
	open := l.src[at : at+2]
	l.pos = at + 2
	sign := l.sign()
	if open == "{%" && l.raw(start, at, sign) {
		return
	}
	l.text(start, at, sign, open == "{{")
	l.moved(start)
	switch open {
	case "{#":
		l.comment(at)
	case "{{":
		l.emit(tVarBegin, at, "")
		l.tag(tVarEnd)
	default:
		l.emit(tBlockBegin, at, "")
		l.tag(tBlockEnd)
	}
}

func nextTag(src string, from int) int {
	for {
		i := strings.IndexByte(src[from:], '{')
		if i < 0 || from+i+1 >= len(src) {
			return -1
		}
		from += i
		switch src[from+1] {
		case '{', '%', '#':
			return from
		}
		from++
	}
}

func (l *lexer) sign() byte {
	if l.pos < len(l.src) && (l.src[l.pos] == '-' || l.src[l.pos] == '+') {
		l.pos++
		return l.src[l.pos-1]
	}
	return 0
}

// text emits the text src[start:end] before a tag: a "-" strips all whitespace
// before the tag; otherwise a block or comment that stands first on its line
// loses the blanks before it.
func (l *lexer) text(start, end int, sign byte, variable bool) {
	text := l.src[start:end]
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign == 0 && !variable:
		lineAt := strings.LastIndexByte(text, '\n') + 1
		if (lineAt > 0 || l.lineStart) && strings.TrimLeftFunc(text[lineAt:], isSpace) == "" {
			text = text[:lineAt]
		}
	}
	if text != "" {
		l.emit(tData, start, text)
	}
}

func (l *lexer) comment(at int) {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		l.fail(at, "missing end of comment")
	}
	from, end := l.pos, l.pos+i
	l.pos = end + 2
	l.closed(end, from, true)
	l.moved(end)
}

// closed applies the whitespace control of a tag end whose "}" is just before
// l.pos; end is where its two characters begin, from the first place where its
// sign can be.
func (l *lexer) closed(end, from int, trim bool) {
	sign := byte(0)
	if end > from {
		sign = l.src[end-1]
	}
	switch {
	case sign == '-':
		l.pos = len(l.src) - len(strings.TrimLeftFunc(l.src[l.pos:], isSpace))
	case sign != '+' && trim && l.pos < len(l.src) && l.src[l.pos] == '\n':
		l.pos++
	}
}

// raw cuts "{% raw %}...{% endraw %}" if that is what begins at at.
func (l *lexer) raw(start, at int, sign byte) bool {
	end, minus, ok := rawTag(l.src, l.pos, "raw")
	if !ok || l.src[end-3] == '+' {
		return false
	}
	l.text(start, at, sign, false)
	l.pos = end
	if minus {
		l.closed(end-2, at, false)
	}
	l.moved(at)
	body := l.pos
	for at := body; ; at++ {
		i := strings.Index(l.src[at:], "{%")
		if i < 0 {
			l.fail(start, "missing end of raw block")
		}
		at += i
		l.pos = at + 2
		sign := l.sign()
		end, _, ok := rawTag(l.src, l.pos, "endraw")
		if !ok {
			continue
		}
		l.text(body, at, sign, false)
		l.pos = end
		l.closed(end-2, at, true)
		l.moved(at)
		return true
	}
}

// rawTag matches "  word  %}" at pos, with a sign before the end; it returns
// the offset after it.
func rawTag(src string, pos int, word string) (end int, minus, ok bool) {
	rest := strings.TrimLeftFunc(src[pos:], isSpace)
	rest, ok = strings.CutPrefix(rest, word)
	if !ok {
		return 0, false, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if r, cut := strings.CutPrefix(rest, "-%}"); cut {
		return len(src) - len(r), true, true
	}
	rest = strings.TrimPrefix(rest, "+")
	rest, ok = strings.CutPrefix(rest, "%}")
	return len(src) - len(rest), false, ok
}

// tag cuts the tokens of an expression or statement up to its end.
func (l *lexer) tag(end kind) {
	var open []byte // closing brackets that are still to come
	for l.pos < len(l.src) {
		if len(open) == 0 && l.tagEnd(end) {
			return
		}
		c, at := l.src[l.pos], l.pos
		switch r, size := utf8.DecodeRuneInString(l.src[l.pos:]); {
		case isSpace(r):
			l.pos += size
		case c >= '0' && c <= '9':
			l.number()
		case c == '\'' || c == '"':
			l.string(c)
		case r == '_' || unicode.IsLetter(r):
			l.name()
		default:
			l.operator()
			open = l.balance(open, at)
		}
	}
}

func (l *lexer) tagEnd(end kind) bool {
	closing := "%}"
	if end == tVarEnd {
		closing = "}}"
	}
	at, rest := l.pos, l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, closing):
		l.pos += 2
	case strings.HasPrefix(rest, "-"+closing), end == tBlockEnd && strings.HasPrefix(rest, "+"+closing):
		l.pos += 3
	default:
		return false
	}
	l.emit(end, at, "")
	l.closed(l.pos-2, at, end == tBlockEnd)
	l.moved(at)
	return true
}

func (l *lexer) balance(open []byte, at int) []byte {
	switch c := l.src[at]; c {
	case '(':
		return append(open, ')')
	case '[':
		return append(open, ']')
	case '{':
		return append(open, '}')
	case ')', ']', '}':
		if len(open) == 0 {
			l.fail(at, "unexpected '%c'", c)
		}
		if want := open[len(open)-1]; want != c {
			l.fail(at, "unexpected '%c', expected '%c'", c, want)
		}
		return open[:len(open)-1]
	}
	return open
}

// operators, longest first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

func (l *lexer) operator() {
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.emit(tOp, l.pos, op)
			l.pos += len(op)
			return
		}
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
	l.fail(l.pos, "unexpected character %q", r)
}

func (l *lexer) name() {
	at := l.pos
	for i, r := range l.src[at:] {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			l.pos = at + i
			l.emit(tName, at, l.src[at:l.pos])
			return
		}
	}
	l.pos = len(l.src)
	l.emit(tName, at, l.src[at:])
}

// digits skips digits that single underscores may separate.
func (l *lexer) digits(valid string) bool {
	at := l.pos
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		if c == '_' && l.pos > at && l.pos+1 < len(l.src) && strings.IndexByte(valid, l.src[l.pos+1]) >= 0 {
			l.pos++
			continue
		}
		if strings.IndexByte(valid, c) < 0 {
			break
		}
		l.pos++
	}
	return l.pos > at
}

const decimals = "0123456789"

func (l *lexer) number() {
	at := l.pos
	if l.src[at] == '0' && at+1 < len(l.src) {
		valid := map[byte]string{'b': "01", 'o': "01234567", 'x': "0123456789abcdefABCDEF"}[l.src[at+1]|0x20]
		l.pos += 2
		if valid != "" && l.digits(valid) {
			l.emit(tInt, at, l.src[at:l.pos])
			return
		}
		l.pos = at
	}
	l.digits(decimals)
	k := tInt
	afterDot := at > 0 && l.src[at-1] == '.' // x.0.1 is two subscripts
	if !afterDot && l.pos < len(l.src) && l.src[l.pos] == '.' {
		dot := l.pos
		l.pos++
		if l.digits(decimals) {
			k = tFloat
		} else {
			l.pos = dot
		}
	}
	if !afterDot && l.exponent() {
		k = tFloat
	}
	l.emit(k, at, strings.ReplaceAll(l.src[at:l.pos], "_", ""))
}

func (l *lexer) exponent() bool {
	at := l.pos
	if at >= len(l.src) || l.src[at]|0x20 != 'e' {
		return false
	}
	l.pos++
	l.sign()
	if !l.digits(decimals) {
		l.pos = at
		return false
	}
	return true
}

func (l *lexer) string(quote byte) {
	at := l.pos
	for i := at + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			l.pos = i + 1
			text := l.src[at+1 : i]
			if strings.IndexByte(text, '\\') >= 0 {
				text = l.unescape(text, at+1)
			}
			l.emit(tString, at, text)
			return
		}
	}
	l.fail(at, "missing end of string")
}
