package ort_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine/ort"
)

func TestFind(t *testing.T) {
	for _, name := range []string{"libonnxruntime.so.1", "libonnxruntime.so", "libonnxruntime.so.1.30.0"} {
		dir := t.TempDir()
		want := filepath.Join(dir, name)
		if err := os.WriteFile(want, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ort.Find(t.TempDir(), dir); err != nil || got != want {
			t.Errorf("%s in a folder: got %q, %v", name, got, err)
		}
		if got, err := ort.Find(want); err != nil || got != want {
			t.Errorf("%s itself: got %q, %v", name, got, err)
		}
	}
	a, b := t.TempDir(), filepath.Join(t.TempDir(), "none")
	_, err := ort.Find(a, b)
	if !errors.Is(err, ort.ErrNotFound) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
		t.Errorf("got %v, want ErrNotFound with both folders", err)
	}
}

// A folder that the user names is the only one that counts.
func TestLocateExplicit(t *testing.T) {
	dir := t.TempDir()
	if _, err := ort.Locate(dir, t.TempDir()); !errors.Is(err, ort.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	want := filepath.Join(dir, "libonnxruntime.so")
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ort.Locate(dir, t.TempDir()); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
