package token_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"athanor/engine/token"
)

// streamed decodes through a Stream and checks that no portion has a part of a
// character.
func streamed(t *testing.T, tok *token.Tokenizer, ids []token.ID, skip bool) string {
	t.Helper()
	var b strings.Builder
	s := tok.NewStream(skip)
	for _, id := range ids {
		part := s.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("Push(%d) of %v gave a part of a character: %q", id, ids, part)
		}
		b.WriteString(part)
	}
	b.WriteString(s.Flush())
	return b.String()
}

// TestStreamIsDecode: whatever the ids, the stream joins to the decoding.
func TestStreamIsDecode(t *testing.T) {
	t.Parallel()
	for _, name := range append([]string{"gpt2"}, vectorSets...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := mustLoadDir(t, name)
			rnd := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range 300 {
				ids := make([]token.ID, rnd.IntN(20))
				for i := range ids {
					ids[i] = token.ID(rnd.IntN(tok.Size()+2) - 1)
					if rnd.IntN(3) == 0 { // where the bytes are
						ids[i] = token.ID(rnd.IntN(300))
					}
				}
				for _, skip := range []bool{false, true} {
					want := tok.Decode(ids, skip)
					if !utf8.ValidString(want) {
						t.Fatalf("Decode(%v) is not UTF-8: %q", ids, want)
					}
					if got := streamed(t, tok, ids, skip); got != want {
						t.Fatalf("stream of %v\n got %q\nwant %q", ids, got, want)
					}
				}
			}
		})
	}
}

// TestStreamKeepsUp: a character comes out with its last byte, not later.
func TestStreamKeepsUp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"qwen2.5", "phi-3-mini", "gpt2"} {
		tok := mustLoadDir(t, name)
		const text = "a 🦙 日本 é"
		s := tok.NewStream(false)
		var got strings.Builder
		for _, id := range tok.Encode(text, token.EncodeOptions{}) {
			got.WriteString(s.Push(id))
		}
		if rest := s.Flush(); rest != "" || got.String() != text {
			t.Errorf("%s: streamed %q, left for the end %q", name, got.String(), rest)
		}
	}
}

// TestRoundTrip: byte-level and byte-fallback tokenizers lose nothing. (Falcon's
// vocabulary lacks some control bytes; qwen2.5 normalizes.)
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var g randomTexts
	mustReadJSON(t, "testdata/texts.json.gz", &g)
	for _, name := range []string{"gpt2", "whisper-tiny", "phi-3-mini"} {
		tok := mustLoadDir(t, name)
		for _, s := range g.Texts {
			if name == "phi-3-mini" && strings.ContainsAny(s, "▁<") {
				continue // ▁ is its space, and some of its tokens swallow the space behind them
			}
			if got := tok.Decode(tok.Encode(s, token.EncodeOptions{}), false); got != s {
				t.Errorf("%s: %q came back as %q", name, s, got)
			}
		}
	}
}

// TestUntrustedTextMakesNoControlToken on texts full of them.
func TestUntrustedTextMakesNoControlToken(t *testing.T) {
	t.Parallel()
	var g randomTexts
	mustReadJSON(t, "testdata/texts.json.gz", &g)
	lookalikes := []string{"＜/s＞", "<pad>", "</s>", " </s> ", "<|endoftext|>", "<|STARTOFTEXT|>", "[CLS]", "<unk>", ">>TITLE<<", "<|im_end|><|im_end|>"}
	for _, name := range append([]string{"gpt2"}, vectorSets...) {
		tok := mustLoadDir(t, name)
		for _, s := range append(lookalikes, g.Texts...) {
			ids := tok.Encode(s, token.EncodeOptions{})
			for _, id := range append(ids, tok.EncodeSegments([]token.Segment{{Text: s}}, false)...) {
				if w, _ := tok.Token(id); tok.IsControl(id) && w != "<unk>" && w != "[UNK]" {
					t.Errorf("%s: %q gave %q", name, s, w)
				}
			}
		}
	}
}

// TestConcurrentUse encodes the same texts from many goroutines; run with
// -race.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	tok := mustLoadDir(t, "all-minilm-l6-v2")
	bpe := mustLoadDir(t, "gpt2")
	var g randomTexts
	mustReadJSON(t, "testdata/texts.json.gz", &g)
	texts := g.Texts[:100]
	want := make([][]token.ID, len(texts))
	for i, s := range texts {
		want[i] = slices.Concat(tok.Encode(s, token.EncodeOptions{}), bpe.Encode(s, token.EncodeOptions{}))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, s := range texts {
				got := slices.Concat(tok.Encode(s, token.EncodeOptions{}), bpe.Encode(s, token.EncodeOptions{}))
				if !slices.Equal(got, want[i]) {
					t.Errorf("%q differs between goroutines", s)
				}
			}
		})
	}
	wg.Wait()
}
