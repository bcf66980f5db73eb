package token

import (
	"slices"
	"unicode/utf8"
)

// unkPenalty is how much worse than the worst token an unknown character is
// (SentencePiece's kUnkPenalty).
const unkPenalty = 10

// unigram picks the segmentation with the highest sum of log probabilities
// (Kudo 2018), by Viterbi in float64: in float32 ties break differently.
type unigram struct {
	trie     *trie
	scores   []float64
	unk      ID // -1: unknown characters are left out
	unkScore float64
	fallback *[256]ID // nil without byte fallback
	cache    *wordCache
}

// latticeNode is the best way to reach one byte offset.
type latticeNode struct {
	score float64
	from  int32 // -1: not reached yet
	id    ID
}

// unknownID marks an unknown character in the lattice.
const unknownID ID = -1

func newUnigram(m *modelSpec, control map[ID]bool) *unigram {
	u := &unigram{trie: newTrie(trieKeys(m.vocab, control)), scores: m.scores, unk: m.unk, cache: newWordCache()}
	if len(m.scores) > 0 {
		u.unkScore = slices.Min(m.scores) - unkPenalty
	}
	if m.byteFallback {
		t := fallbackIDs(m.vocab)
		u.fallback = &t
	}
	return u
}

func (u *unigram) encode(w string, out []ID, s *scratch) []ID {
	if ids, ok := u.cache.get(w); ok {
		return append(out, ids...)
	}
	n := len(out)
	u.viterbi(w, s)
	out = u.backtrack(w, out, s.lattice)
	u.cache.put(w, out[n:])
	return out
}

func (u *unigram) viterbi(w string, s *scratch) {
	best := slices.Grow(s.lattice[:0], len(w)+1)[:len(w)+1]
	s.lattice = best
	for i := range best {
		best[i] = latticeNode{from: -1}
	}
	for i := 0; i < len(w); {
		_, size := utf8.DecodeRuneInString(w[i:])
		here, single := best[i].score, false
		node := int32(0)
		for j := i; j < len(w); {
			if node = u.trie.child(node, w[j]); node == 0 {
				break
			}
			j++
			id := u.trie.nodes[node].id
			if id < 0 {
				continue
			}
			reach(&best[j], here+u.scores[id], i, id)
			single = single || j == i+size
		}
		if !single {
			reach(&best[i+size], here+u.unkScore, i, unknownID)
		}
		i += size
	}
}

func reach(n *latticeNode, score float64, from int, id ID) {
	if n.from < 0 || score > n.score {
		*n = latticeNode{score, int32(from), id}
	}
}

// backtrack appends the ids of the best path; a run of unknown characters is
// one unknown token, or their bytes.
func (u *unigram) backtrack(w string, out []ID, best []latticeNode) []ID {
	n := len(out)
	for end := len(w); end > 0; {
		node := best[end]
		if node.id != unknownID && node.id != u.unk {
			out = append(out, node.id)
			end = int(node.from)
			continue
		}
		start := end
		for start > 0 && (best[start].id == unknownID || best[start].id == u.unk) {
			start = int(best[start].from)
		}
		out = u.unknown(w[start:end], out)
		end = start
	}
	slices.Reverse(out[n:])
	return out
}

// unknown appends what stands for s, backwards.
func (u *unigram) unknown(s string, out []ID) []ID {
	if u.fallback != nil {
		n := len(out)
		if ids, ok := appendFallback(u.fallback, s, out); ok {
			slices.Reverse(ids[n:])
			return ids
		}
	}
	if u.unk < 0 {
		return out
	}
	return append(out, u.unk)
}
