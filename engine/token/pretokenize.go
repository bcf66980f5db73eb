package token

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a stretch of normalized text on its way to the model.
type piece struct {
	s     string
	first bool // it begins where the whole text begins
}

// A preTokenizer returns a function that cuts a piece into pieces and hands
// them to next. What it returns is for one goroutine.
type preTokenizer func(next func(piece)) func(piece)

// mapPiece is a preTokenizer that makes one piece of each.
func mapPiece(f func(p piece) string) preTokenizer {
	return func(next func(piece)) func(piece) {
		return func(p piece) { next(piece{f(p), p.first}) }
	}
}

// preTokenizers is a compiled chain.
type preTokenizers struct {
	chain      []preTokenizer
	spellsLast bool // the last step is byteLevelSpelling
}

// forModel returns the chain for a model. A BPE can take the bytes instead of
// their spelling, which saves that step.
func (p preTokenizers) forModel(m *modelSpec) (chain []preTokenizer, byteLevel bool) {
	if p.spellsLast && m.kind == "BPE" {
		return p.chain[:len(p.chain)-1], true
	}
	return p.chain, false
}

func compilePreTokenizer(c component) (p preTokenizers, err error) {
	err = c.flatten("pre_tokenizer", "pretokenizers", func(c component) error {
		fs, err := compilePreTokenizerKind(c)
		p.chain = append(p.chain, fs...)
		p.spellsLast = c.kind == "ByteLevel"
		return err
	})
	return p, err
}

func compilePreTokenizerKind(c component) ([]preTokenizer, error) {
	switch c.kind {
	case "BertPreTokenizer":
		return []preTokenizer{split(each(unicode.IsSpace), removed, false), split(each(isPunctuation), isolated, false)}, nil
	case "Whitespace":
		return []preTokenizer{split(scanner(scanWords), removed, true)}, nil
	case "WhitespaceSplit":
		return []preTokenizer{split(each(unicode.IsSpace), removed, false)}, nil
	case "Digits":
		var o struct {
			Individual bool `json:"individual_digits"`
		}
		b := contiguous
		err := c.options(&o)
		if o.Individual {
			b = isolated
		}
		return []preTokenizer{split(each(isNumber), b, false)}, err
	case "Punctuation":
		o := struct{ Behavior behavior }{isolated}
		err := c.options(&o)
		return []preTokenizer{split(each(isPunctuation), o.Behavior, false)}, err
	case "CharDelimiterSplit":
		var o struct{ Delimiter string }
		if err := c.options(&o); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(o.Delimiter) != 1 {
			return nil, malformed("%s: delimiter %q is not one character", c.room, o.Delimiter)
		}
		return []preTokenizer{split(literal(o.Delimiter), removed, false)}, nil
	case "Split":
		return compileSplit(c)
	case "ByteLevel":
		return compileByteLevel(c)
	case "Metaspace":
		return compileMetaspace(c)
	}
	return nil, unsupported("pre_tokenizer %q", c.kind)
}

func compileSplit(c component) ([]preTokenizer, error) {
	var o struct {
		Pattern  pattern
		Behavior behavior
		Invert   bool
	}
	if err := c.options(&o); err != nil {
		return nil, err
	}
	f, err := compilePattern(o.Pattern)
	if err != nil {
		return nil, err
	}
	if o.Behavior == "" {
		return nil, malformed("%s: Split without a behavior", c.room)
	}
	return []preTokenizer{split(f, o.Behavior, o.Invert)}, nil
}

// scanWords is \w+|[^\w\s]+ with the Unicode meaning of \w.
func scanWords(s string, i int) (int, int) {
	isMark := func(r rune) bool { return !isWord(r) && !unicode.IsSpace(r) }
	r, n := utf8.DecodeRuneInString(s[i:])
	for unicode.IsSpace(r) {
		if i += n; i >= len(s) {
			return len(s), len(s)
		}
		r, n = utf8.DecodeRuneInString(s[i:])
	}
	is := isMark
	if isWord(r) {
		is = isWord
	}
	if k := strings.IndexFunc(s[i:], func(r rune) bool { return !is(r) }); k >= 0 {
		return i, i + k
	}
	return i, len(s)
}

// isWord is \w of UTS #18: alphabetic, marks, decimal digits, connectors and
// the two joiners.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z'
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// compileMetaspace handles SentencePiece's ▁: spaces become it, one is put in
// front, and words begin with it.
func compileMetaspace(c component) ([]preTokenizer, error) {
	o, err := parseMetaspace(c)
	if err != nil {
		return nil, err
	}
	mark := mapPiece(func(p piece) string {
		s := strings.ReplaceAll(p.s, " ", o.Replacement)
		front := o.Scheme == "always" || o.Scheme == "first" && p.first
		if front && !strings.HasPrefix(s, o.Replacement) {
			s = o.Replacement + s
		}
		return s
	})
	if o.Split != nil && !*o.Split {
		return []preTokenizer{mark}, nil
	}
	return []preTokenizer{mark, split(literal(o.Replacement), mergedWithNext, false)}, nil
}

type metaspaceOptions struct {
	Replacement string
	AddPrefix   *bool  `json:"add_prefix_space"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool
}

func parseMetaspace(c component) (o metaspaceOptions, err error) {
	o.Replacement = "▁"
	if err := c.options(&o); err != nil {
		return o, err
	}
	if utf8.RuneCountInString(o.Replacement) != 1 {
		return o, malformed("%s: Metaspace replacement %q is not one character", c.room, o.Replacement)
	}
	if o.Scheme == "" {
		o.Scheme = "always"
		if o.AddPrefix != nil && !*o.AddPrefix {
			o.Scheme = "never"
		}
	}
	switch o.Scheme {
	case "always", "never", "first":
		return o, nil
	}
	return o, unsupported("%s: Metaspace prepend_scheme %q", c.room, o.Scheme)
}
