package token

import "unicode/utf8"

// wordPiece takes the longest token that begins the word, then the longest one
// with the continuation prefix, and so on; a word with a gap is unknown as a
// whole (Schuster and Nakajima 2012).
type wordPiece struct {
	trie     *trie
	inner    int32 // where the continuation prefix leads, 0: nowhere
	prefix   string
	unk      ID
	maxChars int
}

func newWordPiece(m *modelSpec, control map[ID]bool) *wordPiece {
	t := newTrie(trieKeys(m.vocab, control))
	return &wordPiece{trie: t, inner: t.walk(m.prefix), prefix: m.prefix, unk: m.unk, maxChars: m.maxChars}
}

// trieKeys lists the vocabulary without control tokens.
func trieKeys(vocab map[string]ID, control map[ID]bool) []trieKey {
	keys := make([]trieKey, 0, len(vocab))
	for s, id := range vocab {
		if s != "" && !control[id] {
			keys = append(keys, trieKey{s, id})
		}
	}
	return keys
}

func (m *wordPiece) encode(w string, out []ID, _ *scratch) []ID {
	if utf8.RuneCountInString(w) > m.maxChars {
		return append(out, m.unk)
	}
	n := len(out)
	for i := 0; i < len(w); {
		node := int32(0)
		if i > 0 && m.prefix != "" {
			if node = m.inner; node == 0 {
				return append(out[:n], m.unk)
			}
		}
		best, end := ID(-1), i
		for j := i; j < len(w); {
			if node = m.trie.child(node, w[j]); node == 0 {
				break
			}
			j++
			if id := m.trie.nodes[node].id; id >= 0 {
				best, end = id, j
			}
		}
		if best < 0 {
			return append(out[:n], m.unk)
		}
		out, i = append(out, best), end
	}
	return out
}
