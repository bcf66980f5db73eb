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
		joined.taint = make([]bool, 0, len(joined.s))
		for _, s := range segs {
			for range len(s.Text) {
				joined.taint = append(joined.taint, !s.Trusted)
			}
		}
	}
	ids := t.encode(joined, true)
	if addSpecial {
		ids = t.template.apply(ids)
	}
	return ids
}

func (t *Tokenizer) encode(in text, control bool) []ID {
	in = validUTF8(in)
	s, _ := t.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{}
	}
	out := make([]ID, 0, len(in.s)/3+4)
	s.stretches = t.raw.segment(in, control, s.stretches[:0])
	for _, raw := range s.stretches {
		if raw.id >= 0 {
			out = append(out, raw.id)
			continue
		}
		s.inner = t.normalized.segment(t.normalizers.apply(raw.text), control, s.inner[:0])
		for _, st := range s.inner {
			if st.id >= 0 {
				out = append(out, st.id)
				continue
			}
			out = t.encodeStretch(piece{st.s, raw.at == 0 && st.at == 0}, out, s)
		}
	}
	s.release()
	t.scratch.Put(s)
	return out
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
