package token_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

var loaded sync.Map // name -> func() (*token.Tokenizer, error)

// mustLoadDir loads a tokenizer of ../shared/tokenizers, once for all tests.
func mustLoadDir(tb testing.TB, name string) *token.Tokenizer {
	tb.Helper()
	path := shared(tb, "tokenizers", name)
	load, _ := loaded.LoadOrStore(name, sync.OnceValues(func() (*token.Tokenizer, error) {
		return token.LoadDir(os.DirFS(path))
	}))
	t, err := load.(func() (*token.Tokenizer, error))()
	if err != nil {
		tb.Fatalf("load %s: %v", name, err)
	}
	return t
}

// mustLoad loads a tokenizer.json given as text.
func mustLoad(tb testing.TB, data string) *token.Tokenizer {
	tb.Helper()
	t, err := token.Load([]byte(data))
	if err != nil {
		tb.Fatalf("load: %v", err)
	}
	return t
}

// mustReadJSON decodes a file, which may be compressed.
func mustReadJSON(tb testing.TB, path string, v any) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			tb.Fatal(err)
		}
	}
	if err := json.NewDecoder(r).Decode(v); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
}
