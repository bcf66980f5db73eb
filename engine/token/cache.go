package token

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	cacheSlots   = 1 << 14
	maxCacheWord = 64 // bytes; longer words rarely come again
)

// wordCache remembers the ids of words. It is a direct-mapped table of fixed
// size, so it needs neither a lock nor an eviction policy: a word that falls on
// a taken slot replaces what was there.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []ID
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

func (c *wordCache) slot(w string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, w)%cacheSlots]
}

// get returns the ids of w; they must not be changed.
func (c *wordCache) get(w string) ([]ID, bool) {
	if len(w) > maxCacheWord {
		return nil, false
	}
	if e := c.slot(w).Load(); e != nil && e.word == w {
		return e.ids, true
	}
	return nil, false
}

// put copies w and ids, so that a cached word does not keep its text alive.
func (c *wordCache) put(w string, ids []ID) {
	if len(w) <= maxCacheWord {
		c.slot(w).Store(&cachedWord{strings.Clone(w), slices.Clone(ids)})
	}
}
