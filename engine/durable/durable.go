package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile writes a new file and waits until its content is on the disk. A file
// that exists is refused with an error that wraps os.ErrExist. Its name is on the
// disk after SyncDir of its folder.
func WriteFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("create %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// SyncDir waits until the names in a folder are on the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
