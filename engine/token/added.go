package token

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a string that is cut out of the text before the model sees it.
type addedToken struct {
	ID         ID
	Content    string
	SingleWord bool `json:"single_word"` // only where no word character touches it
	LStrip     bool `json:"lstrip"`      // takes the white space before it along
	RStrip     bool `json:"rstrip"`      // and after it
	Normalized bool // looked for in the normalized text
	Special    bool

	control bool
}

// segmenter cuts added tokens out of a text.
type segmenter struct {
	trie   *trie
	tokens []addedToken // by the ids of the trie
}

// stretch is an added token, or text between two of them (id < 0).
type stretch struct {
	text
	at   int // offset in what was segmented
	id   ID
	mark uint8 // class of an added token
}

func newSegmenter(tokens []addedToken, spelling func(string) string) *segmenter {
	s := &segmenter{tokens: tokens}
	var keys []trieKey
	for i, a := range tokens {
		if k := spelling(a.Content); k != "" {
			keys = append(keys, trieKey{k, ID(i)})
		}
	}
	if len(keys) == 0 {
		return s
	}
	s.trie = newTrie(keys)
	return s
}

// segment appends the stretches of t. Control tokens count only when control
// is true and they lie in untainted text.
func (s *segmenter) segment(t text, control bool, out []stretch) []stretch {
	if t.s == "" {
		return out
	}
	if s.trie == nil {
		return append(out, stretch{text: t, id: -1})
	}
	done := 0
	for i := 0; i < len(t.s); {
		if s.trie.root[t.s[i]] == 0 {
			i++
			continue
		}
		k, n := s.longest(t, i, control)
		if n == 0 {
			i++
			continue
		}
		a := &s.tokens[k]
		start, stop := i, i+n
		class := t.class(start)
		i = stop
		if a.SingleWord && (endsWithWord(t.s[:start]) || startsWithWord(t.s[stop:])) {
			continue
		}
		if a.LStrip {
			start = max(done, len(strings.TrimRightFunc(t.s[:start], unicode.IsSpace)))
		}
		if a.RStrip {
			stop = len(t.s) - len(strings.TrimLeftFunc(t.s[stop:], unicode.IsSpace))
		}
		if done < start {
			out = append(out, stretch{text: t.slice(done, start), at: done, id: -1})
		}
		// A token of spaces may begin at a space that the one before it has
		// stripped; it counts only where it still covers something.
		if start < stop {
			out = append(out, stretch{id: a.ID, at: start, mark: class})
		}
		done = max(done, stop)
	}
	if done < len(t.s) {
		out = append(out, stretch{text: t.slice(done, len(t.s)), at: done, id: -1})
	}
	return out
}

// longest returns the longest token that may begin at i, and its length.
func (s *segmenter) longest(t text, i int, control bool) (best ID, n int) {
	node := int32(0)
	for j := i; j < len(t.s); {
		if node = s.trie.child(node, t.s[j]); node == 0 {
			break
		}
		j++
		k := s.trie.nodes[node].id
		if k < 0 || s.tokens[k].control && (!control || t.tainted(i, j)) {
			continue
		}
		best, n = k, j-i
	}
	return best, n
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}
