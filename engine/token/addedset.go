package token

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// addedSet collects added tokens from the file and the configuration.
type addedSet struct {
	t         *Tokenizer
	list      []addedToken
	byContent map[string]int
}

// add takes a in. Of equal contents the first counts, unless override is set.
func (s *addedSet) add(a addedToken, override bool) error {
	switch {
	case a.Content == "":
		return nil // ignored by the Rust library too
	case len(a.Content) > maxContentBytes:
		return fmt.Errorf("content of %d bytes, at most %d", len(a.Content), maxContentBytes)
	case !utf8.ValidString(a.Content):
		return fmt.Errorf("content is not UTF-8")
	case len(s.list) == maxAdded:
		return fmt.Errorf("more than %d", maxAdded)
	}
	if i, ok := s.byContent[a.Content]; ok {
		if override {
			a.ID = s.list[i].ID
			s.list[i] = a
		}
		return nil
	}
	if id, ok := s.t.vocab[a.Content]; ok {
		a.ID = id // the vocabulary knows better than the list
	} else if a.ID < 0 || a.ID >= maxID {
		return fmt.Errorf("%q has id %d, outside 0 … %d", a.Content, a.ID, maxID-1)
	} else if tok, ok := s.t.Token(a.ID); ok {
		return fmt.Errorf("%q has id %d, which is %q", a.Content, a.ID, tok)
	}
	s.put(a)
	return nil
}

func (s *addedSet) put(a addedToken) {
	s.t.grow(a.ID + 1)
	s.t.tokens[a.ID], s.t.present[a.ID] = a.Content, true
	s.t.ids[a.Content] = a.ID
	s.byContent[a.Content] = len(s.list)
	s.list = append(s.list, a)
}

// name marks the tokens that the configuration names as control tokens. One
// that is only in the vocabulary becomes an added token if it is bracketed;
// anything else there is a word that some text needs.
func (s *addedSet) name(tokens []string) {
	for _, tok := range tokens {
		if _, ok := s.byContent[tok]; !ok {
			id, ok := s.t.vocab[tok]
			if !ok || !bracketed(tok) || len(s.list) == maxAdded || len(tok) > maxContentBytes {
				continue
			}
			s.put(addedToken{ID: id, Content: tok, Special: true})
		}
		s.t.control(s.list[s.byContent[tok]])
	}
}

func bracketed(tok string) bool {
	return strings.HasPrefix(tok, "<") && strings.HasSuffix(tok, ">") ||
		strings.HasPrefix(tok, "[") && strings.HasSuffix(tok, "]")
}
