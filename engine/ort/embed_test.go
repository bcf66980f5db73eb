package ort

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestUnpack(t *testing.T) {
	const library = "not really a library"
	sum := sha256.Sum256([]byte(library))
	digest := hex.EncodeToString(sum[:])
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := string(w.EncodeAll([]byte(library), nil))
	dir := t.TempDir()
	want := filepath.Join(dir, "lib", "onnxruntime-"+Version+"-"+digest[:8], "libonnxruntime.so.1")

	check := func(step string) {
		t.Helper()
		got, err := unpack(packed, digest, dir)
		if err != nil || got != want {
			t.Fatalf("%s: got %q, %v, want %q", step, got, err, want)
		}
		if b, err := os.ReadFile(want); err != nil || string(b) != library {
			t.Fatalf("%s: got %q, %v", step, b, err)
		}
	}
	check("first start")
	before, err := os.Stat(want)
	if err != nil {
		t.Fatal(err)
	}
	check("second start")
	if after, err := os.Stat(want); err != nil || !os.SameFile(before, after) {
		t.Errorf("a good file was written again (%v)", err)
	}
	if err := os.WriteFile(want, []byte("not really a bibrary"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("damaged file")

	if _, err := unpack(packed, strings.Repeat("0", 64), t.TempDir()); err == nil {
		t.Error("wrong digest: no error")
	}
	if _, err := unpack(packed[:len(packed)-4], digest, t.TempDir()); err == nil {
		t.Error("truncated: no error")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "lib", "*", ".unpack*")); len(left) != 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

// TestUnpackEmbedded checks what this very build carries.
func TestUnpackEmbedded(t *testing.T) {
	path, err := Unpack(t.TempDir())
	if embeddedLibrary == "" {
		if !errors.Is(err, ErrNotEmbedded) {
			t.Errorf("got %v, want ErrNotEmbedded", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := digestOf(path)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile("onnxruntime.pins")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pins), digest) {
		t.Errorf("the embedded library has SHA-256 %s, which is not pinned", digest)
	}
}
