package token

import (
	"slices"
	"sort"
)

// trie maps byte strings to ids and walks them byte by byte. The children of a
// node lie side by side, sorted by label.
type trie struct {
	nodes []trieNode
	root  [256]int32 // child of the root for each byte, 0 where there is none
}

type trieNode struct {
	first int32 // index of the first child
	n     int16 // number of children, at most 256
	label byte
	id    int32 // -1: no key ends here
}

type trieKey struct {
	s  string
	id ID
}

// newTrie builds a trie; of equal keys the first one counts. It sorts keys.
func newTrie(keys []trieKey) *trie {
	slices.SortStableFunc(keys, func(a, b trieKey) int {
		switch {
		case a.s < b.s:
			return -1
		case a.s > b.s:
			return 1
		}
		return 0
	})
	t := &trie{nodes: make([]trieNode, 1, 2*len(keys)+1)}
	t.nodes[0].id = -1
	type todo struct{ node, lo, hi, depth int }
	queue := []todo{{0, 0, len(keys), 0}}
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		lo := q.lo
		for lo < q.hi && len(keys[lo].s) == q.depth {
			if t.nodes[q.node].id < 0 {
				t.nodes[q.node].id = keys[lo].id
			}
			lo++
		}
		t.nodes[q.node].first = int32(len(t.nodes))
		for lo < q.hi {
			label := keys[lo].s[q.depth]
			hi := lo + sort.Search(q.hi-lo, func(i int) bool { return keys[lo+i].s[q.depth] > label })
			queue = append(queue, todo{len(t.nodes), lo, hi, q.depth + 1})
			t.nodes = append(t.nodes, trieNode{label: label, id: -1})
			t.nodes[q.node].n++
			lo = hi
		}
	}
	for i := range t.nodes[0].n {
		c := t.nodes[0].first + int32(i)
		t.root[t.nodes[c].label] = c
	}
	return t
}

// child returns the node below node by b, or 0.
func (t *trie) child(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	p := &t.nodes[node]
	lo, hi := p.first, p.first+int32(p.n)
	for lo < hi {
		mid := (lo + hi) / 2
		if t.nodes[mid].label < b {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < p.first+int32(p.n) && t.nodes[lo].label == b {
		return lo
	}
	return 0
}

// walk returns the node that s leads to from the root, or 0.
func (t *trie) walk(s string) int32 {
	node := int32(0)
	for i := range len(s) {
		if node = t.child(node, s[i]); node == 0 {
			return 0
		}
	}
	return node
}
