package token_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"athanor/engine/token"
)

// tiny returns a tokenizer.json with the given fields over a small byte-level
// BPE.
func tiny(fields ...string) string {
	base := map[string]string{
		"model": `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}`,
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		base[name] = value
	}
	var parts []string
	for name, value := range base {
		parts = append(parts, fmt.Sprintf("%q:%s", name, value))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 1_000_000) + strings.Repeat("]}", 1_000_000)
	wide := `{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"Strip"},`, 99) + `{"type":"Strip"}]}`
	nested := strings.Repeat(`{"type":"Sequence","decoders":[`, 20) + `{"type":"Fuse"}` + strings.Repeat("]}", 20)
	grow := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", 4000) + `"}`
	tests := []struct {
		name, data string
		want       error
		word       string // the error names it
	}{
		{"empty", ``, token.ErrMalformed, "tokenizer.json"},
		{"not JSON", `PK\x03\x04`, token.ErrMalformed, "tokenizer.json"},
		{"no model", `{}`, token.ErrMalformed, "no model"},
		{"no vocab", tiny(`model={"type":"BPE","merges":[]}`), token.ErrMalformed, "vocab"},
		{"empty vocab", tiny(`model={"type":"BPE","vocab":{},"merges":[]}`), token.ErrMalformed, "empty"},
		{"no merges", tiny(`model={"type":"BPE","vocab":{"a":0}}`), token.ErrMalformed, "merges"},
		{"negative id", tiny(`model={"type":"BPE","vocab":{"a":-1},"merges":[]}`), token.ErrMalformed, "-1"},
		{"huge id", tiny(`model={"type":"BPE","vocab":{"a":2000000000},"merges":[]}`), token.ErrMalformed, "2000000000"},
		{"id beyond int32", tiny(`model={"type":"BPE","vocab":{"a":99999999999},"merges":[]}`), token.ErrMalformed, "vocab"},
		{"unknown merge", tiny(`model={"type":"BPE","vocab":{"a":0,"b":1},"merges":["a x"]}`), token.ErrMalformed, `"x"`},
		{"unknown merge result", tiny(`model={"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}`), token.ErrMalformed, `"ab"`},
		{"merge of one", tiny(`model={"type":"BPE","vocab":{"a":0,"b":1},"merges":["ab"]}`), token.ErrMalformed, "merges[0]"},
		{"merge of nothing", tiny(`model={"type":"BPE","vocab":{"":0,"a":1},"merges":[["","a"]]}`), token.ErrMalformed, "empty"},
		{"dropout", tiny(`model={"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}`), token.ErrUnsupported, "dropout"},
		{"unk not in vocab", tiny(`model={"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}`), token.ErrMalformed, `"?"`},
		{"unk id outside", tiny(`model={"type":"Unigram","unk_id":7,"vocab":[["a",-1.0]]}`), token.ErrMalformed, "7"},
		{"unigram of names", tiny(`model={"type":"Unigram","vocab":["a"]}`), token.ErrMalformed, "vocab[0]"},
		{"wordpiece without unk", tiny(`model={"type":"WordPiece","vocab":{"a":0}}`), token.ErrMalformed, "unk_token"},
		{"model type", tiny(`model={"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}`), token.ErrUnsupported, "WordLevel"},
		{"normalizer type", tiny(`normalizer={"type":"Rot13"}`), token.ErrUnsupported, "Rot13"},
		{"no type", tiny(`normalizer={}`), token.ErrMalformed, "type"},
		{"pre-tokenizer type", tiny(`pre_tokenizer={"type":"UnicodeScripts"}`), token.ErrUnsupported, "UnicodeScripts"},
		{"decoder type", tiny(`decoder={"type":"CTC"}`), token.ErrUnsupported, "CTC"},
		{"post-processor type", tiny(`post_processor={"type":"X"}`), token.ErrUnsupported, `"X"`},
		{"template id outside", tiny(`post_processor={"type":"BertProcessing","sep":["a",99],"cls":["a",0]}`), token.ErrMalformed, "99"},
		{"template id negative", tiny(`post_processor={"type":"RobertaProcessing","sep":["a",0],"cls":["a",-5]}`), token.ErrMalformed, "-5"},
		{"template unknown", tiny(`post_processor={"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}}],"special_tokens":{}}`), token.ErrMalformed, "<s>"},
		{"behavior", tiny(`pre_tokenizer={"type":"Split","pattern":{"String":"a"},"behavior":"Sideways","invert":false}`), token.ErrMalformed, "Sideways"},
		{"bad regex", tiny(`pre_tokenizer={"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false}`), token.ErrUnsupported, "(a"},
		{"class intersection", tiny(`pre_tokenizer={"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated","invert":false}`), token.ErrUnsupported, "&&"},
		{"two patterns", tiny(`pre_tokenizer={"type":"Split","pattern":{"Regex":"a","String":"a"},"behavior":"Isolated"}`), token.ErrMalformed, "exactly one"},
		{"deep", tiny("normalizer=" + deep), token.ErrMalformed, "tokenizer.json"},
		{"nested", tiny("decoder=" + nested), token.ErrMalformed, "nested"},
		{"wide", tiny("normalizer=" + wide), token.ErrMalformed, "components"},
		{"growth", tiny(`normalizer={"type":"Sequence","normalizers":[` + grow + "," + grow + "]}"), token.ErrMalformed, "grow"},
		{"charsmap short", tiny(`normalizer={"type":"Precompiled","precompiled_charsmap":"AAA="}`), token.ErrMalformed, "charsmap"},
		{"charsmap size", tiny(`normalizer={"type":"Precompiled","precompiled_charsmap":"/////wAAAAA="}`), token.ErrMalformed, "charsmap"},
		{"added id negative", tiny(`added_tokens=[{"id":-3,"content":"<x>"}]`), token.ErrMalformed, "-3"},
		{"added id huge", tiny(`added_tokens=[{"id":1000000000,"content":"<x>"}]`), token.ErrMalformed, "1000000000"},
		{"added id taken", tiny(`added_tokens=[{"id":1,"content":"<x>"}]`), token.ErrMalformed, `"b"`},
		{"added long", tiny(`added_tokens=[{"id":9,"content":"` + strings.Repeat("x", 5000) + `"}]`), token.ErrMalformed, "5000"},
		{"lone surrogate", tiny(`added_tokens=[{"id":9,"content":"\ud800"}]`), token.ErrMalformed, "tokenizer.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := token.Load([]byte(tt.data))
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want one that wraps %q", err, tt.want)
			}
			if !strings.Contains(err.Error(), tt.word) {
				t.Errorf("error %q does not name %q", err, tt.word)
			}
		})
	}
}

// TestHostileCharsmap: offsets that lead outside the trie end the search.
func TestHostileCharsmap(t *testing.T) {
	t.Parallel()
	// Two units, the root pointing far away; then the blob "x\0".
	tok := mustLoad(t, tiny(`normalizer={"type":"Precompiled","precompiled_charsmap":"CAAAAAD+/38A/v9/eAA="}`))
	if got := tok.Encode("ab", token.EncodeOptions{}); !slices.Equal(got, []token.ID{2}) {
		t.Errorf("got %v, want [2]", got)
	}
}

// TestRegexTimeout: a pattern that backtracks without end costs bounded time.
func TestRegexTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the time limit of the pattern")
	}
	t.Parallel()
	tok := mustLoad(t, tiny(`pre_tokenizer={"type":"Split","pattern":{"Regex":"(a+)+(?=c)"},"behavior":"Isolated","invert":false}`))
	if got := tok.Encode(strings.Repeat("a", 60)+"b", token.EncodeOptions{}); len(got) != 60 {
		t.Errorf("%d ids, want 60: the text in one piece", len(got))
	}
}

func TestLoadDir(t *testing.T) {
	t.Parallel()
	vocab := []byte(`{"a":0,"b":1,"ab":2,"Ġ":3,"<|endoftext|>":4}`)
	merges := []byte("#version: 0.2\na b\n")
	file := func(b []byte) *fstest.MapFile { return &fstest.MapFile{Data: b} }
	cfg := func(s string) *fstest.MapFile { return file([]byte(s)) }
	tests := []struct {
		name  string
		files fstest.MapFS
		text  string
		want  []token.ID
		err   error
		word  string
	}{
		{name: "gpt2 files", files: fstest.MapFS{"vocab.json": file(vocab), "merges.txt": file(merges)},
			text: "ab a<|endoftext|>", want: []token.ID{2, 3, 0, 4}},
		{name: "qwen2 files", files: fstest.MapFS{"vocab.json": file(vocab), "merges.txt": file(merges),
			"tokenizer_config.json": cfg(`{"tokenizer_class":"Qwen2TokenizerFast","eos_token":"<|im_end|>",
				"added_tokens_decoder":{"5":{"content":"<|im_end|>","special":true}}}`)},
			text: "ab<|im_end|>", want: []token.ID{2, 5}},
		{name: "other class", files: fstest.MapFS{"vocab.json": file(vocab), "merges.txt": file(merges),
			"tokenizer_config.json": cfg(`{"tokenizer_class":"XyzTokenizer"}`)}, err: token.ErrUnsupported, word: "XyzTokenizer"},
		{name: "bos and eos where the template is silent", files: fstest.MapFS{
			"tokenizer.json":        cfg(tiny(`added_tokens=[{"id":4,"content":"<s>","special":true}]`)),
			"tokenizer_config.json": cfg(`{"add_bos_token":true,"bos_token":{"content":"<s>"},"add_eos_token":true,"eos_token":"<s>"}`)},
			text: "ab", want: []token.ID{4, 2, 4}},
		{name: "the template speaks", files: fstest.MapFS{
			"tokenizer.json": cfg(tiny(`added_tokens=[{"id":4,"content":"<s>","special":true}]`,
				`post_processor={"type":"BertProcessing","cls":["<s>",4],"sep":["<s>",4]}`)),
			"tokenizer_config.json": cfg(`{"add_bos_token":true,"bos_token":"<s>"}`)},
			text: "ab", want: []token.ID{4, 2, 4}},
		{name: "names from the map", files: fstest.MapFS{
			"tokenizer.json":          cfg(tiny(`added_tokens=[{"id":4,"content":"<s>","special":true}]`)),
			"tokenizer_config.json":   cfg(`{"add_bos_token":true}`),
			"special_tokens_map.json": cfg(`{"bos_token":"<s>"}`)},
			text: "ab", want: []token.ID{4, 2}},
		{name: "a character that pads is still text", files: fstest.MapFS{"tokenizer.json": cfg(tiny()),
			"tokenizer_config.json": cfg(`{"pad_token":"b"}`)}, text: "ab", want: []token.ID{2}},
		{name: "nothing", files: fstest.MapFS{"config.json": cfg("{}")}, err: token.ErrNoTokenizer, word: "vocab.json with merges.txt"},
		{name: "sentencepiece", files: fstest.MapFS{"tokenizer.model": cfg("x")}, err: token.ErrNoTokenizer, word: "tokenizer.model"},
		{name: "half", files: fstest.MapFS{"vocab.json": file(vocab)}, err: token.ErrNoTokenizer, word: "there is vocab.json"},
		{name: "bad merges", files: fstest.MapFS{"vocab.json": file(vocab), "merges.txt": cfg("a b\nabc\n")}, err: token.ErrMalformed, word: "line 2"},
		{name: "bad config", files: fstest.MapFS{"tokenizer.json": cfg(tiny()), "tokenizer_config.json": cfg("{")}, err: token.ErrMalformed, word: "tokenizer_config.json"},
		{name: "bad key", files: fstest.MapFS{"tokenizer.json": cfg(tiny()),
			"tokenizer_config.json": cfg(`{"added_tokens_decoder":{"x":{"content":"<y>"}}}`)}, err: token.ErrMalformed, word: "<y>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tok, err := token.LoadDir(tt.files)
			if !errors.Is(err, tt.err) || err != nil && !strings.Contains(err.Error(), tt.word) {
				t.Fatalf("error %v, want %v that names %q", err, tt.err, tt.word)
			}
			if err != nil {
				return
			}
			if got := tok.Encode(tt.text, token.EncodeOptions{AddSpecial: true, ParseSpecial: true}); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
