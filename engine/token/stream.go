package token

import "strings"

// Stream decodes ids one at a time. It is for one goroutine.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	stages      []stage
	nexts       []func(string) // nexts[i] feeds stage i, the last one the text
	text        strings.Builder
}

// NewStream returns a Stream whose joined output equals Decode of all its ids
// with the same skipSpecial.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	for _, m := range t.decoder.stages {
		s.stages = append(s.stages, m.make())
	}
	s.nexts = make([]func(string), len(s.stages)+1)
	s.nexts[len(s.stages)] = func(tok string) { s.text.WriteString(tok) }
	for i := len(s.stages) - 1; i >= 0; i-- {
		s.nexts[i] = func(tok string) { s.stages[i].push(tok, s.nexts[i+1]) }
	}
	return s
}

// Push takes one id and returns the text that became final, perhaps "". It
// never returns a part of a UTF-8 sequence. An id outside the vocabulary has
// no text.
func (s *Stream) Push(id ID) string {
	s.push(id)
	return s.take()
}

func (s *Stream) push(id ID) {
	tok, ok := s.t.Token(id)
	if !ok || s.skipSpecial && s.t.IsSpecial(id) {
		return
	}
	s.nexts[0](tok)
}

// Flush ends the stream and returns what was still held back; bytes that never
// became a character are U+FFFD.
func (s *Stream) Flush() string {
	for i, st := range s.stages {
		st.flush(s.nexts[i+1])
	}
	return s.take()
}

func (s *Stream) take() string {
	out := s.text.String()
	s.text.Reset()
	return out
}

// Decode returns the text of ids. With skipSpecial, special tokens are left
// out. Ids outside the vocabulary have no text.
func (t *Tokenizer) Decode(ids []ID, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	return s.Flush()
}
