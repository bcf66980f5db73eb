package llm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"athanor/engine/onnx"
)

const (
	lockFile  = ".lock"
	building  = ".building-" // folders that a conversion has not finished
	lockPause = 100 * time.Millisecond
)

// cached reads a compiled graph, a file in dir, and calls build, which makes dir,
// when there is none that is whole. One process converts at a time; the others wait
// and find it done.
func cached(ctx context.Context, dir, file string, build func() error) (*onnx.Model, error) {
	if model, err := readGraph(dir, file); err == nil {
		return model, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, filepath.Join(parent, lockFile))
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	defer unlock()
	if model, err := readGraph(dir, file); err == nil {
		return model, nil
	}
	if err := sweep(parent); err != nil {
		return nil, fmt.Errorf("clean the cache: %w", err)
	}
	if err := build(); err != nil {
		return nil, err
	}
	return readGraph(dir, file)
}

// readGraph reads the graph of a finished conversion. A graph without its whole
// weights is an error: power may have failed, or somebody deleted files.
func readGraph(dir, file string) (*onnx.Model, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("read the compiled graph: %w", err)
	}
	model, err := onnx.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("read the compiled graph: %w", err)
	}
	info, err := os.Stat(filepath.Join(dir, weightsFile))
	if err != nil {
		return nil, fmt.Errorf("read the compiled weights: %w", err)
	}
	if model.Graph == nil || len(model.Graph.Nodes) == 0 {
		return nil, errors.New("the compiled graph is empty")
	}
	for _, t := range model.Graph.Initializers {
		if e := t.External; e != nil && e.Offset+e.Length > info.Size() {
			return nil, fmt.Errorf("the compiled weights have %d bytes, the graph needs %d", info.Size(), e.Offset+e.Length)
		}
	}
	return model, nil
}

// sweep removes what crashed conversions and older formats left behind. The
// caller holds the lock.
func sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		stale := strings.HasPrefix(name, "v") && !strings.HasPrefix(name, "v"+graphFormat+"-")
		if strings.HasPrefix(name, building) || stale && e.IsDir() {
			if err := os.RemoveAll(filepath.Join(parent, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock takes a lock file; the lock ends with the process at the latest.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(lockPause):
		}
	}
}
