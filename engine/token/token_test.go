package token_test

import (
	"fmt"
	"slices"
	"testing"

	"athanor/engine/token"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, tok, want string }{
		{"qwen2.5", "Ġthe", " the"}, {"qwen2.5", "ĉ", "\t"}, {"qwen2.5", "<|im_end|>", "<|im_end|>"},
		{"qwen2.5", "ðŁ", "\xf0\x9f"}, {"phi-3-mini", "▁the", " the"}, {"phi-3-mini", "<0xF0>", "\xf0"},
		{"phi-3-mini", "<s>", "<s>"}, {"clip", "the</w>", "the "}, {"t5-small", "▁the", " the"},
		{"bert-base-uncased", "##ing", "ing"}, {"bert-base-uncased", "the", " the"}, {"bert-base-uncased", "[SEP]", "[SEP]"},
	}
	for _, tt := range tests {
		tok := mustLoadDir(t, tt.name)
		id, ok := tok.ID(tt.tok)
		if got := string(tok.Bytes(id)); !ok || got != tt.want {
			t.Errorf("%s: bytes of %q are %q, want %q", tt.name, tt.tok, got, tt.want)
		}
	}
}

// TestBytesJoin: inside a text the bytes of the tokens are the text.
func TestBytesJoin(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gpt2", "qwen2.5", "falcon", "phi-3-mini", "whisper-tiny"} {
		tok := mustLoadDir(t, name)
		const text = "x Hello, wörld! 日本 🦙\n  def f(x):\n\treturn 12345"
		var joined []byte
		for _, id := range tok.Encode(text, token.EncodeOptions{}) {
			joined = append(joined, tok.Bytes(id)...)
		}
		if got := string(joined); got != text && got != " "+text {
			t.Errorf("%s: bytes join to %q, want %q", name, got, text)
		}
	}
}

func TestVocabulary(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		size     int
		bos, eos string
	}{
		{"gpt2", 50257, "<|endoftext|>", "<|endoftext|>"},
		{"qwen2.5", 151665, "", "<|im_end|>"},
		{"phi-3-mini", 32011, "<s>", "<|endoftext|>"},
		{"clip", 49408, "<|startoftext|>", "<|endoftext|>"},
		{"t5-small", 32100, "", "</s>"},
		{"whisper-tiny", 51865, "<|endoftext|>", "<|endoftext|>"},
	}
	for _, tt := range tests {
		tok := mustLoadDir(t, tt.name)
		if tok.Size() != tt.size {
			t.Errorf("%s: size %d, want %d", tt.name, tok.Size(), tt.size)
		}
		for _, c := range []struct {
			f    func() (token.ID, bool)
			want string
		}{{tok.BOS, tt.bos}, {tok.EOS, tt.eos}} {
			id, ok := c.f()
			got, _ := tok.Token(id)
			if ok != (c.want != "") || got != c.want || ok && !tok.IsControl(id) {
				t.Errorf("%s: %q (%v), want the control token %q", tt.name, got, ok, c.want)
			}
		}
		if _, ok := tok.Token(token.ID(tok.Size())); ok || tok.Bytes(-1) != nil || tok.IsSpecial(-1) {
			t.Errorf("%s: ids outside the vocabulary have tokens", tt.name)
		}
	}
}

func TestEncodePair(t *testing.T) {
	t.Parallel()
	tok := mustLoadDir(t, "bert-base-uncased")
	ids, types := tok.EncodePair("hello", "big world")
	if want := []token.ID{101, 7592, 102, 2502, 2088, 102}; !slices.Equal(ids, want) {
		t.Errorf("ids %v, want %v", ids, want)
	}
	if want := []token.ID{0, 0, 0, 1, 1, 1}; !slices.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
}

// TestBrokenUTF8 in the text and in the ids.
func TestBrokenUTF8(t *testing.T) {
	t.Parallel()
	gpt2, phi := mustLoadDir(t, "gpt2"), mustLoadDir(t, "phi-3-mini")
	ids := func(tok *token.Tokenizer, names ...string) (list []token.ID) {
		for _, n := range names {
			id, ok := tok.ID(n)
			if !ok {
				t.Fatalf("no token %q", n)
			}
			list = append(list, id)
		}
		return list
	}
	tests := []struct{ name, got, want string }{
		{"invalid text", gpt2.Decode(gpt2.Encode("a\xffb\xc3", token.EncodeOptions{}), false), "a\uFFFDb\uFFFD"},
		{"one for each broken part", gpt2.Decode(ids(gpt2, "ð", "Ł", "¦", "a", "Ģ", "Ģ"), false), "\uFFFDa\uFFFD\uFFFD"},
		{"one for each byte, the valid kept", phi.Decode(ids(phi, "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "▁x"), false), "é\uFFFD\uFFFD x"},
		{"surrogate", gpt2.Decode(ids(gpt2, "í", "ł", "Ģ"), false), "\uFFFD\uFFFD\uFFFD"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

// TestLongMarkRuns: normalization inserts nothing into long runs of marks,
// which libraries that keep to UAX #15's stream-safe format do.
func TestLongMarkRuns(t *testing.T) {
	t.Parallel()
	tok := mustLoadDir(t, "qwen2.5")
	var text string
	for range 100 {
		text += "\u0301\u0323"
	}
	got := tok.Decode(tok.Encode("a"+text, token.EncodeOptions{}), false)
	want := "\u1ea1"
	for range 99 {
		want += "\u0323"
	}
	for range 100 {
		want += "\u0301"
	}
	if got != want {
		t.Errorf("got %+q, want %+q", got, want)
	}
}

func ExampleTokenizer_EncodeSegments() {
	tok, err := token.Load([]byte(`{
		"added_tokens": [{"id": 4, "content": "<b>", "special": true}],
		"model": {"type": "BPE", "vocab": {"<": 0, "b": 1, ">": 2, "b>": 3}, "merges": ["b >"]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tok.EncodeSegments([]token.Segment{{Text: "<b>", Trusted: true}, {Text: "<b>"}}, false))
	// Output: [4 0 3]
}
