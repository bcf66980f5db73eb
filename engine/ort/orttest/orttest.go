package orttest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/ort"
)

// Env names a library, or a folder with one, that tests use instead of the
// pinned one below engine/ort/lib.
const Env = "ATHANOR_ONNXRUNTIME"

// Library is the path of the library that tests use. Without one, or without
// cgo, the test is skipped.
func Library(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(Env)
	if dir == "" {
		dir = filepath.Join(root(t), "engine", "ort", "lib", runtime.GOOS+"-"+runtime.GOARCH)
	}
	path, err := ort.Find(dir)
	if err != nil {
		t.Skipf("%v (scripts/get-onnxruntime puts it there, %s names another place)", err, Env)
	}
	return path
}

// Open returns a runtime that is closed when the test ends, or skips the test.
func Open(t testing.TB) compute.Runtime {
	t.Helper()
	library := Library(t)
	rt, err := ort.Open(ort.Options{Library: library})
	if errors.Is(err, ort.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// root is the folder of go.mod above the test.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the test")
	return ""
}
