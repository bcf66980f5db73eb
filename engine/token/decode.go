package token

import (
	"strings"
	"unicode/utf8"
)

// A stage is one decoder of the chain. It takes tokens one by one and hands on
// what has become final, so that decoding a list and decoding a stream are the
// same code. A stage belongs to one stream.
type stage interface {
	push(tok string, next func(string))
	flush(next func(string))
}

// decoder is a compiled decoder chain.
type decoder struct {
	stages []stageMaker
	fused  bool // the stages so far hand on parts of one string, not tokens
}

// stageMaker makes the stage of a new stream.
type stageMaker struct {
	make func() stage
	// middle is what the stage makes of a token inside a text, nil for nothing.
	middle func(b []byte) []byte
}

func compileDecoder(c component, suffix string) (*decoder, error) {
	d := &decoder{}
	if c.kind == "" {
		d.add(stageMaker{
			func() stage { return &mapStage{f: joinWithSpaces} },
			func(b []byte) []byte { return append([]byte(" "), b...) },
		})
		return d, nil
	}
	err := c.flatten("decoder", "decoders", func(c component) error { return d.compile(c, suffix) })
	return d, err
}

// add appends a stage. One that wants whole tokens, behind one that hands on a
// fused string in parts, gets the string when it is complete.
func (d *decoder) add(m stageMaker) {
	if d.fused {
		inner := m.make
		m.make = func() stage { return &wholeStage{inner: inner()} }
	}
	d.stages = append(d.stages, m)
}

// addFusing appends a stage that joins all tokens into one string.
func (d *decoder) addFusing(m stageMaker) {
	d.stages = append(d.stages, m)
	d.fused = true
}

func (d *decoder) compile(c component, suffix string) error {
	switch c.kind {
	case "ByteLevel":
		d.compileByteLevel(suffix)
	case "Fuse":
		if !d.fused {
			d.addFusing(stageMaker{make: func() stage { return &mapStage{f: keep} }})
		}
	case "ByteFallback":
		d.add(stageMaker{func() stage { return &byteFallbackStage{text: assembler{perByte: true}} }, middleByte})
	case "Metaspace":
		return d.compileMetaspace(c)
	case "WordPiece":
		return d.compileWordPiece(c)
	case "BPEDecoder":
		o := struct{ Suffix string }{"</w>"}
		if err := c.options(&o); err != nil {
			return err
		}
		d.add(stageMaker{
			func() stage { return &bpeStage{suffix: o.Suffix} },
			func(b []byte) []byte { return replaceBytes(b, o.Suffix, " ") },
		})
	case "Replace":
		return d.compileReplace(c)
	case "Strip":
		return d.compileStrip(c)
	default:
		return unsupported("decoder %q", c.kind)
	}
	return nil
}

func (d *decoder) compileByteLevel(suffix string) {
	d.add(stageMaker{
		func() stage { return &byteLevelStage{suffix: suffix} },
		func(b []byte) []byte {
			s, end := cutSuffix(string(b), suffix)
			if raw, ok := appendUnspelled(nil, s); ok {
				return append(raw, end...)
			}
			return b
		},
	})
	d.fused = true
}

func (d *decoder) compileMetaspace(c component) error {
	o, err := parseMetaspace(c)
	if err != nil {
		return err
	}
	front := " "
	if o.Scheme != "never" {
		front = ""
	}
	d.add(stageMaker{
		func() stage {
			return &mapStage{f: func(tok string, i int) string {
				if i == 0 {
					return strings.ReplaceAll(tok, o.Replacement, front)
				}
				return strings.ReplaceAll(tok, o.Replacement, " ")
			}}
		},
		func(b []byte) []byte { return replaceBytes(b, o.Replacement, " ") },
	})
	return nil
}

func (d *decoder) compileReplace(c component) error {
	var o replaceOptions
	if err := c.options(&o); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	f, err := compilePattern(o.Pattern)
	if err != nil {
		return err
	}
	replace := func(s string) string {
		e := edit{src: text{s: s}}
		f.find(s, func(i, j int) { e.put(i, j, o.Content) })
		return e.text().s
	}
	d.add(stageMaker{
		func() stage { return &mapStage{f: func(tok string, _ int) string { return replace(tok) }} },
		func(b []byte) []byte { return []byte(replace(string(b))) },
	})
	return nil
}

func (d *decoder) compileStrip(c component) error {
	var o struct {
		Content     string
		Start, Stop int
	}
	if err := c.options(&o); err != nil {
		return err
	}
	if utf8.RuneCountInString(o.Content) != 1 || o.Start < 0 || o.Stop < 0 {
		return malformed("%s: Strip needs one character and counts of 0 or more", c.room)
	}
	if d.fused {
		d.stages = append(d.stages, stageMaker{make: func() stage {
			return &stripStage{char: o.Content, start: o.Start, stop: o.Stop}
		}})
		return nil
	}
	trim := func(s string) string {
		for i := 0; i < o.Start && strings.HasPrefix(s, o.Content); i++ {
			s = s[len(o.Content):]
		}
		for i := 0; i < o.Stop && strings.HasSuffix(s, o.Content); i++ {
			s = s[:len(s)-len(o.Content)]
		}
		return s
	}
	d.add(stageMaker{
		func() stage { return &mapStage{f: func(tok string, _ int) string { return trim(tok) }} },
		func(b []byte) []byte { return []byte(trim(string(b))) },
	})
	return nil
}

func (d *decoder) compileWordPiece(c component) error {
	o := struct {
		Prefix  string
		Cleanup bool
	}{"##", true}
	if err := c.options(&o); err != nil {
		return err
	}
	join := func(tok string, i int) string {
		if i > 0 {
			if rest, ok := strings.CutPrefix(tok, o.Prefix); ok {
				tok = rest
			} else {
				tok = " " + tok
			}
		}
		if o.Cleanup {
			tok = cleanUp(tok)
		}
		return tok
	}
	d.add(stageMaker{
		func() stage { return &mapStage{f: join} },
		func(b []byte) []byte { return []byte(join(string(b), 1)) },
	})
	return nil
}

// cleanUp undoes the spaces that splitting English punctuation leaves. The
// replacements follow one another, as they do in the Rust library.
func cleanUp(s string) string {
	for _, r := range [][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

func keep(tok string, _ int) string { return tok }

func joinWithSpaces(tok string, i int) string {
	if i > 0 {
		return " " + tok
	}
	return tok
}

func replaceBytes(b []byte, old, with string) []byte {
	return []byte(strings.ReplaceAll(string(b), old, with))
}

// middleByte resolves <0x0A>.
func middleByte(b []byte) []byte {
	if c, ok := fallbackByte(string(b)); ok {
		return []byte{c}
	}
	return b
}

// cutSuffix takes the end-of-word suffix off a token; end is the space that it
// stands for.
func cutSuffix(tok, suffix string) (s, end string) {
	if suffix == "" {
		return tok, ""
	}
	if s, ok := strings.CutSuffix(tok, suffix); ok {
		return s, " "
	}
	return tok, ""
}
