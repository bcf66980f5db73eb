package token

import (
	"bytes"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on what a file may hold. The largest published vocabularies have
// 256 thousand tokens and files of 35 MB.
const (
	maxFile         = 64 << 20
	maxID           = 1 << 21
	maxMerges       = 1 << 22
	maxAdded        = 1 << 17
	maxContentBytes = 1 << 10 // of an added token
	maxTokenBytes   = 1 << 16
)

// file is tokenizer.json. Truncation and padding are the caller's business.
type file struct {
	Added         []addedToken   `json:"added_tokens"`
	Normalizer    jsontext.Value `json:"normalizer"`
	PreTokenizer  jsontext.Value `json:"pre_tokenizer"`
	PostProcessor jsontext.Value `json:"post_processor"`
	Decoder       jsontext.Value `json:"decoder"`
	Model         jsontext.Value `json:"model"`
}

// Load reads a tokenizer.json. It refuses unknown components with an error
// that names them and wraps ErrUnsupported, and broken files with one that
// wraps ErrMalformed. Without a directory there is no configuration: BOS and
// EOS are unknown; see LoadDir.
func Load(data []byte) (*Tokenizer, error) { return load(data, &config{}) }

func load(data []byte, cfg *config) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, malformed("tokenizer.json: %d bytes, at most %d", len(data), maxFile)
	}
	var f file
	if err := decodeJSON(data, &f); err != nil {
		return nil, malformed("tokenizer.json: %v", err)
	}
	spec, err := parseModel(f.Model)
	if err != nil {
		return nil, err
	}
	return build(spec, &f, cfg)
}

func decodeJSON(data []byte, v any) error { return json.Unmarshal(data, v, fieldOptions) }

// modelFile is the field "model"; which fields there are depends on the type.
type modelFile struct {
	Type         string         `json:"type"`
	Vocab        jsontext.Value `json:"vocab"`
	Merges       jsontext.Value `json:"merges"`
	UnkToken     *string        `json:"unk_token"`
	UnkID        *ID            `json:"unk_id"`
	Dropout      *float64       `json:"dropout"`
	Prefix       *string        `json:"continuing_subword_prefix"`
	Suffix       *string        `json:"end_of_word_suffix"`
	FuseUnk      bool           `json:"fuse_unk"`
	ByteFallback bool           `json:"byte_fallback"`
	IgnoreMerges bool           `json:"ignore_merges"`
	MaxChars     *int           `json:"max_input_chars_per_word"`
}

// kind returns the type; old files leave it out.
func (m *modelFile) kind() string {
	switch {
	case m.Type != "":
		return m.Type
	case m.Merges != nil:
		return "BPE"
	case m.Vocab.Kind() == '[':
		return "Unigram"
	case m.MaxChars != nil || m.Prefix != nil:
		return "WordPiece"
	}
	return "without a type"
}

func parseModel(raw jsontext.Value) (*modelSpec, error) {
	if len(raw) == 0 {
		return nil, malformed("tokenizer.json: no model")
	}
	var m modelFile
	if err := decodeJSON(raw, &m); err != nil {
		return nil, malformed("model: %v", err)
	}
	spec := &modelSpec{kind: m.kind(), unk: -1, fuseUnk: m.FuseUnk, byteFallback: m.ByteFallback,
		ignoreMerges: m.IgnoreMerges, maxChars: 100}
	if m.Prefix != nil {
		spec.prefix = *m.Prefix
	} else if spec.kind == "WordPiece" {
		spec.prefix = "##"
	}
	if m.Suffix != nil {
		spec.suffix = *m.Suffix
	}
	if m.MaxChars != nil {
		spec.maxChars = *m.MaxChars
	}
	if m.Vocab == nil {
		return nil, malformed("model: no vocab")
	}
	if len(spec.prefix) > maxContent || len(spec.suffix) > maxContent {
		return nil, malformed("model: subword prefix or suffix longer than %d bytes", maxContent)
	}
	return spec, spec.parse(&m)
}

func (s *modelSpec) parse(m *modelFile) error {
	switch s.kind {
	case "BPE":
		if m.Dropout != nil && *m.Dropout != 0 {
			return unsupported("model: dropout %v, which makes the ids random", *m.Dropout)
		}
		if err := s.parseMerges(m.Merges); err != nil {
			return err
		}
	case "WordPiece":
	case "Unigram":
		return s.parseScores(m)
	default:
		return unsupported("model %q", s.kind)
	}
	if err := decodeJSON(m.Vocab, &s.vocab); err != nil {
		return malformed("model.vocab: %v", err)
	}
	if m.UnkToken != nil {
		id, ok := s.vocab[*m.UnkToken]
		if !ok {
			return malformed("model: unk_token %q is not in the vocabulary", *m.UnkToken)
		}
		s.unk = id
	}
	if s.kind == "WordPiece" && s.unk < 0 {
		return malformed("model: WordPiece without an unk_token")
	}
	return nil
}

// parseMerges reads merges of either spelling, "a b" or ["a", "b"].
func (s *modelSpec) parseMerges(raw jsontext.Value) error {
	if raw.Kind() != '[' {
		return malformed("model: BPE without a list of merges")
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := d.ReadToken(); err != nil {
		return malformed("model.merges: %v", err)
	}
	for d.PeekKind() != ']' {
		if len(s.merges) == maxMerges {
			return malformed("model.merges: more than %d", maxMerges)
		}
		v, err := d.ReadValue()
		if err != nil {
			return malformed("model.merges: %v", err)
		}
		pair, err := parseMerge(v)
		if err != nil {
			return malformed("model.merges[%d]: %v", len(s.merges), err)
		}
		s.merges = append(s.merges, pair)
	}
	return nil
}

func parseMerge(v jsontext.Value) (pair [2]string, err error) {
	if v.Kind() == '[' {
		return pair, decodeJSON(v, &pair)
	}
	var line string
	if err := decodeJSON(v, &line); err != nil {
		return pair, err
	}
	return cutMerge(line)
}

// parseScores reads a Unigram vocabulary: [["token", score], …].
func (s *modelSpec) parseScores(m *modelFile) error {
	if m.Vocab.Kind() != '[' {
		return malformed("model.vocab: Unigram needs a list of pairs")
	}
	s.vocab = map[string]ID{}
	d := jsontext.NewDecoder(bytes.NewReader(m.Vocab))
	if _, err := d.ReadToken(); err != nil {
		return malformed("model.vocab: %v", err)
	}
	for d.PeekKind() != ']' {
		if len(s.scores) == maxID {
			return malformed("model.vocab: more than %d tokens", maxID)
		}
		v, err := d.ReadValue()
		if err != nil {
			return malformed("model.vocab: %v", err)
		}
		var pair [2]jsontext.Value
		var tok string
		var score float64
		if err = decodeJSON(v, &pair); err == nil {
			if err = decodeJSON(pair[0], &tok); err == nil {
				err = decodeJSON(pair[1], &score)
			}
		}
		if err != nil {
			return malformed("model.vocab[%d]: %v", len(s.scores), err)
		}
		if math.Abs(score) > 1e100 {
			return malformed("model.vocab[%d]: score %v", len(s.scores), score)
		}
		s.vocab[tok] = ID(len(s.scores))
		s.scores = append(s.scores, score)
	}
	if m.UnkID != nil {
		if *m.UnkID < 0 || int(*m.UnkID) >= len(s.scores) {
			return malformed("model: unk_id %d of %d tokens", *m.UnkID, len(s.scores))
		}
		s.unk = *m.UnkID
	}
	return nil
}

// checkVocab bounds ids and spellings.
func (s *modelSpec) checkVocab() error {
	if len(s.vocab) == 0 {
		return malformed("model: the vocabulary is empty")
	}
	for tok, id := range s.vocab {
		if id < 0 || id >= maxID {
			return malformed("model.vocab: %.40q has id %d, outside 0 … %d", tok, id, maxID-1)
		}
		if len(tok) > maxTokenBytes {
			return malformed("model.vocab: token %d has %d bytes, at most %d", id, len(tok), maxTokenBytes)
		}
		if !utf8.ValidString(tok) {
			return malformed("model.vocab: token %d is not UTF-8", id)
		}
	}
	return nil
}
