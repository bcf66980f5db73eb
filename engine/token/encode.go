package token

import (
	"slices"
	"strings"
)

// EncodeOptions say what Encode does beyond turning text into ids.
type EncodeOptions struct {
	// AddSpecial runs the post-processor: [CLS] … [SEP], BOS.
	AddSpecial bool
	// ParseSpecial matches control tokens that are spelled out in the text.
	// Without it "<|im_end|>" is ordinary text and no control token can come
	// out, so leave it off for what users wrote.
	ParseSpecial bool
}

// Encode returns the ids of text. Invalid UTF-8 counts as U+FFFD.
func (t *Tokenizer) Encode(s string, opt EncodeOptions) []ID {
	ids := t.encode(text{s: s}, opt.ParseSpecial)
	if opt.AddSpecial {
		ids = t.template.apply(ids)
	}
	return ids
}

// EncodePair returns the ids of two texts with the special tokens that the
// post-processor puts around and between them, and for each id the type of the
// part that it belongs to. Control tokens in the texts are not matched.
func (t *Tokenizer) EncodePair(a, b string) (ids, types []ID) {
	return t.template.applyPair(t.encode(text{s: a}, false), t.encode(text{s: b}, false))
}

// Segment is a part of a prompt. Trusted text comes from the template, the
// rest from users and tools.
type Segment struct {
	Text    string
	Trusted bool
}

// EncodeSegments encodes the joined text exactly as Encode would encode it in
// one piece with ParseSpecial, except that control tokens are matched only
// where they lie wholly inside trusted text.
func (t *Tokenizer) EncodeSegments(segs []Segment, addSpecial bool) []ID {
	var b strings.Builder
	untrusted := false
	for _, s := range segs {
		b.WriteString(s.Text)
		untrusted = untrusted || !s.Trusted && s.Text != ""
	}
	joined := text{s: b.String()}
	if untrusted {
		joined.marks = make([]byte, 0, len(joined.s))
		for _, s := range segs {
			joined.marks = appendMarks(joined.marks, len(s.Text), s.Trusted, 0)
		}
	}
	ids := t.encode(joined, true)
	if addSpecial {
		ids = t.template.apply(ids)
	}
	return ids
}

// MaxClass is the greatest class of a Part.
const MaxClass = 0x7f

// Part is a part of a text to train on. Its class, up to MaxClass, is the
// caller's: it says what the tokens of the part are, such as prompt or answer.
type Part struct {
	Text    string
	Trusted bool // as in Segment
	Class   uint8
}

// EncodeParts encodes the joined text as EncodeSegments does, without what the
// post-processor adds, and returns the class of each token. No token but an added
// one crosses the border of two classes: what a model has to answer is encoded as
// it is when the prompt before it is there already. An added token has the class
// of its first character.
func (t *Tokenizer) EncodeParts(parts []Part) (ids []ID, classes []uint8) {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	joined := text{s: b.String(), marks: make([]byte, 0, b.Len())}
	for _, p := range parts {
		joined.marks = appendMarks(joined.marks, len(p.Text), p.Trusted, p.Class)
	}
	return t.encodeClasses(joined, true, make([]uint8, 0, len(joined.s)/3+4))
}

// Surround returns the ids that the post-processor puts before and after a text.
func (t *Tokenizer) Surround() (before, after []ID) {
	const mark = -1
	ids := t.template.apply([]ID{mark})
	i := slices.Index(ids, mark)
	if i < 0 {
		return ids, nil
	}
	return ids[:i], ids[i+1:]
}

// appendMarks appends the marks of n bytes.
func appendMarks(marks []byte, n int, trusted bool, class uint8) []byte {
	if class &= MaxClass; !trusted {
		class |= tainted
	}
	for range n {
		marks = append(marks, class)
	}
	return marks
}

func (t *Tokenizer) encode(in text, control bool) []ID {
	ids, _ := t.encodeClasses(in, control, nil)
	return ids
}

// encodeClasses returns the ids and, unless classes is nil, appends the class of
// each to it. Added tokens are looked for before anything is cut at the border of
// two classes, and the text is normalized as one.
func (t *Tokenizer) encodeClasses(in text, control bool, classes []uint8) ([]ID, []uint8) {
	in = validUTF8(in)
	s, _ := t.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{}
	}
	out := make([]ID, 0, len(in.s)/3+4)
	note := func(class uint8) {
		for classes != nil && len(classes) < len(out) {
			classes = append(classes, class)
		}
	}
	s.stretches = t.raw.segment(in, control, s.stretches[:0])
	for _, raw := range s.stretches {
		if raw.id >= 0 {
			out = append(out, raw.id)
			note(raw.mark)
			continue
		}
		s.inner = t.normalized.segment(t.normalizers.apply(raw.text), control, s.inner[:0])
		for _, st := range s.inner {
			if st.id >= 0 {
				out = append(out, st.id)
				note(st.mark)
				continue
			}
			first := raw.at == 0 && st.at == 0
			for rest := st.text; rest.s != ""; first = false {
				n := rest.oneClass()
				class := rest.class(0)
				out = t.encodeStretch(piece{rest.s[:n], first}, out, s)
				note(class)
				rest = rest.slice(n, len(rest.s))
			}
		}
	}
	s.release()
	t.scratch.Put(s)
	return out, classes
}

// encodeStretch cuts text without added tokens into pieces and lets the model
// encode them.
func (t *Tokenizer) encodeStretch(p piece, out []ID, s *scratch) []ID {
	cut := func(p piece) {
		if p.s != "" {
			out = t.model.encode(p.s, out, s)
		}
	}
	for _, pre := range slices.Backward(t.preTokenizers) {
		cut = pre(cut)
	}
	cut(p)
	return out
}

// keepScratch is the number of elements up to which scratch slices are reused;
// a rare huge text must not pin its memory.
const keepScratch = 1 << 16

// release forgets the strings of the last text and what grew too large.
func (s *scratch) release() {
	clear(s.stretches)
	clear(s.inner[:cap(s.inner)])
	if max(cap(s.stretches), cap(s.inner), cap(s.ids), cap(s.heap), cap(s.lattice)) > keepScratch {
		*s = scratch{}
	}
}
