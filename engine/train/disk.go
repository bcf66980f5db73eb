package train

import (
	"errors"
	"io"
	"os"

	"athanor/engine/durable"
)

// disk is what this package changes on the disk; tests let it fail.
type disk interface {
	Create(path string) (file, error)
	Rename(from, to string) error
	Remove(path string) error // no error when it is absent
	MkdirAll(path string) error
	SyncDir(path string) error
}

// file is a file being written.
type file interface {
	io.WriteCloser
	Sync() error
}

// realDisk is the operating system's.
type realDisk struct{}

func (realDisk) Create(path string) (file, error) { return os.Create(path) }
func (realDisk) Rename(from, to string) error     { return os.Rename(from, to) }
func (realDisk) MkdirAll(path string) error       { return os.MkdirAll(path, 0o700) }
func (realDisk) SyncDir(path string) error        { return durable.SyncDir(path) }

func (realDisk) Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
