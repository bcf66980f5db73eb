package token

import (
	"strconv"
	"strings"
)

// mapStage turns each token into another by itself and its index.
type mapStage struct {
	f func(tok string, i int) string
	i int
}

func (m *mapStage) push(tok string, next func(string)) {
	next(m.f(tok, m.i))
	m.i++
}

func (m *mapStage) flush(func(string)) {}

// wholeStage gives inner everything as one token at the end.
type wholeStage struct {
	inner stage
	text  strings.Builder
	any   bool
}

func (w *wholeStage) push(tok string, _ func(string)) {
	w.text.WriteString(tok)
	w.any = true
}

func (w *wholeStage) flush(next func(string)) {
	if w.any {
		w.inner.push(w.text.String(), next)
	}
	w.inner.flush(next)
}

// byteLevelStage reads the spelling of bytes and joins them into characters.
type byteLevelStage struct {
	text   assembler
	suffix string // end-of-word suffix, which is a space in the text
	buf    []byte
	out    []byte
}

func (b *byteLevelStage) push(tok string, next func(string)) {
	s, end := cutSuffix(tok, b.suffix)
	var ok bool
	if b.buf, ok = appendUnspelled(b.buf[:0], s); ok {
		b.buf = append(b.buf, end...)
	} else {
		b.buf = append(b.buf, tok...)
	}
	b.emit(b.text.push(b.out[:0], b.buf), next)
}

func (b *byteLevelStage) flush(next func(string)) { b.emit(b.text.flush(b.out[:0]), next) }

func (b *byteLevelStage) emit(out []byte, next func(string)) {
	b.out = out
	if len(out) > 0 {
		next(string(out))
	}
}

// byteFallbackStage joins runs of <0x..> tokens into characters.
type byteFallbackStage struct {
	text assembler
	out  []byte
}

func (b *byteFallbackStage) push(tok string, next func(string)) {
	if c, ok := fallbackByte(tok); ok {
		b.out = b.text.push(b.out[:0], []byte{c})
		if len(b.out) > 0 {
			next(string(b.out))
		}
		return
	}
	b.flush(next)
	next(tok)
}

func (b *byteFallbackStage) flush(next func(string)) {
	if b.out = b.text.flush(b.out[:0]); len(b.out) > 0 {
		next(string(b.out))
	}
}

// fallbackByte reads a token of the form <0x0A>.
func fallbackByte(tok string) (byte, bool) {
	if len(tok) != 6 || tok[:3] != "<0x" || tok[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(tok[3:5], 16, 8)
	return byte(v), err == nil
}

// bpeStage makes a space of each end-of-word suffix but the last token's.
type bpeStage struct {
	suffix string
	held   string
	any    bool
}

func (b *bpeStage) push(tok string, next func(string)) {
	if b.any {
		next(b.replace(b.held, " "))
	}
	b.held, b.any = tok, true
}

func (b *bpeStage) flush(next func(string)) {
	if b.any {
		next(b.replace(b.held, ""))
	}
	b.any = false
}

func (b *bpeStage) replace(tok, with string) string {
	if b.suffix == "" {
		return tok
	}
	return strings.ReplaceAll(tok, b.suffix, with)
}

// stripStage takes up to start characters off the front of a fused string and
// up to stop off its end.
type stripStage struct {
	char        string
	start, stop int
	held        int // characters at the end that may have to go
}

func (s *stripStage) push(tok string, next func(string)) {
	for s.start > 0 && tok != "" {
		rest, ok := strings.CutPrefix(tok, s.char)
		if !ok {
			s.start = 0
			break
		}
		tok = rest
		s.start--
	}
	if s.stop == 0 {
		next(tok)
		return
	}
	body := strings.TrimRight(tok, s.char)
	tail := (len(tok) - len(body)) / len(s.char)
	if body != "" {
		body = strings.Repeat(s.char, s.held) + body
		s.held = 0
	}
	s.held += tail
	if s.held > s.stop {
		body += strings.Repeat(s.char, s.held-s.stop)
		s.held = s.stop
	}
	next(body)
}

func (s *stripStage) flush(func(string)) {}
