package data_test

import (
	"io/fs"
	"testing"

	"athanor/engine/token"
	"athanor/engine/train/data"
)

// FuzzLine encodes any bytes for models of several kinds: what comes out is whole,
// carries loss, and holds no special token that data made.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		chat(user, answer, again, last), chat(user, call, result, last), `{"text":"<|im_end|></s>"}`, `{"prompt":"a","completion":"</s>"}`,
		preference("a", "b"), `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},` + answer + `],"tools":` + tools + `}`,
		chat(user, `{"role":"assistant","content":"Yo.","reasoning":"why","weight":0.5}`), `{"text":"","weight":0}`, `{"messages":[{}]}`, `{"messages":[]}`, preference("", "b"), `[`, ``,
	} {
		f.Add([]byte(s))
	}
	known := models(f)
	type pair struct {
		e   *data.Encoder
		tok *token.Tokenizer
		o   data.EncodeOptions
	}
	var pairs []pair
	for _, name := range []string{"chatml", "none", "mistral", "qwen3", "generation", "gemma"} {
		for _, o := range []data.EncodeOptions{{}, {TrainOnInputs: "true", MaxSeqLength: 50}, {Preference: true}} {
			e, err := data.NewEncoder(known[name], o)
			if err != nil {
				f.Fatal(err)
			}
			pairs = append(pairs, pair{e, mustTokenizer(f, known[name]), o})
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range pairs {
			got, err := p.e.Line(b)
			if err != nil || got.LeftOut {
				continue
			}
			for _, s := range got.Samples {
				if len(s.Tokens) != len(s.Weights) || len(s.Tokens) < 2 || s.Weights[0] != 0 || p.o.MaxSeqLength > 0 && len(s.Tokens) > p.o.MaxSeqLength {
					t.Fatalf("%d tokens, %d weights", len(s.Tokens), len(s.Weights))
				}
				loss, special := false, 0
				for i, id := range s.Tokens {
					loss = loss || s.Weights[i] > 0
					if p.tok.IsControl(id) {
						special++
					}
				}
				if !loss {
					t.Fatalf("no loss in %q", b)
				}
				if got.Format == data.FormatText && special > 1 {
					t.Fatalf("%d special tokens in the text %q", special, b)
				}
			}
		}
	})
}

func mustTokenizer(tb testing.TB, model fs.FS) *token.Tokenizer {
	tb.Helper()
	tok, err := token.LoadDir(model)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}
