package token

import "unicode/utf8"

// assembler joins bytes that arrive in any portions into characters.
type assembler struct {
	pending []byte
	// perByte makes one U+FFFD of every byte of a broken sequence (byte
	// fallback); otherwise one of each maximal part of one, as the Unicode
	// standard recommends and Rust's from_utf8_lossy does.
	perByte bool
}

const replacement = "\uFFFD"

// push appends what b completes to out. A sequence that may still go on waits.
func (a *assembler) push(out, b []byte) []byte {
	a.pending = append(a.pending, b...)
	i := 0
	for i < len(a.pending) {
		r, n := utf8.DecodeRune(a.pending[i:])
		if r != utf8.RuneError || n > 1 {
			out = append(out, a.pending[i:i+n]...)
			i += n
			continue
		}
		n, open := brokenPart(a.pending[i:])
		if open {
			break
		}
		out = a.replace(out, n)
		i += n
	}
	a.pending = append(a.pending[:0], a.pending[i:]...)
	return out
}

// flush gives up on what waits.
func (a *assembler) flush(out []byte) []byte {
	if n := len(a.pending); n > 0 {
		out = a.replace(out, n)
		a.pending = a.pending[:0]
	}
	return out
}

func (a *assembler) replace(out []byte, n int) []byte {
	if !a.perByte {
		n = 1
	}
	for range n {
		out = append(out, replacement...)
	}
	return out
}

// brokenPart returns the length of the longest beginning of a character at the
// front of b, which does not hold a whole one (1 when it begins none). open
// means that b ends before it is clear.
func brokenPart(b []byte) (n int, open bool) {
	lo, hi, need := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		switch c {
		case 0xE0:
			lo = 0xA0 // shorter spelling exists below
		case 0xED:
			hi = 0x9F // surrogates above
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		switch c {
		case 0xF0:
			lo = 0x90
		case 0xF4:
			hi = 0x8F // behind U+10FFFF
		}
	default:
		return 1, false
	}
	for n = 1; n <= need; n++ {
		if n == len(b) {
			return n, true
		}
		if b[n] < lo || b[n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, false
}
