package token_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"athanor/engine/token"
)

type vector struct {
	Text           string     `json:"text"`
	IDs            []token.ID `json:"ids"`
	IDsWithSpecial []token.ID `json:"ids_with_special"`
	Decoded        string     `json:"decoded"`
}

// quirk is a vector whose oracle (JavaScript) contradicts the rules that a
// tokenizer.json stands for (Rust); ids are those of the Rust library 0.22.2.
type quirk struct {
	name, text string
	ids        []token.ID
	reason     string
}

var quirks = []quirk{{
	name: "clip", text: "\x00\u200b\ufeff odd", ids: []token.ID{188, 17086, 171, 119, 379, 11387},
	reason: `\s of a JavaScript pattern holds U+FEFF, so that the oracle splits before it; in Oniguruma and in the Unicode White_Space property it is no space`,
}}

var vectorSets = []string{
	"all-minilm-l6-v2", "bert-base-uncased", "clip", "falcon", "phi-3-mini", "qwen2.5", "t5-small", "whisper-tiny",
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, name := range vectorSets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file struct{ Cases []vector }
			mustReadJSON(t, shared(t, "tokenizers", name, "vectors.json"), &file)
			tok := mustLoadDir(t, name)
			if len(file.Cases) < 60 {
				t.Fatalf("%d cases, want 60 or more", len(file.Cases))
			}
			for _, c := range file.Cases {
				checkVector(t, tok, name, c)
			}
		})
	}
}

func checkVector(t *testing.T, tok *token.Tokenizer, name string, c vector) {
	t.Helper()
	want, special := c.IDs, c.IDsWithSpecial
	for _, q := range quirks {
		if q.name == name && q.text == c.Text {
			if slices.Equal(q.ids, c.IDs) {
				t.Errorf("%q: the quirk is gone, take it off the list", c.Text)
			}
			special = slices.Concat(special[:1], q.ids, special[len(special)-1:])
			want = q.ids
		}
	}
	if got := tok.Encode(c.Text, token.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want) {
		t.Errorf("encode %q\n got %v\nwant %v", c.Text, got, want)
	}
	if got := tok.Encode(c.Text, token.EncodeOptions{ParseSpecial: true, AddSpecial: true}); !slices.Equal(got, special) {
		t.Errorf("encode with special %q\n got %v\nwant %v", c.Text, got, special)
	}
	if got := tok.Decode(c.IDs, false); got != c.Decoded {
		t.Errorf("decode %v\n got %q\nwant %q", c.IDs, got, c.Decoded)
	}
}

// The vectors of llama.cpp, and the tokenizers that they were made with.
var llamaSets = map[string]string{
	"gpt-2": "gpt2", "qwen2": "qwen2.5", "phi-3": "phi-3-mini", "falcon": "falcon", "bert-bge": "bert-base-uncased",
}

func TestLlamaCPPVectors(t *testing.T) {
	t.Parallel()
	for set, name := range llamaSets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			tok := mustLoadDir(t, name)
			texts, ids := mustReadLlamaVectors(t, set)
			for i, s := range texts {
				if got := tok.Encode(s, token.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, ids[i]) {
					t.Errorf("encode %q\n got %v\nwant %v", s, got, ids[i])
				}
			}
		})
	}
}

func mustReadLlamaVectors(t *testing.T, set string) (texts []string, ids [][]token.ID) {
	t.Helper()
	dir := shared(t, "tokenizers", "llama.cpp-vectors")
	in, err := os.ReadFile(filepath.Join(dir, set+".inp"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(filepath.Join(dir, set+".out"))
	if err != nil {
		t.Fatal(err)
	}
	texts = strings.Split(string(in), "\n__ggml_vocab_test__\n")
	for line := range strings.SplitSeq(string(out), "\n") {
		var list []token.ID
		for _, f := range strings.Fields(line) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, token.ID(n))
		}
		ids = append(ids, list)
	}
	if len(texts) != len(ids) || len(texts) < 40 {
		t.Fatalf("%s: %d texts, %d lines of ids", set, len(texts), len(ids))
	}
	return texts, ids
}

// TestModelReferences: the prompts of the reference models, special tokens
// included.
func TestModelReferences(t *testing.T) {
	t.Parallel()
	var stories struct {
		Cases []struct {
			Prompt     string
			PromptIDs  []token.ID `json:"prompt_ids"`
			GreedyIDs  []token.ID `json:"greedy_ids"`
			GreedyText string     `json:"greedy_text"`
		}
	}
	dir := shared(t, "models", "stories260K")
	mustReadJSON(t, filepath.Join(dir, "reference.json"), &stories)
	tok, err := token.LoadDir(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range stories.Cases {
		if got := tok.Encode(c.Prompt, token.EncodeOptions{AddSpecial: true}); !slices.Equal(got, c.PromptIDs) {
			t.Errorf("encode %q\n got %v\nwant %v", c.Prompt, got, c.PromptIDs)
		}
		got := tok.Decode(slices.Concat(c.PromptIDs, c.GreedyIDs), true)
		if strings.TrimSpace(got) != strings.TrimSpace(c.GreedyText) {
			t.Errorf("decode\n got %q\nwant %q", got, c.GreedyText)
		}
	}
	var bert struct {
		Texts    []string
		InputIDs [][]token.ID `json:"input_ids"`
	}
	dir = shared(t, "models", "mini-bert-embed")
	mustReadJSON(t, filepath.Join(dir, "reference.json"), &bert)
	if tok, err = token.LoadDir(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for i, s := range bert.Texts {
		if got := tok.Encode(s, token.EncodeOptions{AddSpecial: true}); !slices.Equal(got, bert.InputIDs[i]) {
			t.Errorf("encode %q\n got %v\nwant %v", s, got, bert.InputIDs[i])
		}
	}
}
