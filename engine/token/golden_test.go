package token_test

import (
	"encoding/json"
	"slices"
	"testing"

	"athanor/engine/token"
)

// TestComponents compares tokenizers put together at random with the Rust
// library; see testdata/README.md.
func TestComponents(t *testing.T) {
	t.Parallel()
	var sets []struct {
		Tokenizer json.RawMessage
		Cases     []struct {
			Text            string
			IDs             []token.ID
			Decoded         string
			Skipped         string
			Shuffled        []token.ID
			ShuffledDecoded string `json:"shuffled_decoded"`
		}
	}
	mustReadJSON(t, "testdata/components.json.gz", &sets)
	n := 0
	for i, set := range sets {
		tok := mustLoad(t, string(set.Tokenizer))
		for _, c := range set.Cases {
			n++
			if got := tok.Encode(c.Text, token.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, c.IDs) {
				t.Errorf("set %d: encode %q\n got %v\nwant %v", i, c.Text, got, c.IDs)
			}
			if got := tok.Decode(c.IDs, false); got != c.Decoded {
				t.Errorf("set %d: decode of %q\n got %q\nwant %q", i, c.Text, got, c.Decoded)
			}
			if got := tok.Decode(c.IDs, true); got != c.Skipped {
				t.Errorf("set %d: decode without special of %q\n got %q\nwant %q", i, c.Text, got, c.Skipped)
			}
			if got := tok.Decode(c.Shuffled, false); got != c.ShuffledDecoded {
				t.Errorf("set %d: decode %v\n got %q\nwant %q", i, c.Shuffled, got, c.ShuffledDecoded)
			}
		}
	}
	if n < 300 {
		t.Errorf("%d cases, want 300 or more", n)
	}
}

type randomTexts struct {
	Texts []string
	Sets  map[string][][]token.ID
}

// TestRandomTexts compares published tokenizers with the Rust library.
func TestRandomTexts(t *testing.T) {
	t.Parallel()
	var g randomTexts
	mustReadJSON(t, "testdata/texts.json.gz", &g)
	if len(g.Sets) != 7 {
		t.Fatalf("%d sets, want 7", len(g.Sets))
	}
	for name, want := range g.Sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := mustLoadDir(t, name)
			for i, s := range g.Texts {
				if got := tok.Encode(s, token.EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want[i]) {
					t.Errorf("encode %q\n got %v\nwant %v", s, got, want[i])
				}
			}
		})
	}
}
