package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/server/app"
	"athanor/server/config"
)

// serve is the server's process: it prints its address and key, serves until
// its standard input ends, and prints what the mock took.
func serve(f flags) (err error) {
	dir, err := os.MkdirTemp("", "overhead-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	cfg := config.Default()
	cfg.Data = dir
	mock := &timed{mock: enginetest.Mock{StepDelay: f.delay}}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, err := app.Open(ctx, cfg, app.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Generator: mock})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr(), a.FirstKey())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	finish, err := profile(f.profile)
	if err != nil {
		return err
	}
	if err := errors.Join(a.Serve(ctx, ln), finish()); err != nil {
		return err
	}
	return mock.print()
}

// profile writes a CPU profile until finish is called.
func profile(path string) (finish func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	w, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return func() error { pprof.StopCPUProfile(); return w.Close() }, nil
}

// timed is a mock that knows how long it took by itself.
type timed struct {
	mock enginetest.Mock

	mu   sync.Mutex // guards list
	list []timing
}

var _ engine.Generator = (*timed)(nil)

func (m *timed) Model() engine.ModelInfo { return m.mock.Model() }

// Generate plays the mock; the last message's name is the stream's id.
func (m *timed) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	var message struct{ Content string }
	if err := json.Unmarshal(req.Messages[len(req.Messages)-1], &message); err != nil {
		return err
	}
	t := timing{ID: message.Content}
	began, away := time.Now(), time.Duration(0)
	err := m.mock.Generate(ctx, req, func(ev *engine.Event) error {
		left := time.Now()
		if t.First == 0 && len(ev.Tokens) > 0 {
			t.First = left.Sub(began) - away
		}
		err := emit(ev)
		away += time.Since(left)
		return err
	})
	t.Total = time.Since(began) - away
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, t)
	return err
}

func (m *timed) print() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	enc := json.NewEncoder(os.Stdout)
	for _, t := range m.list {
		if err := enc.Encode(t); err != nil {
			return err
		}
	}
	return nil
}
