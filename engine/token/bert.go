package token

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// compileBert adds the normalizer of BERT (Devlin et al. 2018): clean up, space
// out Chinese characters, strip accents, lower-case.
func (n *normalizers) compileBert(c component) error {
	o := struct {
		CleanText    bool  `json:"clean_text"`
		Chinese      bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"` // null: as lowercase
		Lowercase    bool  `json:"lowercase"`
	}{true, true, nil, true}
	if err := c.options(&o); err != nil {
		return err
	}
	accents := o.Lowercase
	if o.StripAccents != nil {
		accents = *o.StripAccents
	}
	var chain []normalizer
	if o.CleanText {
		chain = append(chain, cleanText)
	}
	if o.Chinese {
		chain = append(chain, spaceChinese)
	}
	if accents {
		chain = append(chain, formNormalizer(norm.NFD), dropRunes(isAccent))
	}
	if o.Lowercase {
		chain = append(chain, lowercase)
	}
	if err := n.add(8, func(t text) text { return t }); err != nil {
		return err
	}
	n.chain = append(n.chain[:len(n.chain)-1], chain...)
	return nil
}

func cleanText(t text) text {
	return mapRunes(t, func(r rune) (string, bool) {
		switch {
		case r == ' ' || r > ' ' && r < 0x7F:
			return "", false
		case r == '\t' || r == '\n' || r == '\r':
			return " ", true
		case r == 0 || r == utf8.RuneError || isOther(r):
			return "", true
		case unicode.IsSpace(r):
			return " ", true
		}
		return "", false
	})
}

func spaceChinese(t text) text {
	return mapRunes(t, func(r rune) (string, bool) {
		if r < 0x3400 || !isChinese(r) {
			return "", false
		}
		return " " + string(r) + " ", true
	})
}

// isChinese reports the blocks that BERT spaces out; the list, gaps included,
// is the published one.
func isChinese(r rune) bool {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF, r >= 0x20000 && r <= 0x2A6DF,
		r >= 0x2A700 && r <= 0x2B73F, r >= 0x2B740 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF,
		r >= 0xF900 && r <= 0xFAFF, r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}
