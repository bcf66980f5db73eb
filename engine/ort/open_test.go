//go:build cgo

package ort_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/ort"
	"athanor/engine/ort/orttest"
)

// A process opens one library, so each of these runs in a process of its own:
// the test binary starts itself again with the name of the test.
func alone(t *testing.T, body func(t *testing.T)) {
	const env = "ATHANOR_TEST_ALONE"
	library := orttest.Library(t)
	if os.Getenv(env) == t.Name() {
		body(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name(), orttest.Env+"="+library)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOpenRefuses(t *testing.T) {
	alone(t, func(t *testing.T) {
		text := filepath.Join(t.TempDir(), "libonnxruntime.so")
		if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, library := range map[string]string{"none": "", "missing": text + ".1", "text": text, "folder": t.TempDir()} {
			if rt, err := ort.Open(ort.Options{Library: library}); err == nil {
				rt.Close()
				t.Errorf("%s: no error", name)
			}
		}
		if libc, err := filepath.Glob("/lib/*/libz.so.1"); err == nil && len(libc) > 0 {
			if _, err := ort.Open(ort.Options{Library: libc[0]}); err == nil || !strings.Contains(err.Error(), "not ONNX Runtime") {
				t.Errorf("another library: got %v", err)
			}
		}
		rt := orttest.Open(t) // a failure does not spoil the process
		if !strings.HasPrefix(rt.Name(), "onnxruntime 1.") {
			t.Errorf("got %q", rt.Name())
		}
		if _, err := ort.Open(ort.Options{Library: text}); !errors.Is(err, ort.ErrLoaded) {
			t.Errorf("a second library: got %v, want ErrLoaded", err)
		}
	})
}

// The library's complaints reach the log, not the terminal.
func TestLog(t *testing.T) {
	alone(t, func(t *testing.T) {
		var log bytes.Buffer
		to := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		rt, err := ort.Open(ort.Options{Library: orttest.Library(t), LogTo: to})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close()
		m := computetest.Model(&onnx.Graph{ // a declared shape that cannot be
			Nodes:   []*onnx.Node{computetest.Node("MatMul", []string{"x", "x"}, []string{"y"})},
			Inputs:  []onnx.ValueInfo{computetest.Value("x", onnx.Float, 2, 2)},
			Outputs: []onnx.ValueInfo{computetest.Value("y", onnx.Float, 3, 3)},
		})
		if p, err := rt.Compile(m, compute.Options{}); err == nil {
			p.Close()
		}
		if !to.Enabled(context.Background(), slog.LevelDebug) || !strings.Contains(log.String(), "onnxruntime: ") {
			t.Errorf("got %q", log.String())
		}
	})
}

func TestCloseRuntime(t *testing.T) {
	library := orttest.Library(t)
	rt, err := ort.Open(ort.Options{Library: library})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := rt.NewBuffer(1, 1); !errors.Is(err, compute.ErrClosed) {
		t.Errorf("NewBuffer: got %v, want ErrClosed", err)
	}
	if _, err := rt.Compile(computetest.Model(&onnx.Graph{}), compute.Options{}); !errors.Is(err, compute.ErrClosed) {
		t.Errorf("Compile: got %v, want ErrClosed", err)
	}
}
