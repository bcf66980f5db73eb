package token_test

import (
	"slices"
	"testing"

	"athanor/engine/token"
)

// TestEncodeParts: classes follow the text through every kind of tokenizer, and
// only borders between classes change the tokens.
func TestEncodeParts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"qwen2.5", "phi-3-mini", "t5-small", "bert-base-uncased", "clip", "falcon"} {
		tok := mustLoadDir(t, name)
		for _, s := range []string{"Hello, how are you?", "é e\u0301 ﬁ \n\n x", "<|im_start|>user\nhi<|im_end|>\n<|end|>  y", "日本 12345", ""} {
			want := tok.EncodeSegments([]token.Segment{{s, true}}, false)
			var parts []token.Part
			for _, r := range s {
				parts = append(parts, token.Part{Text: string(r), Trusted: true, Class: 7})
			}
			got, classes := tok.EncodeParts(parts)
			if !slices.Equal(got, want) {
				t.Errorf("%s %q: one class: got %v, want %v", name, s, got, want)
			}
			if len(classes) != len(got) || slices.ContainsFunc(classes, func(c uint8) bool { return c != 7 }) {
				t.Errorf("%s %q: classes %v of %d tokens", name, s, classes, len(got))
			}
		}
	}
}

func TestEncodePartsBorders(t *testing.T) {
	t.Parallel()
	tok := mustLoadDir(t, "qwen2.5")
	id := func(s string) token.ID {
		id, ok := tok.ID(s)
		if !ok {
			t.Fatalf("no token %q", s)
		}
		return id
	}
	newline, end := tok.Encode("\n", token.EncodeOptions{})[0], id("<|im_end|>")
	got, classes := tok.EncodeParts([]token.Part{
		{"<|im_start|>assistant\n", true, 0}, {"\n\nHello<|im_end|>", false, 1}, {"<|im_end|>", true, 1}, {"\n", true, 0},
	})
	hello := tok.Encode("\n\nHello<|im_end|>", token.EncodeOptions{})
	want := slices.Concat([]token.ID{id("<|im_start|>"), id("assistant"), newline}, hello, []token.ID{end, newline})
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	wantClasses := slices.Concat([]uint8{0, 0, 0}, slices.Repeat([]uint8{1}, len(hello)+1), []uint8{0})
	if !slices.Equal(classes, wantClasses) {
		t.Errorf("got classes %v, want %v", classes, wantClasses)
	}
	if n := slices.Index(hello, end); n >= 0 {
		t.Error("data made a control token")
	}
}

// TestSurround: what Surround says is what AddSpecial adds.
func TestSurround(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"qwen2.5", "phi-3-mini", "t5-small", "bert-base-uncased", "clip"} {
		tok := mustLoadDir(t, name)
		before, after := tok.Surround()
		plain, full := tok.Encode("a b", token.EncodeOptions{}), tok.Encode("a b", token.EncodeOptions{AddSpecial: true})
		if got := slices.Concat(before, plain, after); !slices.Equal(got, full) {
			t.Errorf("%s: got %v, want %v", name, got, full)
		}
	}
}
