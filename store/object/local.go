package object

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

const (
	tempDir    = ".tmp" // unfinished Puts; no key begins with a dot
	dirMode    = 0o700
	fileMode   = 0o600
	copyBuffer = 256 << 10
	maxTries   = 100 // against a Delete that takes away directories just made
)

// local keeps each blob in a file whose path is its key.
type local struct {
	dir  string   // absolute, without symbolic links
	root *os.Root // confines every access to dir
}

// OpenLocal opens the store in a directory, making it if it is missing. It also is
// a Filer. What earlier programs left unfinished is removed; several processes may
// use one directory at a time.
func OpenLocal(dir string) (Store, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open object directory: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("open object directory: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open object directory: %w", err)
	}
	l := &local{dir: abs, root: root}
	if err := l.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("open object directory %s: %w", abs, err), root.Close())
	}
	return l, nil
}

// sweep removes the temporary files that no living process holds a lock on.
func (l *local) sweep() error {
	if err := l.root.Mkdir(tempDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := l.readDir(tempDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(tempDir, e.Name())
		if !e.Type().IsRegular() {
			continue
		}
		f, err := l.root.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue // finished meanwhile
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = l.root.Remove(name) // harmless if it stays; the next Open tries again
		}
		_ = f.Close()
	}
	return nil
}

// newTemp makes a locked temporary file. Between its birth and its lock a sweep may
// take it for abandoned; then another one is made.
func (l *local) newTemp() (f *os.File, name string, err error) {
	for range maxTries {
		name = path.Join(tempDir, rand.Text())
		f, err = l.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
		if err != nil {
			return nil, "", err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, "", errors.Join(err, l.root.Remove(name), f.Close())
		}
		if _, err := l.root.Lstat(name); err == nil {
			return f, name, nil
		}
		_ = f.Close() // it is deleted already
	}
	return nil, "", errors.New("temporary files vanish as soon as they are made")
}

func (l *local) Put(ctx context.Context, key string, r io.Reader, size int64) (Info, error) {
	return l.put(ctx, key, r, size, l.root.Rename)
}

func (l *local) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (Info, error) {
	if _, err := l.Stat(ctx, key); err == nil {
		return Info{}, fmt.Errorf("put %q: %w", key, ErrExists)
	} else if !errors.Is(err, ErrNotFound) {
		return Info{}, err
	}
	// Unlike rename, link refuses to replace, and the temporary name goes anyway.
	return l.put(ctx, key, r, size, l.root.Link)
}

// put writes the body to a temporary file and gives it its name by publish.
func (l *local) put(ctx context.Context, key string, r io.Reader, size int64, publish func(from, to string) error) (info Info, err error) {
	if err := ValidateKey(key); err != nil {
		return Info{}, err
	}
	b, err := newBody(ctx, r, size)
	if err != nil {
		return Info{}, fmt.Errorf("put %q: %w", key, err)
	}
	f, temp, err := l.newTemp()
	if err != nil {
		return Info{}, fmt.Errorf("put %q: %w", key, err)
	}
	defer func() {
		// The lock has to outlive the temporary name, or a sweep could take it.
		if gone := l.root.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		_ = f.Close() // synced before, or of no use
	}()
	// The wrapper hides ReadFrom, which would copy in smaller pieces.
	if _, err = io.CopyBuffer(struct{ io.Writer }{f}, b, make([]byte, copyBuffer)); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = l.publish(temp, key, publish)
	}
	if err != nil {
		return Info{}, fmt.Errorf("put %q: %w", key, err)
	}
	return b.info(key), nil
}

// publish makes the directories of the key and moves the file there, durably.
func (l *local) publish(temp, key string, move func(from, to string) error) error {
	for range maxTries {
		if err := l.makeDirs(path.Dir(key)); err != nil {
			return conflict(err)
		}
		err := move(temp, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a Delete has removed the directory: it was empty
		}
		if err != nil {
			if fi, there := l.root.Lstat(key); there == nil && fi.IsDir() {
				err = syscall.EISDIR // link says no more than "exists"
			}
			return conflict(err)
		}
		return l.syncDir(path.Dir(key))
	}
	return errors.New("its directory vanishes as soon as it is made")
}

// conflict explains the errors of a file where a directory should be, or a
// directory where a file should be.
func conflict(err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: a part of the key is an object itself, or other keys lie under it: %w", ErrInvalidKey, err)
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	}
	return err
}

// makeDirs makes the missing directories of a path and syncs where each was made.
func (l *local) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := l.root.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if err := l.makeDirs(path.Dir(dir)); err != nil {
		return err
	}
	switch err := l.root.Mkdir(dir, dirMode); {
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return nil // made or removed by another; publish finds out
	case err != nil:
		return err
	}
	return l.syncDir(path.Dir(dir))
}

// syncDir makes the names in a directory durable. One that is gone has none.
func (l *local) syncDir(dir string) error {
	d, err := l.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (l *local) Delete(ctx context.Context, key string) error {
	if _, err := l.Stat(ctx, key); errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	err := l.root.Remove(key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	if err := l.syncDir(path.Dir(key)); err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
		if l.root.Remove(dir) != nil {
			break // not empty
		}
	}
	return nil
}

func (l *local) Close() error { return l.root.Close() }
