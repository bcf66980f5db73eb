package token

import "unicode/utf8"

// byteRune spells each byte as a printable character: the printable Latin-1
// bytes as themselves, the others as U+0100 and up (Radford et al. 2019).
var byteRune = func() (t [256]rune) {
	next := rune(256)
	for b := range t {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[b] = rune(b)
		} else {
			t[b] = next
			next++
		}
	}
	return t
}()

// runeByte is the inverse of byteRune; -1 where a rune spells no byte.
var runeByte = func() (t [512]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteRune {
		t[r] = int16(b)
	}
	return t
}()

// appendSpelled appends the spelling of the bytes of s.
func appendSpelled(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRune[s[i]])
	}
	return dst
}

// appendUnspelled appends the bytes that s spells; ok is false, and dst as it
// was, when some rune of s spells none.
func appendUnspelled(dst []byte, s string) (_ []byte, ok bool) {
	n := len(dst)
	for _, r := range s {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(runeByte[r]))
	}
	return dst, true
}

// spellBytes is the normalizer ByteLevel.
func spellBytes(t text) text {
	e := edit{src: t}
	for i := range len(t.s) {
		if r := byteRune[t.s[i]]; r != rune(t.s[i]) || r >= utf8.RuneSelf {
			e.put(i, i+1, string(r))
		}
	}
	return e.text()
}

// byteLevelSpelling marks the step that spells bytes, so that a byte-level BPE
// can drop it when it comes last and work on the bytes themselves.
var byteLevelSpelling = mapPiece(func(p piece) string {
	return string(appendSpelled(make([]byte, 0, 2*len(p.s)), p.s))
})

// byteLevelOptions are shared by the pre-tokenizer and the decoder.
type byteLevelOptions struct {
	AddPrefixSpace bool `json:"add_prefix_space"`
	UseRegex       bool `json:"use_regex"`
}

func compileByteLevel(c component) ([]preTokenizer, error) {
	o := byteLevelOptions{true, true}
	if err := c.options(&o); err != nil {
		return nil, err
	}
	var chain []preTokenizer
	if o.AddPrefixSpace {
		chain = append(chain, mapPiece(func(p piece) string {
			if p.s[0] == ' ' {
				return p.s
			}
			return " " + p.s
		}))
	}
	if o.UseRegex {
		chain = append(chain, split(scanner(scanGPT2), isolated, false))
	}
	return append(chain, byteLevelSpelling), nil
}
