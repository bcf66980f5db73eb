package token

import (
	"slices"
	"unicode/utf8"
)

// build assembles a tokenizer from its parts.
func build(spec *modelSpec, f *file, cfg *config) (*Tokenizer, error) {
	if err := spec.checkVocab(); err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: spec.vocab, ids: map[string]ID{}, controls: map[ID]bool{}, bos: -1, eos: -1}
	added, err := t.addTokens(f.Added, cfg)
	if err != nil {
		return nil, err
	}
	if err := t.compile(spec, f, added); err != nil {
		return nil, err
	}
	t.bos, t.eos = t.named(cfg.BOS.Content), t.named(cfg.EOS.Content)
	if t.template.silent() {
		t.template = t.surround(cfg)
	}
	return t, t.template.checkIDs(len(t.tokens))
}

// surround is the post-processor that the configuration asks for where the
// file has none.
func (t *Tokenizer) surround(cfg *config) template {
	tmpl := template{slices.Clone(t.template.single), slices.Clone(t.template.pair)}
	if cfg.AddBOS && t.bos >= 0 {
		bos := templatePart{ids: []ID{t.bos}}
		tmpl.single = slices.Insert(tmpl.single, 0, bos)
		tmpl.pair = slices.Insert(tmpl.pair, 0, bos)
	}
	if cfg.AddEOS && t.eos >= 0 {
		eos := templatePart{ids: []ID{t.eos}}
		tmpl.single = append(tmpl.single, eos)
		tmpl.pair = append(tmpl.pair, eos)
	}
	return tmpl
}

func (t *Tokenizer) named(tok string) ID {
	if tok == "" {
		return -1
	}
	if id, ok := t.ID(tok); ok {
		return id
	}
	return -1
}

// compile turns the components into code.
func (t *Tokenizer) compile(spec *modelSpec, f *file, added []addedToken) error {
	var parts [4]component
	for i, p := range []struct {
		room string
		raw  []byte
	}{{"normalizer", f.Normalizer}, {"pre_tokenizer", f.PreTokenizer}, {"post_processor", f.PostProcessor}, {"decoder", f.Decoder}} {
		var err error
		if parts[i], err = parseComponent(p.room, p.raw); err != nil {
			return err
		}
	}
	var err error
	if t.normalizers, err = compileNormalizer(parts[0]); err != nil {
		return err
	}
	pre, err := compilePreTokenizer(parts[1])
	if err != nil {
		return err
	}
	byteLevel := false
	t.preTokenizers, byteLevel = pre.forModel(spec)
	if t.template, err = compilePostProcessor(parts[2]); err != nil {
		return err
	}
	if t.decoder, err = compileDecoder(parts[3], spec.suffix); err != nil {
		return err
	}
	t.compileAdded(added)
	t.model, err = compileModel(spec, t.controls, byteLevel)
	return err
}

// compileAdded sorts the added tokens by where they are looked for. Those that
// are looked for in normalized text are normalized themselves.
func (t *Tokenizer) compileAdded(added []addedToken) {
	var raw, normalized []addedToken
	for _, a := range added {
		a.control = t.controls[a.ID]
		if a.Normalized {
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	t.raw = newSegmenter(raw, func(s string) string { return s })
	t.normalized = newSegmenter(normalized, func(s string) string { return t.normalizers.apply(text{s: s}).s })
}

// addTokens gives every token its place and returns the added ones.
func (t *Tokenizer) addTokens(list []addedToken, cfg *config) ([]addedToken, error) {
	size := ID(0)
	for _, id := range t.vocab {
		size = max(size, id+1)
	}
	t.grow(size)
	for tok, id := range t.vocab {
		t.tokens[id], t.present[id] = tok, true
	}
	set := addedSet{t: t, byContent: map[string]int{}}
	for i, a := range list {
		if err := set.add(a, false); err != nil {
			return nil, malformed("added_tokens[%d]: %v", i, err)
		}
	}
	for _, a := range cfg.added() {
		if err := set.add(a, true); err != nil {
			return nil, malformed("tokenizer_config.json: added_tokens_decoder: %v", err)
		}
	}
	set.name(cfg.specials())
	for _, a := range set.list {
		t.tokens[a.ID], t.present[a.ID] = a.Content, true
		t.special[a.ID] = a.Special
		// Some files leave the flag off the tokens that every model of the
		// SentencePiece line is trained to stop or start at.
		if a.Special || a.Content == "<s>" || a.Content == "</s>" {
			t.control(a)
		}
	}
	return set.list, nil
}

// control marks a token as one that steers. A single character never does, even
// where a file flags it (a model that pads with "!"): it has to stay text.
func (t *Tokenizer) control(a addedToken) {
	if utf8.RuneCountInString(a.Content) > 1 {
		t.controls[a.ID] = true
	}
}

func (t *Tokenizer) grow(size ID) {
	if n := int(size) - len(t.tokens); n > 0 {
		t.tokens = append(t.tokens, make([]string, n)...)
		t.present = append(t.present, make([]bool, n)...)
		t.special = append(t.special, make([]bool, n)...)
	}
}
