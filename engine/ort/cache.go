//go:build cgo

package ort

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	ortgo "github.com/yalue/onnxruntime_go"
)

// A cache at PATH is PATH (the optimised model), PATH.data (weights in the form
// that the kernels of this processor want) and PATH.stamp, written last.
const (
	dataSuffix  = ".data"
	stampSuffix = ".stamp"
	lockSuffix  = ".lock"
	tmpSuffix   = ".tmp" // of folders being written
)

// stamp says what a cache was made from and what it must contain.
type stamp struct {
	Format  int    `json:"format"`
	Key     string `json:"key"`     // of the caller
	Graph   string `json:"graph"`   // SHA-256 of the encoded model
	Library string `json:"library"` // version and size of the library
	CPU     string `json:"cpu"`     // digest of the processor's features
	Model   sum    `json:"model"`
	Data    sum    `json:"data"`
}

// sum identifies the content of a file; the zero value is "no file".
type sum struct {
	Size int64  `json:"size"`
	CRC  uint32 `json:"crc32c"`
	// Inode and modification time in nanoseconds of the file that was summed:
	// while they and the size are the same, so is the content.
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"`
}

const stampFormat = 2

// openCached opens the cached session, writing the cache first when there is
// none that fits. A cache that cannot be written costs memory, not service.
func openCached(cfg sessionConfig, path, key string) (*program, error) {
	if key == "" {
		return nil, errors.New("a cache needs a key")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	unlock, err := lock(path + lockSuffix)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer unlock()

	want := newStamp(cfg.model, key)
	if readCache(path, want) {
		if p, err := (&sessionConfig{path: path, threads: cfg.threads}).open(); err == nil {
			return p, nil
		}
	}
	if err := writeCache(cfg, path, want); err != nil {
		if to := logger.Load(); to != nil {
			to.Warn("the model's cache cannot be written; it needs more memory and time to load", "path", path, "err", err)
		}
		return cfg.open()
	}
	p, err := (&sessionConfig{path: path, threads: cfg.threads}).open()
	if err != nil {
		return cfg.open()
	}
	return p, nil
}

func newStamp(model []byte, key string) stamp {
	graph := sha256.Sum256(model)
	library := ortgo.GetVersion()
	if info, err := os.Stat(loaded.path); err == nil {
		library = fmt.Sprintf("%s %d", library, info.Size())
	}
	return stamp{Format: stampFormat, Key: key, Graph: hex.EncodeToString(graph[:]), Library: library, CPU: cpuKey()}
}

// lock takes the lock file, so that two processes do not write one cache.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// readCache reports whether the files at path are those of a fitting stamp.
// The content of a file is read only when the file is not the one that was
// written (restored from a backup, say, or changed).
func readCache(path string, want stamp) bool {
	raw, err := os.ReadFile(path + stampSuffix)
	if err != nil {
		return false
	}
	var got stamp
	if json.Unmarshal(raw, &got) != nil {
		return false
	}
	want.Model, want.Data = got.Model, got.Data
	if got != want {
		return false
	}
	for file, recorded := range map[string]*sum{path: &want.Model, path + dataSuffix: &want.Data} {
		if !recorded.matches(file) {
			return false
		}
	}
	if got != want {
		// Not to be written, it only costs the next load another check.
		_ = want.write(path + stampSuffix)
	}
	return true
}

// matches reports whether a file has the content of s, and takes its inode and
// time into s then.
func (s *sum) matches(path string) bool {
	now, err := identify(path)
	if err != nil {
		return false
	}
	now.CRC = s.CRC
	if now == *s {
		return true
	}
	if now.Size != s.Size {
		return false
	}
	if now, err = sumFile(path); err != nil || now.CRC != s.CRC {
		return false
	}
	*s = now
	return true
}

// write puts the stamp in place as a whole.
func (s *stamp) write(path string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := path + ".tmp" // one writer: the cache is locked
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// writeCache builds a session that saves itself, in a folder beside path, and
// moves its files into place. Readers never see a stamp without its files.
func writeCache(cfg sessionConfig, path string, s stamp) error {
	if err := sweep(path + tmpSuffix); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+tmpSuffix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cfg.save = filepath.Join(tmp, filepath.Base(path))
	p, err := cfg.open()
	if err != nil {
		return err
	}
	p.Close()
	if s.Model, err = sumFile(cfg.save); err != nil {
		return err
	}
	if s.Data, err = sumFile(cfg.save + dataSuffix); err != nil {
		return err
	}
	if err := remove(path + stampSuffix); err != nil {
		return err
	}
	if err := remove(path + dataSuffix); err != nil {
		return err
	}
	for _, suffix := range []string{dataSuffix, ""} {
		err := os.Rename(cfg.save+suffix, path+suffix)
		if err != nil && !(suffix == dataSuffix && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return s.write(path + stampSuffix)
}

// sweep removes the folders that killed writers left, whose paths begin with
// prefix. The caller holds the lock, so nobody works in them.
func sweep(prefix string) error {
	entries, err := os.ReadDir(filepath.Dir(prefix))
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), filepath.Base(prefix)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(prefix), e.Name())))
		}
	}
	return err
}

// remove deletes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumFile reads a whole file and sees to it that it is on the disk: a stamp
// must not outlive what it vouches for. A file that is not there has the zero sum.
func sumFile(path string) (sum, error) {
	s, err := identify(path)
	if err != nil || s == (sum{}) {
		return s, err
	}
	f, err := os.Open(path)
	if err != nil {
		return sum{}, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if s.Size, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return sum{}, err
	}
	s.CRC = h.Sum32()
	return s, f.Sync()
}

// identify is the sum of a file without its checksum.
func identify(path string) (sum, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return sum{}, nil
	}
	if err != nil {
		return sum{}, err
	}
	s := sum{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode = sys.Ino
	}
	return s, nil
}
