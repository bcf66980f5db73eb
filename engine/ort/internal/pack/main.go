package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const name = "libonnxruntime.so.1"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: pack PLATFORM...")
		os.Exit(2)
	}
	for _, platform := range os.Args[1:] {
		if err := pack("engine/ort", platform); err != nil {
			fmt.Fprintf(os.Stderr, "pack %s: %v\n", platform, err)
			os.Exit(1)
		}
	}
}

// pack writes the compressed library and its digest beside the library, unless
// they are there and fit.
func pack(dir, platform string) error {
	base := filepath.Join(dir, "lib", platform, name)
	raw, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	pins, err := os.ReadFile(filepath.Join(dir, "onnxruntime.pins"))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	digest := hex.EncodeToString(sum[:])
	if !strings.Contains(string(pins), "\n"+digest+"  "+platform+"/"+name+"\n") {
		return fmt.Errorf("SHA-256 %s is not pinned", digest)
	}
	if old, err := os.ReadFile(base + ".sha256"); err == nil && string(old) == digest+"\n" {
		if info, err := os.Stat(base + ".zst"); err == nil && info.Size() > 0 {
			fmt.Printf("%s.zst is in place, %d bytes\n", base, info.Size())
			return nil
		}
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	packed := w.EncodeAll(raw, nil)
	if err := replace(base+".zst", packed); err != nil {
		return err
	}
	if err := replace(base+".sha256", []byte(digest+"\n")); err != nil {
		return err
	}
	fmt.Printf("%s.zst: %d -> %d bytes\n", base, len(raw), len(packed))
	return nil
}

// replace writes a file under a temporary name and renames it.
func replace(path string, b []byte) error {
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
