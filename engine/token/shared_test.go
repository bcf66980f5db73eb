package token_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"athanor/engine/token"
)

// shared returns the path of a file or folder of ../shared beside the
// repository, and skips the test where it is not there.
func shared(tb testing.TB, elem ...string) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{filepath.Dir(dir), "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("reference files are not here: %v", err)
	}
	return path
}

// mustLoadDir loads a tokenizer of ../shared/tokenizers.
func mustLoadDir(tb testing.TB, name string) *token.Tokenizer {
	tb.Helper()
	t, err := token.LoadDir(os.DirFS(shared(tb, "tokenizers", name)))
	if err != nil {
		tb.Fatalf("load %s: %v", name, err)
	}
	return t
}

func mustReadJSON(tb testing.TB, path string, v any) {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
}
