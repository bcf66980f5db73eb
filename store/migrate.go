package store

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// firstSchema is the version that the first release wrote.
const firstSchema = 1

// migrations is the built-in list: every step since the first release, in order.
// A released step never changes.
var migrations = []Migration{}

// Migration is one step of the schema. It runs in one transaction together with
// the change of the version, so it has happened wholly or not at all.
//
// Up must not lean on the record types of today, which later steps will change:
// it declares the shapes it needs, and tables over them, itself.
type Migration struct {
	To   int    // version after the step; the list goes 2, 3, 4, ...
	Name string // what it does, for error messages
	Up   func(*Tx) error
}

// checkMigrations refuses a list with gaps.
func checkMigrations(list []Migration) error {
	for i, m := range list {
		if m.To != firstSchema+1+i || m.Up == nil {
			return fmt.Errorf("migration %d (%q) goes to schema %d, want %d", i, m.Name, m.To, firstSchema+1+i)
		}
	}
	return nil
}

// schemaOf is the version after the last step.
func schemaOf(list []Migration) int { return firstSchema + len(list) }

// migrate brings the open file up to the last step.
func (db *DB) migrate(path string, list []Migration) error {
	var have int
	err := db.View(func(tx *Tx) (err error) {
		have, err = getSchema(tx)
		return err
	})
	if err != nil {
		return err
	}
	want := schemaOf(list)
	if have > want {
		return &SchemaTooNew{Have: have, Want: want}
	}
	if have == want {
		return nil
	}
	if err := db.backup(path, have); err != nil {
		return fmt.Errorf("copy the database before its upgrade: %w", err)
	}
	for _, m := range list[have-firstSchema:] {
		err := db.bolt.Update(func(b *bolt.Tx) error {
			tx := &Tx{bolt: b}
			if err := m.Up(tx); err != nil {
				return err
			}
			return putSchema(tx, m.To)
		})
		if err != nil {
			return fmt.Errorf("upgrade to schema %d (%s): %w", m.To, m.Name, err)
		}
	}
	return nil
}

// backup copies the database to path.v<have>.bak, or .v<have>.2.bak and so on when
// an earlier upgrade has left a copy there: a backup is never replaced.
func (db *DB) backup(path string, have int) error {
	dir, base := filepath.Split(path)
	temp, err := os.CreateTemp(filepath.Clean(dir), base+unborn+"*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := errors.Join(db.copyTo(temp), temp.Close()); err != nil {
		return err
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.v%d.bak", path, have)
		if n > 1 {
			name = fmt.Sprintf("%s.v%d.%d.bak", path, have, n)
		}
		err := os.Link(temp.Name(), name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return errors.Join(err, syncDir(dir))
	}
}

// copyTo writes a consistent copy to f and syncs it.
func (db *DB) copyTo(f *os.File) error {
	w := bufio.NewWriterSize(f, 1<<20)
	err := db.bolt.View(func(b *bolt.Tx) error {
		_, err := b.WriteTo(w)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(w.Flush(), f.Sync())
}
