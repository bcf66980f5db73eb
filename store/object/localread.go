package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func (l *local) Stat(ctx context.Context, key string) (Info, error) {
	if err := ValidateKey(key); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	fi, err := l.root.Lstat(key)
	if err != nil {
		return Info{}, fmt.Errorf("stat %q: %w", key, absent(err))
	}
	if !fi.Mode().IsRegular() { // a directory, or a link that somebody laid here
		return Info{}, fmt.Errorf("stat %q: %w", key, ErrNotFound)
	}
	return Info{Key: key, Size: fi.Size(), ModTime: fi.ModTime()}, nil
}

// absent turns the ways in which a file can be missing into ErrNotFound.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ErrNotFound
	}
	return err
}

func (l *local) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	// Stat first: opening what is no regular file could block.
	if _, err := l.Stat(ctx, key); err != nil {
		return nil, Info{}, err
	}
	f, err := l.root.Open(key)
	if err != nil {
		return nil, Info{}, fmt.Errorf("get %q: %w", key, absent(err))
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, Info{}, errors.Join(fmt.Errorf("get %q: %w", key, err), f.Close())
	}
	if err := checkRange(offset, length, fi.Size()); err != nil {
		return nil, Info{}, errors.Join(fmt.Errorf("get %q: %w", key, err), f.Close())
	}
	if rest := fi.Size() - offset; length < 0 || length > rest {
		length = rest
	}
	r := &boundReader{ctx: ctx, key: key, r: io.NewSectionReader(f, offset, length), c: f}
	return r, Info{Key: key, Size: fi.Size(), ModTime: fi.ModTime()}, nil
}

// checkRange refuses a range that begins outside a blob of the size.
func checkRange(offset, length, size int64) error {
	if offset < 0 || offset > size || length < -1 {
		return fmt.Errorf("%w: %d bytes from %d on, of %d", ErrRange, length, offset, size)
	}
	return nil
}

// Path implements Filer. It refuses links on the way, which could lead outside.
func (l *local) Path(key string) (string, error) {
	if err := ValidateKey(key); err != nil {
		return "", err
	}
	for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
		if fi, err := l.root.Lstat(dir); err != nil || !fi.IsDir() {
			return "", fmt.Errorf("path of %q: %w", key, ErrNotFound)
		}
	}
	fi, err := l.root.Lstat(key)
	if err != nil {
		return "", fmt.Errorf("path of %q: %w", key, absent(err))
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("path of %q: %w", key, ErrNotFound)
	}
	return filepath.Join(l.dir, filepath.FromSlash(key)), nil
}

func (l *local) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if err := validatePrefix(prefix); err != nil {
		return nil, err
	}
	w := walk{l: l, ctx: ctx, prefix: prefix, after: after, limit: listLimit(limit)}
	if err := w.dir(""); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	return w.found, nil
}

// walk lists files in the order of their keys.
type walk struct {
	l             *local
	ctx           context.Context
	prefix, after string
	limit         int
	found         []Info
}

// dir walks one directory, given as "" or with a slash at its end. Entries sort as
// they do inside a key: a directory by its name and the slash that follows it.
func (w *walk) dir(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := w.l.readDir(path.Clean(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		switch key := dir + e.Name(); {
		case e.IsDir() && w.wants(key+"/"):
			keys = append(keys, key+"/")
		case e.Type().IsRegular() && strings.HasPrefix(key, w.prefix) && key > w.after:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if len(w.found) == w.limit {
			return nil
		}
		if err := w.visit(key); err != nil {
			return err
		}
	}
	return nil
}

// visit adds a file, or walks a directory. Files that no Put can have made are
// passed over.
func (w *walk) visit(key string) error {
	if strings.HasSuffix(key, "/") {
		return w.dir(key)
	}
	info, err := w.l.Stat(w.ctx, key)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalidKey):
		return nil
	case err != nil:
		return err
	}
	w.found = append(w.found, info)
	return nil
}

// wants reports whether keys under a directory, given with its slash, can be asked
// for.
func (w *walk) wants(dir string) bool {
	switch {
	case strings.HasPrefix(dir, "."):
		return false // the store's own
	case dir < w.after && !strings.HasPrefix(w.after, dir):
		return false // all of it sorts before
	}
	return strings.HasPrefix(dir, w.prefix) || strings.HasPrefix(w.prefix, dir)
}

func (l *local) readDir(dir string) ([]os.DirEntry, error) {
	d, err := l.root.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	return entries, errors.Join(err, d.Close())
}
