package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// unborn marks the temporary name of a database being created.
const unborn = ".new-"

// ensureFile makes the database at path if there is none. bbolt's own first
// initialisation is not safe against a power cut, so the file is made whole under
// a temporary name and only then linked to its own.
func ensureFile(path string, schema int) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, base := filepath.Split(path)
	temp, err := os.CreateTemp(filepath.Clean(dir), base+unborn+"*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := temp.Close(); err != nil {
		return err
	}
	if err := initFile(temp.Name(), schema); err != nil {
		return err
	}
	// Link, unlike rename, never replaces what another process made meanwhile.
	if err := os.Link(temp.Name(), path); err != nil {
		if _, there := os.Lstat(path); there == nil {
			return nil
		}
		return err
	}
	return syncDir(dir)
}

// initFile writes an empty database of the given schema and syncs it.
func initFile(path string, schema int) error {
	b, err := bolt.Open(path, fileMode, &bolt.Options{FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		return putSchema(&Tx{bolt: tx}, schema)
	})
	if err == nil {
		err = b.Sync()
	}
	return errors.Join(err, b.Close())
}

// sweepUnborn removes what a creation that was cut off has left. The caller holds
// the lock of the database, so nobody needs such a file any more.
func sweepUnborn(path string) {
	left, _ := filepath.Glob(globQuote(path) + unborn + "*")
	for _, name := range left {
		_ = os.Remove(name) // harmless if it stays; the next Open tries again
	}
}

// globQuote escapes the pattern characters of a path.
func globQuote(path string) string {
	quoted := make([]byte, 0, len(path))
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, path[i])
	}
	return string(quoted)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// schemaKey holds the version in the meta bucket.
const schemaKey = "schema"

func putSchema(tx *Tx, version int) error {
	return tx.put(metaBucket, []byte(schemaKey), strconv.AppendInt(nil, int64(version), 10))
}

// getSchema reads the version of the file.
func getSchema(tx *Tx) (int, error) {
	raw := tx.get(metaBucket, []byte(schemaKey))
	if raw == nil {
		return 0, fmt.Errorf("%w: it has no schema version", ErrCorrupt)
	}
	version, err := strconv.Atoi(string(raw))
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%w: schema version %q", ErrCorrupt, raw)
	}
	return version, nil
}
