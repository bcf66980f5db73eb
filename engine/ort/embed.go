package ort

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxLibrary bounds what an embedded library may unpack to.
const maxLibrary = 1 << 30

// Unpack writes the library that this binary carries to
// dataDir/lib/onnxruntime-<version>-<digest>/libonnxruntime.so.1 and returns
// that path. A file that is there already is used when its SHA-256 is right and
// replaced when it is not. Without an embedded library it returns ErrNotEmbedded.
func Unpack(dataDir string) (string, error) {
	if embeddedLibrary == "" {
		return "", ErrNotEmbedded
	}
	path, err := unpack(embeddedLibrary, strings.TrimSpace(embeddedDigest), dataDir)
	if err != nil {
		return "", fmt.Errorf("unpack ONNX Runtime: %w", err)
	}
	return path, nil
}

// unpack writes the zstd-compressed library whose SHA-256 is digest.
func unpack(packed, digest, dataDir string) (string, error) {
	if len(digest) != 2*sha256.Size {
		return "", fmt.Errorf("%q is no SHA-256", digest)
	}
	path := filepath.Join(dataDir, "lib", "onnxruntime-"+Version+"-"+digest[:8], libraryNames[0])
	have, err := digestOf(path)
	if err == nil && have == digest {
		return path, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".unpack*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	err = decompress(tmp, packed, digest)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	return path, os.Rename(tmp.Name(), path)
}

// decompress writes and syncs the library, checking its digest on the way.
func decompress(f *os.File, packed, digest string) error {
	r, err := zstd.NewReader(strings.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, maxLibrary))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("%d bytes with SHA-256 %s, want %s", n, got, digest)
	}
	return f.Sync()
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
