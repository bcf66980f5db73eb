package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"athanor/engine/durable"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := errors.Join(durable.WriteFile(path, []byte("one")), durable.SyncDir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(path, []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "one" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := durable.SyncDir(path + "/none"); err == nil {
		t.Error("a folder that does not exist was synced")
	}
}
