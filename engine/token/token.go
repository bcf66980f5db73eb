package token

import (
	"sync"
)

// ID is a token id.
type ID = int32

// Tokenizer turns text into ids and back. It is immutable and safe for
// concurrent use.
type Tokenizer struct {
	tokens  []string // raw spelling by id
	present []bool   // id is used
	special []bool
	ids     map[string]ID // added tokens; the vocabulary is in vocab
	vocab   map[string]ID

	raw, normalized *segmenter
	normalizers     *normalizers
	preTokenizers   []preTokenizer
	model           model
	template        template
	decoder         *decoder
	controls        map[ID]bool
	bos, eos        ID // -1: none

	scratch sync.Pool // of *scratch
}

// Size is one more than the greatest id.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID returns the id of a token by its raw vocabulary spelling ("Ġthe",
// "▁the", "##ing", "<|im_end|>").
func (t *Tokenizer) ID(tok string) (ID, bool) {
	if id, ok := t.ids[tok]; ok {
		return id, true
	}
	id, ok := t.vocab[tok]
	return id, ok
}

// Token returns the raw vocabulary spelling of id; false when no token has it.
func (t *Tokenizer) Token(id ID) (string, bool) {
	if !t.has(id) {
		return "", false
	}
	return t.tokens[id], true
}

func (t *Tokenizer) has(id ID) bool { return id >= 0 && int(id) < len(t.tokens) && t.present[id] }

// IsSpecial reports that the file flags id as special, so that Decode can skip
// it.
func (t *Tokenizer) IsSpecial(id ID) bool { return t.has(id) && t.special[id] }

// IsControl reports that id steers the model rather than spells text: it is
// special, or the configuration names it as bos, eos, pad and the like. No
// untrusted text yields it, the unknown token excepted.
func (t *Tokenizer) IsControl(id ID) bool { return t.controls[id] }

// BOS returns the token that begins a text, if the configuration names one.
func (t *Tokenizer) BOS() (ID, bool) { return t.bos, t.bos >= 0 }

// EOS returns the token that ends a text, if the configuration names one.
func (t *Tokenizer) EOS() (ID, bool) { return t.eos, t.eos >= 0 }

// Bytes returns the bytes that id contributes to decoded text, when it stands
// inside a text: byte-level and byte-fallback spellings are resolved, word
// marks are spaces, a special token is its content. The result is the
// caller's. It is nil for an id that no token has.
func (t *Tokenizer) Bytes(id ID) []byte {
	if !t.has(id) {
		return nil
	}
	b := []byte(t.tokens[id])
	if t.special[id] {
		return b
	}
	for _, m := range t.decoder.stages {
		if m.middle != nil {
			b = m.middle(b)
		}
	}
	return b
}
