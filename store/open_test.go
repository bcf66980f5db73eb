package store_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"athanor/store"
	"athanor/store/storetest"
)

// list returns the names in the directory of path.
func list(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOpenCreatesOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "athanor.db")
	db := storetest.OpenAt(t, path, things)
	mustUpdate(t, db, put("a", nil))
	storetest.Close(t, db, things)
	if got := strings.Join(list(t, path), " "); got != "athanor.db" {
		t.Errorf("the directory holds %q", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if got := ids(t, storetest.OpenAt(t, path, things), "a"); len(got) != 1 {
		t.Error("the record is gone after reopening")
	}
}

func TestOpenSweepsAnUnfinishedCreation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "odd[na*me", "athanor.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path + ".new-1", path + ".new-2"} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	storetest.OpenAt(t, path)
	if got := strings.Join(list(t, path), " "); got != "athanor.db" {
		t.Errorf("the directory holds %q", got)
	}
}

func TestOpenConcurrently(t *testing.T) {
	t.Parallel()
	const rounds, n = 10, 6
	for range rounds {
		path := filepath.Join(t.TempDir(), "athanor.db")
		opened := make(chan *store.DB, n)
		begin := make(chan struct{})
		for range n {
			go func() {
				<-begin
				db, err := store.Open(path, store.Options{LockTimeout: time.Millisecond})
				if err != nil && !errors.Is(err, store.ErrLocked) {
					t.Errorf("Open: %v", err)
				}
				opened <- db
			}()
		}
		close(begin)
		var winners []*store.DB
		for range n {
			if db := <-opened; db != nil {
				winners = append(winners, db)
			}
		}
		if len(winners) != 1 {
			t.Errorf("%d of %d got the database", len(winners), n)
		}
		for _, db := range winners {
			storetest.Close(t, db)
		}
	}
}

func TestOpenLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "athanor.db")
	storetest.OpenAt(t, path)
	start := time.Now()
	_, err := store.Open(path, store.Options{LockTimeout: 20 * time.Millisecond})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("second Open: %v, want ErrLocked with the path", err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestOpenMissingDirectory(t *testing.T) {
	t.Parallel()
	_, err := store.Open(filepath.Join(t.TempDir(), "none", "athanor.db"), store.Options{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}

func TestOpenDamaged(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole.db")
	db := storetest.OpenAt(t, whole, things)
	// First a value of many pages, so that what comes later lies before its end.
	for i := range 8 {
		mustUpdate(t, db, func(tx *store.Tx) error { return store.Meta(tx).Put("large", make([]byte, 10_000*(8-i))) })
	}
	mustUpdate(t, db, func(tx *store.Tx) error { return store.Meta(tx).Put("large", make([]byte, 200_000)) })
	for _, id := range []string{"a", "b", "c"} {
		mustUpdate(t, db, put(id, nil))
	}
	storetest.Close(t, db, things)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	// bbolt makes files longer than what it uses: find the shortest whole one. Every
	// shorter one has to be refused.
	used := 4
	for !opensWhole(t, data[:used*page]) {
		used++
	}
	if used < 8 {
		t.Fatalf("only %d pages are in use, too few to cut some off", used)
	}
	data = data[:used*page]
	tests := map[string][]byte{
		"empty":            {},
		"text":             []byte("this is no database"),
		"zeros":            make([]byte, 16*page),
		"one page":         data[:page],
		"two pages":        data[:2*page],
		"cut in the data":  data[:3*page],
		"both metas wiped": append(make([]byte, 2*page), data[2*page:]...),
		"freelist wiped":   wipeAfter(data, 2*page),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "athanor.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := store.Open(path, store.Options{})
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			if db != nil {
				db.Close()
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(after, content) {
				t.Errorf("Open has changed the damaged file (%v)", err)
			}
		})
	}
}

// opensWhole reports whether a file of the content can be opened; then it has to be
// whole, because what was cut off was not in use.
func opensWhole(t *testing.T, content []byte) bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "athanor.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(path, store.Options{})
	if err != nil {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt", len(content), err)
		}
		return false
	}
	if got := ids(t, db, "a", "b", "c"); len(got) != 3 {
		t.Errorf("cut to %d bytes it opens with the records %v", len(content), got)
	}
	storetest.Close(t, db, things)
	return true
}

// wipeAfter returns data with everything behind n bytes overwritten.
func wipeAfter(data []byte, n int) []byte {
	return append(bytes.Clone(data[:n]), bytes.Repeat([]byte{0xa5}, len(data)-n)...)
}

// steps upgrades the shape {"name"} to {"name","group"} and then counts in n.
func steps() []store.Migration {
	type v1 struct{ Name string }
	return []store.Migration{
		{To: 2, Name: "group things", Up: func(tx *store.Tx) error {
			old := store.NewTable[v1]("things")
			list, _, err := old.List(tx, "", store.Page{})
			if err != nil {
				return err
			}
			for _, v := range list {
				if err := old.Delete(tx, v.Name); err != nil {
					return err
				}
				if err := things.Insert(tx, v.Name, &thing{Name: v.Name, Group: "old"}); err != nil {
					return err
				}
			}
			return nil
		}},
		{To: 3, Name: "count things", Up: func(tx *store.Tx) error {
			_, err := things.Update(tx, "a", func(v *thing) error { v.N++; return nil })
			return err
		}},
	}
}

// version1 makes a database of schema 1 with one old record.
func version1(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "athanor.db")
	db, err := store.Open(path, store.Options{Migrations: []store.Migration{}})
	if err != nil {
		t.Fatal(err)
	}
	plain := store.NewTable[struct{ Name string }]("things")
	mustUpdate(t, db, func(tx *store.Tx) error { return plain.Insert(tx, "a", &struct{ Name string }{"a"}) })
	storetest.Close(t, db)
	return path
}

func TestMigration(t *testing.T) {
	t.Parallel()
	path := version1(t)
	for range 2 { // the second Open has nothing to do
		db, err := store.Open(path, store.Options{Migrations: steps()})
		if err != nil {
			t.Fatal(err)
		}
		mustView(t, db, func(tx *store.Tx) error {
			v, err := things.Get(tx, "a")
			if err != nil || v.Group != "old" || v.N != 1 {
				t.Errorf("after the upgrade: %+v, %v", v, err)
			}
			return nil
		})
		storetest.Close(t, db, things)
	}
	if got := strings.Join(list(t, path), " "); got != "athanor.db athanor.db.v1.bak" {
		t.Errorf("the directory holds %q", got)
	}

	var newer *store.SchemaTooNew
	if _, err := store.Open(path, store.Options{Migrations: steps()[:1]}); !errors.As(err, &newer) || *newer != (store.SchemaTooNew{Have: 3, Want: 2}) {
		t.Errorf("an older program: %v, want SchemaTooNew 3, 2", err)
	}

	back, err := store.Open(path+".v1.bak", store.Options{Migrations: []store.Migration{}})
	if err != nil {
		t.Fatalf("open the backup: %v", err)
	}
	storetest.Close(t, back)
}

func TestMigrationThatFails(t *testing.T) {
	t.Parallel()
	path := version1(t)
	broken := steps()
	works := broken[1].Up
	broken[1].Up = func(tx *store.Tx) error { return errors.Join(works(tx), errors.New("no room")) }
	_, err := store.Open(path, store.Options{Migrations: broken})
	if err == nil || !strings.Contains(err.Error(), "upgrade to schema 3 (count things): no room") {
		t.Fatalf("a failing migration: %v", err)
	}
	// The first step is done, the second has left nothing: the mended program goes on.
	db, err := store.Open(path, store.Options{Migrations: steps()})
	if err != nil {
		t.Fatal(err)
	}
	mustView(t, db, func(tx *store.Tx) error {
		if v, err := things.Get(tx, "a"); err != nil || v.N != 1 {
			t.Errorf("after the second try: %+v, %v", v, err)
		}
		return nil
	})
	storetest.Close(t, db, things)
	if got := strings.Join(list(t, path), " "); got != "athanor.db athanor.db.v1.bak athanor.db.v2.bak" {
		t.Errorf("the directory holds %q", got)
	}
}

func TestBackupIsNeverReplaced(t *testing.T) {
	t.Parallel()
	path := version1(t)
	if err := os.WriteFile(path+".v1.bak", []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(path, store.Options{Migrations: steps()})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, db, things)
	if got := strings.Join(list(t, path), " "); got != "athanor.db athanor.db.v1.2.bak athanor.db.v1.bak" {
		t.Errorf("the directory holds %q", got)
	}
	if data, err := os.ReadFile(path + ".v1.bak"); err != nil || string(data) != "precious" {
		t.Errorf("the older backup: %q, %v", data, err)
	}
}

func TestMigrationListWithGaps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "athanor.db")
	for name, list := range map[string][]store.Migration{
		"starts late": steps()[1:],
		"no function": {{To: 2}},
	} {
		if _, err := store.Open(path, store.Options{Migrations: list}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("Open has made a file although its options are wrong")
	}
}

// copyFile copies r to a new file.
func copyFile(t *testing.T, path string, r io.Reader) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFileGone checks that nothing is acknowledged that the next start would not
// find: the file was deleted, or another one was put in its place.
func TestFileGone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		replace func(path string) error
	}{
		{"deleted", func(string) error { return nil }},
		{"replaced", func(path string) error { return os.WriteFile(path, []byte("other"), 0o600) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "athanor.db")
			db := storetest.OpenAt(t, path, things)
			mustUpdate(t, db, put("a", nil))
			if err := db.Present(); err != nil {
				t.Fatalf("a file that is there: %v", err)
			}
			if err := errors.Join(os.Remove(path), tt.replace(path)); err != nil {
				t.Fatal(err)
			}
			if err := db.Present(); !errors.Is(err, store.ErrGone) {
				t.Errorf("Present: got %v, want ErrGone", err)
			}
			if err := db.Update(t.Context(), put("b", nil)); !errors.Is(err, store.ErrGone) {
				t.Errorf("Update: got %v, want ErrGone", err)
			}
			if got := strings.Join(ids(t, db, "a", "b"), " "); got != "a" {
				t.Errorf("got records %q, want the one of before", got)
			}
		})
	}
}
