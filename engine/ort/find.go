package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// libraryNames are the names that distributions of the library use.
var libraryNames = []string{"libonnxruntime.so.1", "libonnxruntime.so", "libonnxruntime.so." + Version}

// Find returns the path of the library in the first of dirs that has it. An
// element of dirs may also be the library itself. The error wraps ErrNotFound
// and lists where it was looked for.
func Find(dirs ...string) (string, error) {
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
			return dir, nil
		}
		for _, name := range libraryNames {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%w: no %s in %s", ErrNotFound, strings.Join(libraryNames, " or "), strings.Join(dirs, ", "))
}

// Locate returns the library to open: the one in dir when dir is given (and no
// other: a wish that cannot be met is an error), else the one that this binary
// carries, unpacked below dataDir, else the one installed beside the executable.
func Locate(dir, dataDir string) (string, error) {
	if dir != "" {
		return Find(dir)
	}
	path, err := Unpack(dataDir)
	if !errors.Is(err, ErrNotEmbedded) {
		return path, err
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return Find(besides(filepath.Dir(exe))...)
}

// besides lists where an installation or a source tree keeps the library.
func besides(bin string) []string {
	return []string{
		bin,
		filepath.Join(bin, "lib"),
		filepath.Join(bin, "..", "lib"),
		filepath.Join(bin, "..", "engine", "ort", "lib", runtime.GOOS+"-"+runtime.GOARCH),
	}
}
