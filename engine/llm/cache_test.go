package llm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"athanor/engine/llm"
)

// loadCached loads the embedded model with a cache and calls converted each time
// that its weights have been converted.
func loadCached(ctx context.Context, t *testing.T, cache string, converted func()) (*llm.Model, error) {
	t.Helper()
	return llm.Load(ctx, openRuntime(t), llm.Options{
		Name: "cached", Dir: demoDir(t), Quantization: "none", CacheDir: cache, Slots: 1, Context: 64, Now: time.Now,
		Progress: func(done, total int64) {
			if done == total {
				converted()
			}
		},
	})
}

// TestOneConversionForAll loads one model several times at once on an empty cache.
func TestOneConversionForAll(t *testing.T) {
	openRuntime(t)
	cache := t.TempDir()
	var conversions atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m, err := loadCached(t.Context(), t, cache, func() { conversions.Add(1) })
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			if say(t, m, greedy("Hello", 3)) == "" {
				t.Error("no answer")
			}
		})
	}
	wg.Wait()
	if n := conversions.Load(); n != 1 {
		t.Errorf("the weights were converted %d times", n)
	}
}

// TestDamagedCacheIsRebuilt damages the cache in every way that a crash or a
// person can, and finds what crashed conversions left swept away.
func TestDamagedCacheIsRebuilt(t *testing.T) {
	openRuntime(t)
	cache := t.TempDir()
	load := func() (answer string, converted bool) {
		t.Helper()
		m, err := loadCached(t.Context(), t, cache, func() { converted = true })
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return say(t, m, greedy("Once upon a time", 8)), converted
	}
	want, converted := load()
	if !converted {
		t.Fatal("an empty cache was enough")
	}
	if again, converted := load(); converted || again != want {
		t.Errorf("a whole cache: converted again: %v, %q, want %q", converted, again, want)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "v*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the cache holds %v, %v", dirs, err)
	}
	leftovers := []string{filepath.Join(cache, ".building-1"), filepath.Join(cache, "v0-none-64")}
	for name, damage := range map[string]func(dir string) error{
		"no graph":    func(dir string) error { return os.Remove(filepath.Join(dir, "model.onnx")) },
		"empty graph": func(dir string) error { return os.Truncate(filepath.Join(dir, "model.onnx"), 0) },
		"cut graph":   func(dir string) error { return os.Truncate(filepath.Join(dir, "model.onnx"), 1000) },
		"no weights":  func(dir string) error { return os.Remove(filepath.Join(dir, "weights.bin")) },
		"cut weights": func(dir string) error { return os.Truncate(filepath.Join(dir, "weights.bin"), 1000) },
		"all gone":    os.RemoveAll,
	} {
		for _, dir := range leftovers {
			if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := damage(dirs[0]); err != nil {
			t.Fatal(err)
		}
		if got, converted := load(); !converted || got != want {
			t.Errorf("%s: converted again: %v, %q, want %q", name, converted, got, want)
		}
		for _, dir := range leftovers {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %s is still there: %v", name, dir, err)
			}
		}
	}
}

// TestLoadStopsWaitingForTheCache ends a load while another process converts.
func TestLoadStopsWaitingForTheCache(t *testing.T) {
	openRuntime(t)
	cache := t.TempDir()
	f, err := os.Create(filepath.Join(cache, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	_, err = loadCached(ctx, t, cache, func() { t.Error("it converted") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lock the cache") {
		t.Errorf("got %v, want the end of the context", err)
	}
}
