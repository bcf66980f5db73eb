package storetest

import (
	"path/filepath"
	"testing"

	"athanor/store"
)

// Open returns an empty database in a temporary directory of the test. When the
// test ends it checks the file, the indexes of the appliance's tables and those of
// more, and closes it.
func Open(t testing.TB, more ...store.Checked) *store.DB {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "athanor.db"), more...)
}

// OpenAt is Open for a path of the test's choice, where a database may exist. The
// test may close it earlier; then there is no check.
func OpenAt(t testing.TB, path string, more ...store.Checked) *store.DB {
	t.Helper()
	db, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatalf("open a database for the test: %v", err)
	}
	t.Cleanup(func() { Close(t, db, more...) })
	return db
}

// Close checks db as Open does and closes it; closing it again does nothing.
func Close(t testing.TB, db *store.DB, more ...store.Checked) {
	t.Helper()
	err := db.View(func(tx *store.Tx) error { return store.Check(tx, more...) })
	if err != nil && err != store.ErrClosed {
		t.Errorf("the database is inconsistent: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("close the database: %v", err)
	}
}
