package token

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// maxMapped bounds what one character may become; the longest entry of the
// NFKC maps is 33 bytes (U+FDFA).
const maxMapped = 256

// charsmap is SentencePiece's compiled normalization map: a double-array trie
// (Darts) whose values are offsets of NUL-terminated strings in a blob.
//
//	uint32 size of the trie in bytes │ trie, uint32 units, little endian │ blob
type charsmap struct {
	units  []uint32
	blob   string
	growth int // longest string of the blob
	ascii  [utf8.RuneSelf]struct {
		to string
		ok bool
	}
}

func parseCharsmap(b []byte) (*charsmap, error) {
	if len(b) < 4 {
		return nil, malformed("precompiled_charsmap: %d bytes, header needs 4", len(b))
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	if size == 0 || size%4 != 0 || size > uint64(len(b)-4) {
		return nil, malformed("precompiled_charsmap: trie of %d bytes in a map of %d", size, len(b))
	}
	m := &charsmap{units: make([]uint32, size/4), blob: string(b[4+size:]), growth: 1}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	if !utf8.ValidString(m.blob) {
		return nil, malformed("precompiled_charsmap: strings are not UTF-8")
	}
	run := 0
	for i := range len(m.blob) {
		if m.blob[i] == 0 {
			run = 0
			continue
		}
		run++
		m.growth = max(m.growth, run)
	}
	if m.growth > maxMapped {
		return nil, malformed("precompiled_charsmap: a string of %d bytes, at most %d", m.growth, maxMapped)
	}
	for c := range m.ascii {
		m.ascii[c].to, m.ascii[c].ok = m.lookup(string(rune(c)))
	}
	return m, nil
}

// Fields of a unit of the double array.
func unitHasLeaf(u uint32) bool  { return u>>8&1 == 1 }
func unitValue(u uint32) uint32  { return u & (1<<31 - 1) }
func unitLabel(u uint32) uint32  { return u & (1<<31 | 0xFF) }
func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// lookup returns what the shortest key that is a prefix of s maps to. Taking
// the shortest, and dropping the rest of s, is what SentencePiece's users
// trained with.
func (m *charsmap) lookup(s string) (string, bool) {
	pos := unitOffset(m.units[0])
	for i := range len(s) {
		if s[i] == 0 {
			return "", false
		}
		pos ^= uint32(s[i])
		if uint64(pos) >= uint64(len(m.units)) {
			return "", false
		}
		u := m.units[pos]
		if unitLabel(u) != uint32(s[i]) {
			return "", false
		}
		pos ^= unitOffset(u)
		if uint64(pos) >= uint64(len(m.units)) {
			return "", false
		}
		if unitHasLeaf(u) {
			return m.value(unitValue(m.units[pos]))
		}
	}
	return "", false
}

func (m *charsmap) value(at uint32) (string, bool) {
	if uint64(at) > uint64(len(m.blob)) || at > 0 && at < uint32(len(m.blob)) && !utf8.RuneStart(m.blob[at]) {
		return "", false
	}
	end := int(at)
	for end < len(m.blob) && m.blob[end] != 0 {
		end++
	}
	return m.blob[at:end], true
}

// normalize maps grapheme by grapheme; one that is longer than 5 bytes or not
// in the map goes rune by rune.
func (m *charsmap) normalize(t text) text {
	e := edit{src: t}
	for i := 0; i < len(t.s); {
		if c := t.s[i]; c < utf8.RuneSelf && asciiCluster(t.s, i) {
			if to := &m.ascii[c]; to.ok {
				e.put(i, i+1, to.to)
			}
			i++
			continue
		}
		g, _, _, _ := uniseg.FirstGraphemeClusterInString(t.s[i:], -1)
		m.cluster(&e, i, g)
		i += len(g)
	}
	return e.text()
}

// asciiCluster reports that s[i] is a grapheme cluster by itself without a
// search: the next byte is ASCII too, and they are not \r\n.
func asciiCluster(s string, i int) bool {
	return i+1 == len(s) || s[i+1] < utf8.RuneSelf && (s[i] != '\r' || s[i+1] != '\n')
}

func (m *charsmap) cluster(e *edit, i int, g string) {
	if len(g) < 6 {
		if to, ok := m.lookup(g); ok {
			e.put(i, i+len(g), to)
			return
		}
	}
	for k, r := range g {
		n := utf8.RuneLen(r)
		if to, ok := m.lookup(g[k : k+n]); ok {
			e.put(i+k, i+k+n, to)
		}
	}
}
