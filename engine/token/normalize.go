package token

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites text before it is cut into pieces.
type normalizer func(text) text

// maxGrowth bounds how many times longer a text may become under all
// normalizers of a file together; real files stay below 1,000.
const maxGrowth = 1 << 14

// normalizers is a compiled chain and the growth it can cause.
type normalizers struct {
	chain  []normalizer
	growth int
}

func (n *normalizers) apply(t text) text {
	for _, f := range n.chain {
		t = f(t)
	}
	return t
}

func (n *normalizers) add(growth int, f normalizer) error {
	n.growth *= max(growth, 1)
	if n.growth > maxGrowth {
		return malformed("normalizer: a text could grow more than %d-fold", maxGrowth)
	}
	n.chain = append(n.chain, f)
	return nil
}

func compileNormalizer(c component) (*normalizers, error) {
	n := &normalizers{growth: 1}
	err := c.flatten("normalizer", "normalizers", func(c component) error { return n.compile(c) })
	return n, err
}

func (n *normalizers) compile(c component) error {
	switch c.kind {
	case "NFC":
		return n.add(3, formNormalizer(norm.NFC))
	case "NFD":
		return n.add(4, formNormalizer(norm.NFD))
	case "NFKC":
		return n.add(12, formNormalizer(norm.NFKC))
	case "NFKD":
		return n.add(12, formNormalizer(norm.NFKD))
	case "Lowercase":
		return n.add(2, lowercase)
	case "StripAccents":
		return n.add(1, dropRunes(func(r rune) bool { return unicode.Is(unicode.M, r) }))
	case "Nmt":
		return n.add(1, nmt)
	case "ByteLevel":
		return n.add(2, func(t text) text { return spellBytes(t) })
	case "Prepend", "Strip", "Replace", "Precompiled", "BertNormalizer":
		return n.compileWithOptions(c)
	}
	return unsupported("normalizer %q", c.kind)
}

func (n *normalizers) compileWithOptions(c component) error {
	switch c.kind {
	case "Prepend":
		var o struct{ Prepend string }
		if err := c.options(&o); err != nil {
			return err
		}
		return n.add(1+len(o.Prepend), prepend(o.Prepend))
	case "Strip":
		o := struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}{true, true}
		if err := c.options(&o); err != nil {
			return err
		}
		return n.add(1, strip(o.Left, o.Right))
	case "Replace":
		return n.compileReplace(c)
	case "Precompiled":
		var o struct {
			Charsmap []byte `json:"precompiled_charsmap"`
		}
		if err := c.options(&o); err != nil {
			return err
		}
		m, err := parseCharsmap(o.Charsmap)
		if err != nil {
			return err
		}
		return n.add(m.growth, m.normalize)
	}
	return n.compileBert(c)
}

func (n *normalizers) compileReplace(c component) error {
	var o replaceOptions
	if err := c.options(&o); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if s := o.Pattern.String; s != nil {
		return n.add(1+len(o.Content)/len(*s), func(t text) text { return replaceAll(t, *s, o.Content) })
	}
	m, err := compilePattern(o.Pattern)
	if err != nil {
		return err
	}
	return n.add(1+len(o.Content), func(t text) text {
		e := edit{src: t}
		m.find(t.s, func(i, j int) { e.put(i, j, o.Content) })
		return e.text()
	})
}

func prepend(p string) normalizer {
	return func(t text) text {
		if t.s == "" {
			return t
		}
		e := edit{src: t}
		e.put(0, 0, p)
		return e.text()
	}
}

func strip(left, right bool) normalizer {
	return func(t text) text {
		i, j := 0, len(t.s)
		if left {
			i = j - len(strings.TrimLeftFunc(t.s, unicode.IsSpace))
		}
		if right {
			j = max(i, len(strings.TrimRightFunc(t.s, unicode.IsSpace)))
		}
		return t.slice(i, j)
	}
}

func lowercase(t text) text {
	return mapRunes(t, func(r rune) (string, bool) {
		if r < utf8.RuneSelf {
			if 'A' <= r && r <= 'Z' {
				i := r - 'A'
				return "abcdefghijklmnopqrstuvwxyz"[i : i+1], true
			}
			return "", false
		}
		l := toLower(r)
		return l, l != string(r)
	})
}

func dropRunes(is func(rune) bool) normalizer {
	return func(t text) text {
		return mapRunes(t, func(r rune) (string, bool) {
			return "", r >= utf8.RuneSelf && is(r)
		})
	}
}

// nmt is the clean-up that SentencePiece calls "nmt": control characters go,
// exotic spaces become spaces.
func nmt(t text) text {
	return mapRunes(t, func(r rune) (string, bool) {
		switch {
		case r >= 1 && r <= 8, r == 0x0B, r >= 0x0E && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
			return "", true
		case r == '\t', r == '\n', r == 0x0C, r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			return " ", true
		}
		return "", false
	})
}
