package token

import "github.com/go-json-experiment/json/jsontext"

// maxTemplate bounds the parts of a template; published ones have up to 8.
const maxTemplate = 256

// template is a compiled post-processor: what stands around a text, or around
// a pair of texts.
type template struct {
	single, pair []templatePart
}

// templatePart is a special token's ids, or the place of a text.
type templatePart struct {
	ids    []ID
	text   int // 0: ids; 1: the first text; 2: the second
	typeID ID
}

// plainTemplate adds nothing.
var plainTemplate = template{
	single: []templatePart{{text: 1}},
	pair:   []templatePart{{text: 1}, {text: 2, typeID: 1}},
}

// silent reports that no special token is added to a single text.
func (t template) silent() bool {
	for _, p := range t.single {
		if p.text == 0 && len(p.ids) > 0 {
			return false
		}
	}
	return true
}

func (t template) apply(a []ID) []ID {
	var out []ID
	for _, p := range t.single {
		if p.text == 1 {
			out = append(out, a...)
		} else {
			out = append(out, p.ids...)
		}
	}
	return out
}

func (t template) applyPair(a, b []ID) (ids, types []ID) {
	for _, p := range t.pair {
		part := p.ids
		switch p.text {
		case 1:
			part = a
		case 2:
			part = b
		}
		ids = append(ids, part...)
		for range part {
			types = append(types, p.typeID)
		}
	}
	return ids, types
}

func compilePostProcessor(c component) (template, error) {
	t, found := plainTemplate, false
	err := c.flatten("post_processor", "processors", func(c component) error {
		if c.kind == "ByteLevel" {
			return nil // only about offsets
		}
		if found {
			return unsupported("%s: a second post-processor (%s)", c.room, c.kind)
		}
		found = true
		var err error
		t, err = compileTemplate(c)
		return err
	})
	return t, err
}

func compileTemplate(c component) (template, error) {
	switch c.kind {
	case "TemplateProcessing":
		return compileTemplateProcessing(c)
	case "BertProcessing", "RobertaProcessing":
		return compileClsSep(c)
	}
	return template{}, unsupported("post_processor %q", c.kind)
}

// compileClsSep is [CLS] a [SEP], and for a pair b [SEP] behind it; RoBERTa
// puts a second separator between the two and knows no types.
func compileClsSep(c component) (template, error) {
	var o struct{ Sep, Cls [2]jsontext.Value }
	if err := c.options(&o); err != nil {
		return template{}, err
	}
	var ids [2]ID
	for i, pair := range [2][2]jsontext.Value{o.Cls, o.Sep} {
		if err := decodeJSON(pair[1], &ids[i]); err != nil {
			return template{}, malformed("%s %s: token id: %v", c.room, c.kind, err)
		}
	}
	cls, sep := templatePart{ids: ids[:1]}, templatePart{ids: ids[1:]}
	t := template{single: []templatePart{cls, {text: 1}, sep}}
	if c.kind == "RobertaProcessing" {
		t.pair = []templatePart{cls, {text: 1}, sep, sep, {text: 2}, sep}
		return t, nil
	}
	last := sep
	last.typeID = 1
	t.pair = []templatePart{cls, {text: 1}, sep, {text: 2, typeID: 1}, last}
	return t, nil
}

type templatePiece struct {
	SpecialToken *templateRef `json:"SpecialToken"`
	Sequence     *templateRef `json:"Sequence"`
}

type templateRef struct {
	ID     string `json:"id"`
	TypeID ID     `json:"type_id"`
}

func compileTemplateProcessing(c component) (template, error) {
	var o struct {
		Single, Pair []templatePiece
		Special      map[string]struct{ IDs []ID } `json:"special_tokens"`
	}
	if err := c.options(&o); err != nil {
		return template{}, err
	}
	compile := func(pieces []templatePiece) (parts []templatePart, err error) {
		if len(pieces) > maxTemplate {
			return nil, malformed("%s: template of %d parts, at most %d", c.room, len(pieces), maxTemplate)
		}
		for _, p := range pieces {
			switch {
			case p.Sequence != nil && (p.Sequence.ID == "A" || p.Sequence.ID == "B"):
				parts = append(parts, templatePart{text: 1 + index(p.Sequence.ID == "B"), typeID: p.Sequence.TypeID})
			case p.SpecialToken != nil:
				special, ok := o.Special[p.SpecialToken.ID]
				if !ok || len(special.IDs) > maxTemplate {
					return nil, malformed("%s: template names %q, which special_tokens lacks", c.room, p.SpecialToken.ID)
				}
				parts = append(parts, templatePart{ids: special.IDs, typeID: p.SpecialToken.TypeID})
			default:
				return nil, malformed("%s: a part is neither a special token nor sequence A or B", c.room)
			}
		}
		return parts, nil
	}
	single, err := compile(o.Single)
	if err != nil {
		return template{}, err
	}
	if o.Pair == nil {
		return template{single, plainTemplate.pair}, nil
	}
	pair, err := compile(o.Pair)
	return template{single, pair}, err
}

// checkIDs refuses ids outside the vocabulary.
func (t template) checkIDs(size int) error {
	for _, parts := range [][]templatePart{t.single, t.pair} {
		for _, p := range parts {
			for _, id := range p.ids {
				if id < 0 || int(id) >= size {
					return malformed("post_processor: token id %d of a vocabulary of %d", id, size)
				}
			}
		}
	}
	return nil
}
