package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"athanor/store/object"
	"athanor/store/resource"
)

// artifacts keeps the files of models: by content in the object store, and as
// directories in the cache, where workers can map them.
type artifacts struct {
	objects object.Store
	cache   string

	mu sync.Mutex // one materialisation at a time
}

// modelFile reports whether a file of a model directory belongs to the model.
func modelFile(name string) bool {
	switch path.Ext(name) {
	case ".safetensors", ".json", ".jinja", ".txt", ".md", ".model":
		return true
	}
	upper := strings.ToUpper(name)
	return strings.HasPrefix(upper, "LICENSE") || strings.HasPrefix(upper, "NOTICE")
}

// maxModelFiles bounds the files of one model.
const maxModelFiles = 10000

// listModel lists the files at the top of fsys that belong to a model, in order
// of their names. Something else under the name of a file, such as a pipe, which
// would be read for ever, is an error.
func listModel(fsys fs.FS) ([]resource.ModelFile, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	var files []resource.ModelFile
	for _, e := range entries {
		info, err := fs.Stat(fsys, e.Name()) // follows links: a hub cache is made of them
		if err != nil {
			return nil, err
		}
		if info.IsDir() || !modelFile(e.Name()) {
			continue
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", e.Name())
		}
		files = append(files, resource.ModelFile{Path: e.Name(), Size: info.Size()})
	}
	if len(files) > maxModelFiles {
		return nil, fmt.Errorf("%d files are more than the limit of %d", len(files), maxModelFiles)
	}
	return files, nil
}

// store hashes the files of fsys, notes which of them the object store does not
// have, copies those, and completes the records. What it copied stays noted until
// settle or takeBack, even if the process dies.
func (a *artifacts) store(ctx context.Context, fsys fs.FS, files []resource.ModelFile, progress func(phase string, done, total int64)) (err error) {
	if err := hashFiles(ctx, fsys, files, progress); err != nil {
		return err
	}
	if err := a.announce(ctx, files); err != nil {
		return fmt.Errorf("prepare the import: %w", err)
	}
	copying := &counter{phase: "copying", total: totalSize(files), tell: progress}
	for _, f := range files {
		if err := a.put(ctx, fsys, f, copying); err != nil {
			return fmt.Errorf("store %s: %w", f.Path, err)
		}
	}
	return nil
}

// hashFiles completes the records with content and key.
func hashFiles(ctx context.Context, fsys fs.FS, files []resource.ModelFile, progress func(phase string, done, total int64)) (err error) {
	reading := &counter{phase: "reading", total: totalSize(files), tell: progress}
	for i := range files {
		if files[i].SHA256, err = hashFile(ctx, fsys, files[i], reading); err != nil {
			return err
		}
		files[i].ObjectKey = "models/sha256/" + files[i].SHA256
	}
	return nil
}

func totalSize(files []resource.ModelFile) (total int64) {
	for _, f := range files {
		total += f.Size
	}
	return total
}

func hashFile(ctx context.Context, fsys fs.FS, f resource.ModelFile, c *counter) (string, error) {
	r, err := fsys.Open(f.Path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, c), &contextReader{ctx, r})
	if err == nil && n != f.Size {
		err = fmt.Errorf("has %d bytes now and had %d", n, f.Size)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", f.Path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (a *artifacts) put(ctx context.Context, fsys fs.FS, f resource.ModelFile, c *counter) error {
	r, err := fsys.Open(f.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := a.objects.PutIfAbsent(ctx, f.ObjectKey, io.TeeReader(r, c), f.Size)
	if errors.Is(err, object.ErrExists) {
		c.add(f.Size)
		return nil
	}
	if err == nil && info.SHA256 != f.SHA256 {
		return errors.New("the file changed while it was copied")
	}
	return err
}

// revision is the content identity of a model.
func revision(files []resource.ModelFile) string { return resource.Revision(files) }

// modelDir is where the files of a revision lie for workers.
func (a *artifacts) modelDir(rev string) string { return filepath.Join(a.cache, "models", rev) }

// compiledDir is where graphs and converted weights of a revision are kept.
func (a *artifacts) compiledDir(rev string) string { return filepath.Join(a.cache, "compiled", rev) }

// directory makes sure that the files of m lie in modelDir, and returns it. The
// directory appears as a whole or not at all.
func (a *artifacts) directory(ctx context.Context, m *resource.Model) (string, error) {
	dir := a.modelDir(m.Revision)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // without waiting for another model's files
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, f := range m.Files {
		if err := a.place(ctx, f, filepath.Join(tmp, f.Path)); err != nil {
			return "", fmt.Errorf("fetch %s of model %s: %w", f.Path, m.Name, err)
		}
	}
	return dir, os.Rename(tmp, dir)
}

// place links the object, when it is a local file, or copies and verifies it.
func (a *artifacts) place(ctx context.Context, f resource.ModelFile, to string) error {
	if filer, ok := a.objects.(object.Filer); ok {
		from, err := filer.Path(f.ObjectKey)
		if err == nil {
			err = os.Link(from, to)
		}
		if err == nil {
			return nil
		}
	}
	r, _, err := a.objects.Get(ctx, f.ObjectKey, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, h), r)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return sameHash(h, f.SHA256)
}

func sameHash(h hash.Hash, want string) error {
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("has SHA-256 %s, want %s", got, want)
	}
	return nil
}

// counter reports progress of bytes.
type counter struct {
	phase       string
	done, total int64
	tell        func(phase string, done, total int64)
}

func (c *counter) add(n int64) {
	c.done += n
	c.tell(c.phase, c.done, c.total)
}

// Write counts; it never fails.
func (c *counter) Write(p []byte) (int, error) {
	c.add(int64(len(p)))
	return len(p), nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
