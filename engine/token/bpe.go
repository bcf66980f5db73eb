package token

import (
	"strings"
	"unicode/utf8"
)

// bpe is byte pair encoding (Sennrich et al. 2016): a word starts as its
// characters, and the pair with the best rank is merged until none is left.
type bpe struct {
	vocab  map[string]ID
	pairs  *pairTable
	merges []merge // by rank

	// For byte-level models that see raw bytes: the id of a byte in the
	// [not first][last] position of its word, -1 where it has none.
	raw    bool
	byteID [2][2][256]ID

	unk          ID
	prefix       string
	suffix       string
	fuseUnk      bool
	fallback     *[256]ID // nil without byte fallback
	ignoreMerges bool
	cutWords     bool // no merge crosses the front of a ▁-word
	control      map[ID]bool
	parts        map[ID][2]ID // how a control token that merges could form falls apart
	cache        *wordCache
}

type merge struct{ left, right, result ID }

func newBPE(m *modelSpec, control map[ID]bool, byteLevel bool) (*bpe, error) {
	b := &bpe{vocab: m.vocab, raw: byteLevel, unk: m.unk, prefix: m.prefix, suffix: m.suffix,
		fuseUnk: m.fuseUnk, ignoreMerges: m.ignoreMerges, control: control,
		parts: map[ID][2]ID{}, cache: newWordCache()}
	if m.byteFallback {
		t := fallbackIDs(m.vocab)
		b.fallback = &t
	}
	if err := b.compileMerges(m.merges); err != nil {
		return nil, err
	}
	if b.raw {
		b.compileBytes()
	}
	_, hasMark := m.vocab["▁"]
	b.cutWords = !b.raw && !b.ignoreMerges && hasMark && b.prefix == "" && b.suffix == "" && !crossesWords(m.merges)
	return b, nil
}

func (b *bpe) compileMerges(merges [][2]string) error {
	b.pairs = newPairTable(len(merges))
	b.merges = make([]merge, len(merges))
	var buf []byte
	for rank, m := range merges {
		left, ok := b.vocab[m[0]]
		if !ok {
			return malformed("merge %d: %q is not in the vocabulary", rank, m[0])
		}
		right, ok := b.vocab[m[1]]
		if !ok {
			return malformed("merge %d: %q is not in the vocabulary", rank, m[1])
		}
		tail := m[1]
		if b.prefix != "" {
			tail = tail[min(len(b.prefix), len(tail)):]
		}
		if m[0] == "" || tail == "" {
			return malformed("merge %d: %q and %q, of which one is empty", rank, m[0], m[1])
		}
		buf = append(append(buf[:0], m[0]...), tail...)
		result, ok := b.vocab[string(buf)]
		if !ok {
			return malformed("merge %d: its result %q is not in the vocabulary", rank, buf)
		}
		b.merges[rank] = merge{left, right, result}
		b.pairs.put(left, right, int32(rank)) // of equal pairs the last counts
		if _, seen := b.parts[result]; b.control[result] && !seen {
			b.parts[result] = [2]ID{left, right}
		}
	}
	return nil
}

func (b *bpe) compileBytes() {
	for c := range 256 {
		s := string(byteRune[c])
		for i := range 2 {
			for j := range 2 {
				b.byteID[i][j][c] = b.lookup(b.affixed(s, i == 0, j == 1))
			}
		}
	}
}

// crossesWords reports whether some merge joins a word with the ▁ of the next.
func crossesWords(merges [][2]string) bool {
	for _, m := range merges {
		if !strings.HasSuffix(m[0], "▁") && strings.HasPrefix(m[1], "▁") {
			return true
		}
	}
	return false
}

// lookup returns the id of a character that is not a control token, or -1.
func (b *bpe) lookup(s string) ID {
	if id, ok := b.vocab[s]; ok && !b.control[id] {
		return id
	}
	return -1
}

func (b *bpe) affixed(c string, first, last bool) string {
	if !first && b.prefix != "" {
		c = b.prefix + c
	}
	if last && b.suffix != "" {
		c += b.suffix
	}
	return c
}

func (b *bpe) encode(w string, out []ID, s *scratch) []ID {
	if !b.cutWords {
		return b.word(w, out, s)
	}
	for w != "" {
		n := nextWord(w)
		out = b.word(w[:n], out, s)
		w = w[n:]
	}
	return out
}

// nextWord returns the length of the first word: ▁ marks, then the rest up to
// the next ▁.
func nextWord(w string) int {
	i := 0
	for strings.HasPrefix(w[i:], "▁") {
		i += len("▁")
	}
	if k := strings.Index(w[i:], "▁"); k >= 0 {
		return i + k
	}
	return len(w)
}

func (b *bpe) word(w string, out []ID, s *scratch) []ID {
	if ids, ok := b.cache.get(w); ok {
		return append(out, ids...)
	}
	n := len(out)
	if id, ok := b.whole(w, s); ok {
		out = append(out, id)
	} else {
		out = b.mergeWord(w, out, s)
	}
	b.cache.put(w, out[n:])
	return out
}

// whole answers a word that is in the vocabulary, where the file lets that
// stand for its merges.
func (b *bpe) whole(w string, s *scratch) (ID, bool) {
	if !b.ignoreMerges {
		return 0, false
	}
	s.buf = append(s.buf[:0], w...)
	if b.raw {
		s.buf = appendSpelled(s.buf[:0], w)
	}
	id, ok := b.vocab[string(s.buf)]
	return id, ok && !b.control[id]
}

func (b *bpe) mergeWord(w string, out []ID, s *scratch) []ID {
	if b.raw {
		s.ids = b.bytes(w, s.ids[:0])
	} else {
		s.ids = b.characters(w, s.ids[:0])
	}
	ids := s.ids
	if len(ids) <= smallWord {
		ids = b.mergeSmall(ids, s)
	} else {
		ids = b.mergeLong(ids, s)
	}
	if len(b.parts) == 0 {
		return append(out, ids...)
	}
	for _, id := range ids {
		out = b.takeApart(id, out)
	}
	return out
}

// takeApart undoes the merges that made a control token.
func (b *bpe) takeApart(id ID, out []ID) []ID {
	p, ok := b.parts[id]
	if !ok {
		return append(out, id)
	}
	return b.takeApart(p[1], b.takeApart(p[0], out))
}

func (b *bpe) bytes(w string, ids []ID) []ID {
	wasUnk := false
	for i := range len(w) {
		first, last := i == 0, i == len(w)-1
		id := b.byteID[index(!first)][index(last)][w[i]]
		if id >= 0 {
			ids, wasUnk = append(ids, id), false
			continue
		}
		ids, wasUnk = b.unknown(b.affixed(string(byteRune[w[i]]), first, last), ids, wasUnk)
	}
	return ids
}

func (b *bpe) characters(w string, ids []ID) []ID {
	wasUnk := false
	for i := 0; i < len(w); {
		_, n := utf8.DecodeRuneInString(w[i:])
		c := b.affixed(w[i:i+n], i == 0, i+n == len(w))
		i += n
		if id := b.lookup(c); id >= 0 {
			ids, wasUnk = append(ids, id), false
			continue
		}
		ids, wasUnk = b.unknown(c, ids, wasUnk)
	}
	return ids
}

// unknown appends what stands for a character outside the vocabulary: its
// bytes, else the unknown token, else nothing, as the file has it.
func (b *bpe) unknown(c string, ids []ID, wasUnk bool) ([]ID, bool) {
	if b.fallback != nil {
		if ids, ok := appendFallback(b.fallback, c, ids); ok {
			return ids, false
		}
	}
	if b.unk < 0 || wasUnk && b.fuseUnk {
		return ids, wasUnk
	}
	return append(ids, b.unk), true
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
