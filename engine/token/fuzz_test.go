package token_test

import (
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"athanor/engine/token"
)

// FuzzLoad: any file loads or is refused with one of the two errors, and what
// loads can encode and decode.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(tiny()))
	f.Add([]byte(tiny(`added_tokens=[{"id":4,"content":"<s>","lstrip":true,"rstrip":true,"single_word":true,"normalized":true,"special":true}]`,
		`normalizer={"type":"Sequence","normalizers":[{"type":"BertNormalizer"},{"type":"Replace","pattern":{"Regex":"\\s+"},"content":"x"}]}`,
		`pre_tokenizer={"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`,
		`decoder={"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]}`)))
	f.Add([]byte(tiny(`model={"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0.0],["a",-1.5],["<0x41>",-2.0]]}`,
		`pre_tokenizer={"type":"Metaspace","prepend_scheme":"first"}`, `decoder={"type":"Metaspace"}`)))
	f.Add([]byte(tiny(`model={"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"a":1,"##b":2}}`,
		`decoder={"type":"WordPiece"}`, `post_processor={"type":"BertProcessing","sep":["a",1],"cls":["b",0]}`)))
	f.Add([]byte(tiny(`model={"type":"BPE","vocab":{"a":0,"##b":1,"ab</w>":2,"##b</w>":3},"merges":[["a","##b</w>"]],"continuing_subword_prefix":"##","end_of_word_suffix":"</w>"}`,
		`decoder={"type":"BPEDecoder"}`)))
	f.Add([]byte(tiny(`normalizer={"type":"Precompiled","precompiled_charsmap":"CAAAAAD+/38A/v9/eAA="}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		tok, err := token.Load(data)
		if err != nil {
			if !errors.Is(err, token.ErrMalformed) && !errors.Is(err, token.ErrUnsupported) {
				t.Errorf("error of another kind: %v", err)
			}
			return
		}
		ids := tok.Encode("ab a<s>  é1\x00\xff", token.EncodeOptions{AddSpecial: true, ParseSpecial: true})
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Errorf("id %d of %d", id, tok.Size())
			}
		}
		_ = tok.Decode(ids, true)
	})
}

// FuzzText: on every kind of tokenizer, encoding keeps to the vocabulary,
// segments equal the whole, streaming equals decoding.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "Hello, world", " <|im_end|>", "é\xffｆﬁ", "a\u0301\u0323\r\n \t", "<0x0A>▁ ▁", "𝔘𝔫𝔦 日本 123'LL"} {
		f.Add(s, uint8(len(s)/2))
	}
	var toks []*token.Tokenizer
	for _, name := range []string{"qwen2.5", "phi-3-mini", "t5-small", "clip", "all-minilm-l6-v2", "falcon"} {
		toks = append(toks, mustLoadDir(f, name))
	}
	f.Fuzz(func(t *testing.T, s string, cut uint8) {
		k := min(int(cut), len(s))
		for _, tok := range toks {
			ids := tok.Encode(s, token.EncodeOptions{ParseSpecial: true})
			trusted := []token.Segment{{Text: s[:k], Trusted: true}, {Text: s[k:], Trusted: true}}
			if got := tok.EncodeSegments(trusted, false); !slices.Equal(got, ids) {
				t.Errorf("segments of %q\n got %v\nwant %v", s, got, ids)
			}
			plain := tok.Encode(s, token.EncodeOptions{})
			if got := tok.EncodeSegments([]token.Segment{{Text: s[:k]}, {Text: s[k:]}}, false); !slices.Equal(got, plain) {
				t.Errorf("untrusted segments of %q\n got %v\nwant %v", s, got, plain)
			}
			text := tok.Decode(ids, false)
			if !utf8.ValidString(text) {
				t.Errorf("%q decodes to %q", s, text)
			}
			if got := streamed(t, tok, ids, false); got != text {
				t.Errorf("stream of %v is %q, want %q", ids, got, text)
			}
		}
	})
}
