package token

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// maxConfig bounds the JSON files beside the tokenizer.
const maxConfig = 16 << 20

// config is what tokenizer_config.json and special_tokens_map.json say about a
// tokenizer.
type config struct {
	Class          string                `json:"tokenizer_class"`
	BOS            tokenName             `json:"bos_token"`
	EOS            tokenName             `json:"eos_token"`
	UNK            tokenName             `json:"unk_token"`
	PAD            tokenName             `json:"pad_token"`
	CLS            tokenName             `json:"cls_token"`
	SEP            tokenName             `json:"sep_token"`
	Mask           tokenName             `json:"mask_token"`
	Additional     []tokenName           `json:"additional_special_tokens"`
	AddBOS         bool                  `json:"add_bos_token"`
	AddEOS         bool                  `json:"add_eos_token"`
	AddPrefixSpace bool                  `json:"add_prefix_space"`
	Decoder        map[string]addedToken `json:"added_tokens_decoder"`
}

// tokenName is a token by its content: a string, {"content": …} or null.
type tokenName struct{ Content string }

// UnmarshalJSON reads any of the three spellings.
func (n *tokenName) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == '"':
		return json.Unmarshal(b, &n.Content)
	case len(b) > 0 && b[0] == '{':
		var o struct{ Content string }
		err := json.Unmarshal(b, &o, fieldOptions)
		n.Content = o.Content
		return err
	}
	return nil
}

// fill takes the names that c lacks from d.
func (c *config) fill(d *config) {
	for _, p := range [][2]*tokenName{{&c.BOS, &d.BOS}, {&c.EOS, &d.EOS}, {&c.UNK, &d.UNK}, {&c.PAD, &d.PAD},
		{&c.CLS, &d.CLS}, {&c.SEP, &d.SEP}, {&c.Mask, &d.Mask}} {
		if p[0].Content == "" {
			*p[0] = *p[1]
		}
	}
	if c.Additional == nil {
		c.Additional = d.Additional
	}
}

// specials lists the tokens that the configuration names.
func (c *config) specials() []string {
	var names []string
	for _, n := range append([]tokenName{c.BOS, c.EOS, c.UNK, c.PAD, c.CLS, c.SEP, c.Mask}, c.Additional...) {
		if n.Content != "" {
			names = append(names, n.Content)
		}
	}
	return names
}

// added lists added_tokens_decoder by id.
func (c *config) added() []addedToken {
	list := make([]addedToken, 0, len(c.Decoder))
	for key, a := range c.Decoder {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			id = -1 // refused later, with the token's name
		}
		a.ID = ID(id)
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b addedToken) int {
		if a.ID != b.ID {
			return int(a.ID) - int(b.ID)
		}
		return strings.Compare(a.Content, b.Content)
	})
	return list
}

// LoadDir reads the tokenizer of a model directory: tokenizer.json, else
// vocab.json with merges.txt (byte-level BPE of the GPT-2 and Qwen2 classes),
// and what tokenizer_config.json and special_tokens_map.json add: flags of
// added tokens, the names of BOS and EOS, and whether to add them where the
// post-processor adds nothing.
func LoadDir(fsys fs.FS) (*Tokenizer, error) {
	cfg, err := readConfig(fsys)
	if err != nil {
		return nil, err
	}
	data, err := readFile(fsys, "tokenizer.json", maxFile)
	if err == nil {
		return load(data, cfg)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	vocab, err := readFile(fsys, "vocab.json", maxFile)
	if err == nil {
		var merges []byte
		if merges, err = readFile(fsys, "merges.txt", maxFile); err == nil {
			return loadVocabAndMerges(vocab, merges, cfg)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, noTokenizer(fsys)
}

// noTokenizer says what was looked for, and what is there instead.
func noTokenizer(fsys fs.FS) error {
	var there []string
	for _, pattern := range []string{"*.model", "vocab.txt", "vocab.json", "merges.txt", "*.tiktoken"} {
		found, _ := fs.Glob(fsys, pattern)
		there = append(there, found...)
	}
	note := ""
	if len(there) > 0 {
		note = fmt.Sprintf(" (there is %s, which alone cannot be read; convert it to tokenizer.json)", strings.Join(there, ", "))
	}
	return fmt.Errorf("looked for tokenizer.json, then vocab.json with merges.txt%s: %w", note, ErrNoTokenizer)
}

func readConfig(fsys fs.FS) (*config, error) {
	cfg, names := &config{}, &config{}
	for name, into := range map[string]*config{"tokenizer_config.json": cfg, "special_tokens_map.json": names} {
		data, err := readFile(fsys, name, maxConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := decodeJSON(data, into); err != nil {
			return nil, malformed("%s: %v", name, err)
		}
	}
	cfg.fill(names)
	return cfg, nil
}

// readFile reads a file of at most limit bytes.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open tokenizer file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, malformed("%s: more than %d bytes", name, limit)
	}
	return data, nil
}
