package token

// model turns one piece into ids. Control tokens other than the unknown token
// never come out of it.
type model interface {
	// encode appends the ids of w, which is not empty and valid UTF-8.
	encode(w string, out []ID, s *scratch) []ID
}

// modelSpec is a model as read from a file, before it is compiled.
type modelSpec struct {
	kind   string // BPE, WordPiece or Unigram
	vocab  map[string]ID
	scores []float64   // Unigram, by id
	merges [][2]string // BPE, best first

	unk          ID // -1: none
	prefix       string
	suffix       string
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool
	maxChars     int // WordPiece: longer words are unknown
}

// scratch is the working memory of one Encode call.
type scratch struct {
	stretches  []stretch
	inner      []stretch
	ids        []ID
	ranks      []int32
	prev, next []int32
	heap       []uint64
	buf        []byte
	lattice    []latticeNode
}

func compileModel(m *modelSpec, control map[ID]bool, byteLevel bool) (model, error) {
	switch m.kind {
	case "BPE":
		return newBPE(m, control, byteLevel)
	case "WordPiece":
		return newWordPiece(m, control), nil
	}
	return newUnigram(m, control), nil
}

// fallbackIDs returns the ids of <0x00> … <0xFF>, -1 for those that the
// vocabulary lacks.
func fallbackIDs(vocab map[string]ID) (t [256]ID) {
	const hex = "0123456789ABCDEF"
	for b := range t {
		t[b] = -1
		if id, ok := vocab["<0x"+string(hex[b>>4])+string(hex[b&15])+">"]; ok {
			t[b] = id
		}
	}
	return t
}

// appendFallback appends the byte tokens of s, if the vocabulary has them all.
func appendFallback(t *[256]ID, s string, out []ID) ([]ID, bool) {
	n := len(out)
	for i := range len(s) {
		id := t[s[i]]
		if id < 0 {
			return out[:n], false
		}
		out = append(out, id)
	}
	return out, true
}
