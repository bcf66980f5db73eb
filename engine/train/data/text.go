package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"athanor/engine/prompt"
	"athanor/engine/token"
)

// templateDate is what a chat template is told that today is. A dataset must
// have the same tokens on every day; this is the date that the templates which ask
// for one give where they are told none.
var templateDate = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// textModel is what the files of a model say about text.
type textModel struct {
	tokenizer *token.Tokenizer
	template  *prompt.Template // nil where there is none
	bos, eos  string
	end       token.ID // put after texts that have no end, -1: none
	stops     []token.ID
	context   int // tokens, 0 = unknown
	limit     int // ids are below it
	identity  string
}

// textFiles decide the tokens of a conversation.
var textFiles = []string{"chat_template.jinja", "config.json", "generation_config.json", "merges.txt",
	"special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"}

// maxTextFile bounds one of them.
const maxTextFile = 64 << 20

func openText(fsys fs.FS) (*textModel, error) {
	m := &textModel{end: -1}
	var err error
	if m.tokenizer, err = token.LoadDir(fsys); err != nil {
		return nil, fmt.Errorf("tokenizer of the model: %w", err)
	}
	m.template, err = prompt.Load(fsys)
	if err != nil && !errors.Is(err, prompt.ErrNoTemplate) {
		return nil, fmt.Errorf("chat template of the model: %w", err)
	}
	if err := m.readConfigs(fsys); err != nil {
		return nil, err
	}
	if id, ok := m.tokenizer.BOS(); ok {
		m.bos, _ = m.tokenizer.Token(id)
	}
	if id, ok := m.tokenizer.EOS(); ok {
		m.eos, _ = m.tokenizer.Token(id)
		m.end = id
		m.stops = append(m.stops, id)
	} else if len(m.stops) > 0 {
		m.end = m.stops[0]
	}
	m.identity, err = identity(fsys)
	return m, err
}

// readConfigs reads what ends a text and the bounds of the model.
func (m *textModel) readConfigs(fsys fs.FS) error {
	m.limit = m.tokenizer.Size()
	for _, name := range []string{"config.json", "generation_config.json"} {
		raw, err := readFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var c struct {
			EOS        json.RawMessage `json:"eos_token_id"`
			Context    int             `json:"max_position_embeddings"`
			Vocabulary int             `json:"vocab_size"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &c)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		var one token.ID
		var many []token.ID
		if json.Unmarshal(c.EOS, &many) != nil && json.Unmarshal(c.EOS, &one) == nil {
			many = []token.ID{one}
		}
		if len(many) > 0 {
			m.stops = many
		}
		if c.Vocabulary > 0 {
			m.limit = c.Vocabulary
		}
		if c.Context > 0 {
			m.context = c.Context
		}
	}
	m.stops = slices.DeleteFunc(m.stops, func(id token.ID) bool { return id < 0 || int(id) >= m.limit })
	return nil
}

// identity is a hash of the files that decide the tokens.
func identity(fsys fs.FS) (string, error) {
	h := sha256.New()
	for _, name := range textFiles {
		raw, err := readFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(raw))
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxTextFile+1))
	if err == nil && len(raw) > maxTextFile {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxTextFile)
	}
	return raw, err
}
