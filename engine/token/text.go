package token

import (
	"strings"
	"unicode/utf8"
)

// text is a string on its way through the normalizers. Where marks is not nil
// it has one entry for each byte of s: the class of the part that the byte comes
// from, and tainted when it comes, wholly or partly, from text that must not
// yield a control token.
type text struct {
	s     string
	marks []byte
}

// tainted is the bit of a mark beside the class.
const tainted = 0x80

func (t text) slice(i, j int) text {
	if t.marks == nil {
		return text{s: t.s[i:j]}
	}
	return text{t.s[i:j], t.marks[i:j]}
}

func (t text) tainted(i, j int) bool {
	if t.marks == nil {
		return false
	}
	for _, m := range t.marks[i:j] {
		if m&tainted != 0 {
			return true
		}
	}
	return false
}

// class is that of byte i.
func (t text) class(i int) uint8 {
	if t.marks == nil {
		return 0
	}
	return t.marks[i] &^ tainted
}

// oneClass is the length of the longest beginning that has one class.
func (t text) oneClass() int {
	n := len(t.s)
	if t.marks == nil {
		return n
	}
	for i := 1; i < n; i++ {
		if (t.marks[i]^t.marks[0])&^tainted != 0 {
			return i
		}
	}
	return n
}

// edit rewrites a text: put replaces stretches of it in ascending order, and
// what lies between them is copied. A text without changes costs nothing.
type edit struct {
	src   text
	out   []byte
	marks []byte
	done  int // src[:done] has been dealt with
	dirty bool
}

// put replaces src[i:j] by s. What replaces tainted bytes is tainted; the class
// is that of the first byte, or of the one after an insertion.
func (e *edit) put(i, j int, s string) {
	if !e.dirty {
		e.dirty = true
		e.out = make([]byte, 0, len(e.src.s)+len(e.src.s)/4+len(s)+8)
	}
	e.copyTo(i)
	e.out = append(e.out, s...)
	if e.src.marks != nil {
		mark := byte(0)
		if n := len(e.src.marks); n > 0 {
			mark = e.src.class(min(i, n-1))
		}
		if e.src.tainted(i, j) {
			mark |= tainted
		}
		for range len(s) {
			e.marks = append(e.marks, mark)
		}
	}
	e.done = j
}

func (e *edit) copyTo(i int) {
	e.out = append(e.out, e.src.s[e.done:i]...)
	if e.src.marks != nil {
		e.marks = append(e.marks, e.src.marks[e.done:i]...)
	}
	e.done = i
}

// text returns the result; the edit must not be used afterwards.
func (e *edit) text() text {
	if !e.dirty {
		return e.src
	}
	e.copyTo(len(e.src.s))
	return text{string(e.out), e.marks}
}

// validUTF8 replaces each invalid byte by U+FFFD, so that every later step may
// take valid UTF-8 for granted.
func validUTF8(t text) text {
	if utf8.ValidString(t.s) {
		return t
	}
	e := edit{src: t}
	for i := 0; i < len(t.s); {
		r, n := utf8.DecodeRuneInString(t.s[i:])
		if r == utf8.RuneError && n == 1 {
			e.put(i, i+1, "\uFFFD")
		}
		i += n
	}
	return e.text()
}

// mapRunes replaces each rune for which f answers true by f's string.
func mapRunes(t text, f func(r rune) (string, bool)) text {
	e := edit{src: t}
	for i, r := range t.s {
		if s, ok := f(r); ok {
			e.put(i, i+utf8.RuneLen(r), s)
		}
	}
	return e.text()
}

// replaceAll replaces every occurrence of old, which is not empty.
func replaceAll(t text, old, with string) text {
	e := edit{src: t}
	for i := 0; ; {
		k := strings.Index(t.s[i:], old)
		if k < 0 {
			return e.text()
		}
		e.put(i+k, i+k+len(old), with)
		i += k + len(old)
	}
}
