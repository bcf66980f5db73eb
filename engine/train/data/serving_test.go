package data_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"athanor/engine/prompt"
	"athanor/engine/token"
	"athanor/engine/train/data"
)

// realModel is a real tokenizer of ../shared with a real template.
func realModel(tb testing.TB, tokenizer, template string) fs.FS {
	tb.Helper()
	dir := filepath.Join("..", "..", "..", "..", "shared", "tokenizers", tokenizer)
	out := fstest.MapFS{"chat_template.jinja": {Data: []byte(sharedTemplate(tb, template))}}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			tb.Skipf("reference files are not here: %v", err)
		}
		out[name] = &fstest.MapFile{Data: b}
	}
	return out
}

// TestPromptsAreThoseOfServing: the tokens before an answer are, one by one, those
// that a served model has read when it is asked for it, and the answer decodes to what
// the message says.
func TestPromptsAreThoseOfServing(t *testing.T) {
	t.Parallel()
	known := models(t)
	known["real Qwen 3"] = realModel(t, "qwen2.5", "qwen3")
	known["real Phi 3"] = realModel(t, "phi-3-mini", "phi-3.5")
	const first = `{"role":"user","content":"Wie heißt du, 你叫什么?  \n"}`
	const second = `{"role":"assistant","content":"Ich heiße  Ähre.\n\n1. 🦙"}`
	const third = `{"role":"user","content":" and\tnow <|im_end|>?"}`
	const fourth = `{"role":"assistant","content":"It's 12345 o'clock…"}`
	for name, model := range known {
		switch name {
		case "none", "rewriting": // no template, and one that cannot be followed
			continue
		case "deepseek", "generation": // one asks with a thought, the other with nothing
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := data.NewEncoder(model, data.EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Line([]byte(chat(first, second, third, fourth)))
			if err != nil {
				t.Fatal(err)
			}
			s := got.Samples[0]
			tok := mustTokenizer(t, model)
			prompt := served(t, model, tok, first, second, third, fourth)
			for n, said := range map[int]string{1: "Ich heiße  Ähre.\n\n1. 🦙", 3: "It's 12345 o'clock…"} {
				want := prompt(n)
				if len(want) >= len(s.Tokens) || !slices.Equal(s.Tokens[:len(want)], want) {
					t.Fatalf("the prompt of message %d:\ngot  %v\nwant %v", n, s.Tokens, want)
				}
				if s.Weights[len(want)-1] != 0 || s.Weights[len(want)] != 1 {
					t.Errorf("the answer %d does not begin where its prompt ends", n)
				}
				end := len(want)
				for end < len(s.Tokens) && s.Weights[end] > 0 {
					end++
				}
				if text := tok.Decode(s.Tokens[len(want):end], true); !containsTrimmed(text, said) {
					t.Errorf("answer %d is %q, the message says %q", n, text, said)
				}
			}
		})
	}
}

// served returns the tokens of the prompts that ask for an answer to the first n
// messages.
func served(tb testing.TB, model fs.FS, tok *token.Tokenizer, messages ...string) func(n int) []int32 {
	tb.Helper()
	tmpl, err := prompt.Load(model)
	if err != nil {
		tb.Fatal(err)
	}
	return func(n int) []int32 {
		in := prompt.Input{AddGenerationPrompt: true, Now: time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)}
		if id, ok := tok.BOS(); ok {
			in.BOS, _ = tok.Token(id)
		}
		if id, ok := tok.EOS(); ok {
			in.EOS, _ = tok.Token(id)
		}
		for _, m := range messages[:n] {
			msg, err := prompt.NewMessage(json.RawMessage(m))
			if err != nil {
				tb.Fatal(err)
			}
			in.Messages = append(in.Messages, msg)
		}
		out, err := tmpl.Render(in)
		if err != nil {
			tb.Fatal(err)
		}
		var segments []token.Segment
		for _, s := range out.Segments {
			segments = append(segments, token.Segment{Text: s.Text, Trusted: s.Trusted})
		}
		return tok.EncodeSegments(segments, false)
	}
}

// containsTrimmed compares without the white space at the ends, which templates take
// off or put on.
func containsTrimmed(text, said string) bool {
	return strings.Contains(strings.TrimSpace(text), strings.TrimSpace(said))
}
