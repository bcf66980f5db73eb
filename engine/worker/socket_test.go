package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine/enginetest"
	"athanor/engine/worker"
)

func TestListenIsPrivate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	info, err := os.Lstat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got&0o077 != 0 {
		t.Errorf("mode %v, others may open it", got)
	}
}

func TestListenReplacesStaleSocketsOnly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Listen(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v, want a refusal", err)
	}
	socket := filepath.Join(dir, "w.sock")
	first, err := worker.Listen(socket) // stays open: a dead process leaves the file, too
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := worker.Listen(socket)
	if err != nil {
		t.Fatalf("over a socket: %v", err)
	}
	_ = second.Close()
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("a", 100), strings.Repeat("b", 100))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "w1.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Serve(ctx, ln, &enginetest.Mock{}) }()
	client, err := worker.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Health(t.Context()); err != nil {
		t.Error(err)
	}
	client.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is still there")
	}
	if _, err := worker.Listen(filepath.Join(dir, strings.Repeat("n", 110))); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a name that cannot fit: %v", err)
	}
}
