package export_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/export"
	"athanor/engine/ort/orttest"
	"athanor/engine/token"
)

// storyRows are the tokens of a few sentences of the kind that the embedded
// model was trained on.
func storyRows(t testing.TB, dir string) [][]int32 {
	t.Helper()
	tok, err := token.LoadDir(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]int32
	for _, text := range []string{
		"Once upon a time there was a little girl named Lily. She loved to play outside in the park with her friends.",
		"The dog ran after the ball and barked. Then he saw a big cat and stopped. The cat looked at him and smiled.",
		"Tom wanted to help his mom. He took the broom and cleaned the floor. His mom was very happy and gave him a hug.",
	} {
		rows = append(rows, tok.Encode(text, token.EncodeOptions{AddSpecial: true}))
	}
	return rows
}

func TestCompare(t *testing.T) {
	rt := orttest.Open(t)
	base := baseDir(t)
	a := newAdapter(t, base, 11, 4, 0.3)
	adapter, merged := filepath.Join(t.TempDir(), "adapter"), filepath.Join(t.TempDir(), "merged")
	if err := export.Adapter(adapter, a); err != nil {
		t.Fatal(err)
	}
	if err := export.Merged(t.Context(), base, a, merged); err != nil {
		t.Fatal(err)
	}
	rows := storyRows(t, base)
	served := export.Form{Dir: base, Adapter: &engine.Adapter{Key: "a", Dir: adapter}}
	tmp := t.TempDir()
	for _, c := range []struct {
		name   string
		form   export.Form
		lo, hi float64 // of the divergence
		warns  bool
	}{
		{"itself", served, 0, 1e-12, false},
		{"merged", export.Form{Dir: merged}, 1e-12, 1e-4, false},
		{"int8", export.Form{Dir: base, Adapter: served.Adapter, Quantization: "int8"}, 1e-6, 5e-3, false},
		{"int4", export.Form{Dir: merged, Quantization: "int4"}, 1e-3, 0.5, true},
		{"the base", export.Form{Dir: base}, 0.05, 10, true},
	} {
		got, err := export.Compare(t.Context(), rt, served, c.form, rows, export.CompareOptions{TempDir: tmp})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", c.name, *got)
		if got.MeanKL < c.lo || got.MeanKL > c.hi || (got.Warning != "") != c.warns || got.Prompts != 3 || got.Positions != len(rows[0])+len(rows[1])+len(rows[2]) {
			t.Errorf("%s: %+v", c.name, *got)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := export.Compare(t.Context(), rt, served, served, [][]int32{{}}, export.CompareOptions{TempDir: tmp}); err == nil || !strings.Contains(err.Error(), "no tokens") {
		t.Error(err)
	}
	if _, err := export.Compare(t.Context(), rt, served, served, [][]int32{{math.MaxInt32}}, export.CompareOptions{TempDir: tmp}); err == nil || !strings.Contains(err.Error(), "not one of the model's") {
		t.Error(err)
	}
}
