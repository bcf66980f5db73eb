package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"athanor/store/object"
	"athanor/store/object/objecttest"
)

func openLocal(t *testing.T, dir string) object.Store {
	t.Helper()
	s, err := object.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLocal(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store {
		dir := filepath.Join(t.TempDir(), "objects")
		t.Cleanup(func() {
			left, err := os.ReadDir(filepath.Join(dir, ".tmp"))
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files are left: %v, %v", left, err)
			}
		})
		return openLocal(t, dir)
	})
}

func TestLocalSweepsLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := openLocal(t, dir)
	defer first.Close()
	// A Put that is under way in another process, as far as the second Open can see.
	r, w := io.Pipe()
	put := make(chan error)
	go func() {
		_, err := first.Put(context.Background(), "slow", r, -1)
		put <- err
	}()
	if _, err := w.Write([]byte("half")); err != nil { // returns when the Put has read it
		t.Fatal(err)
	}
	for _, name := range []string{"crashed", "crashed too"} {
		if err := os.WriteFile(filepath.Join(dir, ".tmp", name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := openLocal(t, dir)
	defer second.Close()
	if list, err := second.List(t.Context(), "", "", 0); err != nil || len(list) > 0 {
		t.Errorf("leftovers are listed: %v, %v", list, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".tmp")); err != nil || len(left) != 1 {
		t.Errorf("%d temporary files after the sweep, %v, want the one in use", len(left), err)
	}
	if _, err := w.Write([]byte(" and half")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), <-put); err != nil {
		t.Errorf("the Put under way: %v", err)
	}
	if info, err := second.Stat(t.Context(), "slow"); err != nil || info.Size != 13 {
		t.Errorf("Stat = %+v, %v", info, err)
	}
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openLocal(t, dir)
	defer s.Close()
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	path, err := s.(object.Filer).Path("a/b")
	if err != nil || !filepath.IsAbs(path) {
		t.Fatalf("Path = %q, %v", path, err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	for key, want := range map[string]error{
		"a": object.ErrNotFound, "none": object.ErrNotFound, "a/b/c": object.ErrNotFound, "none/x": object.ErrNotFound,
		"../x": object.ErrInvalidKey, ".tmp/x": object.ErrInvalidKey,
	} {
		if path, err := s.(object.Filer).Path(key); !errors.Is(err, want) {
			t.Errorf("Path(%q) = %q, %v, want %v", key, path, err, want)
		}
	}
}

// TestLocalStaysInside lays links and other things into the directory that no Put
// makes.
func TestLocalStaysInside(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := openLocal(t, dir)
	defer s.Close()
	if _, err := s.Put(t.Context(), "real/one", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"file": secret, "dir": outside, "in": "real", "in-file": "real/one", "up": "../"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "no\nkey"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"file", "dir/secret", "up/x", "in-file", "pipe"} {
		if r, _, err := s.Get(t.Context(), key, 0, -1); err == nil {
			r.Close()
			t.Errorf("Get(%q) follows", key)
		}
		if path, err := s.(object.Filer).Path(key); err == nil {
			t.Errorf("Path(%q) = %q", key, path)
		}
	}
	if path, err := s.(object.Filer).Path("in/one"); err == nil {
		t.Errorf("Path through a link = %q", path)
	}
	if _, err := s.Put(t.Context(), "dir/new", strings.NewReader("x"), 1); err == nil {
		t.Error("Put writes through a link")
	}
	if err := s.Delete(t.Context(), "dir/secret"); err == nil {
		t.Error("Delete through a link gives no error")
	}
	if _, err := s.Put(t.Context(), "file", strings.NewReader("mine"), 4); err != nil { // replaces the link
		t.Errorf("Put over a link: %v", err)
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" {
		t.Errorf("the file outside holds %q, %v", data, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("the directory outside holds %v, %v", left, err)
	}
	list, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(list) != 2 || list[0].Key != "file" || list[1].Key != "real/one" {
		t.Errorf("List = %+v, %v", list, err)
	}
}

func TestLocalPutIfAbsentDoesNotRead(t *testing.T) {
	t.Parallel()
	s := openLocal(t, t.TempDir())
	defer s.Close()
	for i, want := range []error{nil, object.ErrExists} {
		body := bytes.NewReader([]byte("x"))
		if _, err := s.PutIfAbsent(t.Context(), "k", body, 1); !errors.Is(err, want) {
			t.Errorf("put %d: %v, want %v", i, err, want)
		}
		if body.Len() != i {
			t.Errorf("put %d has left %d bytes", i, body.Len())
		}
	}
}

// A Delete removes the directories that it empties; a Put beside it must not notice.
func TestLocalPutsAmongDeletes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openLocal(t, dir)
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprintf("deep/er/%d", i)
			for range 30 {
				if _, err := s.Put(t.Context(), key, strings.NewReader(key), -1); err != nil {
					t.Errorf("Put: %v", err)
				}
				if _, err := s.Stat(t.Context(), key); err != nil {
					t.Errorf("Stat after Put: %v", err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Errorf("Delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v, want only the temporary one", left, err)
	}
}

func TestOpenLocalRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "under")} {
		if s, err := object.OpenLocal(dir); err == nil {
			s.Close()
			t.Errorf("OpenLocal(%q) gave no error", dir)
		}
	}
}

func FuzzValidateKey(f *testing.F) {
	for _, key := range []string{"", "a", "a/b", "../a", "a/..", ".", "a\x00", "\\", "a//b", "ü/木", "\xff"} {
		f.Add(key)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, key string) {
		if err := object.ValidateKey(key); err != nil {
			if !errors.Is(err, object.ErrInvalidKey) {
				t.Errorf("ValidateKey(%q): %v", key, err)
			}
			return
		}
		path := filepath.Join(dir, filepath.FromSlash(key))
		back, err := filepath.Rel(dir, path)
		if err != nil || filepath.ToSlash(back) != key || !filepath.IsLocal(filepath.FromSlash(key)) {
			t.Errorf("key %q becomes the path %q", key, path)
		}
	})
}
