package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
)

// closingMock notes that the worker closed it.
type closingMock struct {
	enginetest.Mock
	closed chan struct{}
}

func (m *closingMock) Close() error { close(m.closed); return nil }

// start runs a child in this process and returns the parent's ends.
func start(ctx context.Context, load Loader) (in *io.PipeWriter, ready *io.PipeReader, orphaned chan struct{}, ended chan error) {
	inR, inW := io.Pipe()
	readyR, readyW := io.Pipe()
	orphaned, ended = make(chan struct{}), make(chan error, 1)
	c := child{in: inR, ready: readyW, orphaned: func() { close(orphaned) }}
	go func() { ended <- c.run(ctx, load, nil); _ = readyW.Close() }()
	return inW, readyR, orphaned, ended
}

func TestChildLife(t *testing.T) {
	slog.SetLogLoggerLevel(slog.LevelError)
	ctx, cancel := context.WithCancel(t.Context())
	mock := &closingMock{closed: make(chan struct{})}
	var got Spec
	in, ready, orphaned, ended := start(ctx, func(_ context.Context, s Spec) (engine.Generator, error) { got = s; return mock, nil })
	launch := Launch{Socket: filepath.Join(t.TempDir(), "w.sock"), DrainTimeout: time.Second, Spec: Spec{Name: "m", Dir: "/models/m", Threads: 2}}
	if _, err := launch.WriteTo(in); err != nil {
		t.Fatal(err)
	}
	client, err := AwaitReady(ready, launch.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if got != launch.Spec {
		t.Errorf("the child got %+v, want %+v", got, launch.Spec)
	}
	if client.Model() != mock.Model() {
		t.Errorf("announced %+v, want %+v", client.Model(), mock.Model())
	}
	if _, err := enginetest.Collect(t.Context(), t, client, &engine.GenerateRequest{MaxTokens: 3}); err != nil {
		t.Errorf("Generate: %v", err)
	}
	client.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	<-mock.closed
	if _, err := os.Lstat(launch.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	_ = in.Close()
	<-orphaned
}

func TestChildThatCannotLoad(t *testing.T) {
	in, ready, orphaned, ended := start(t.Context(), func(context.Context, Spec) (engine.Generator, error) {
		return nil, errors.New("model.safetensors: offset 12 is past the end")
	})
	socket := filepath.Join(t.TempDir(), "w.sock")
	if _, err := (Launch{Socket: socket}).WriteTo(in); err != nil {
		t.Fatal(err)
	}
	_, err := AwaitReady(ready, socket)
	if got := new(LoadError); !errors.As(err, &got) || !strings.Contains(got.Message, "offset 12") {
		t.Errorf("got %v, want a LoadError with the reason", err)
	}
	if err := <-ended; err == nil {
		t.Error("run ended without an error")
	}
	_ = in.Close()
	<-orphaned
}

func TestChildNoticesTheEndOfItsInput(t *testing.T) {
	loading := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	in, ready, orphaned, ended := start(ctx, func(ctx context.Context, _ Spec) (engine.Generator, error) {
		close(loading)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if _, err := (Launch{Socket: filepath.Join(t.TempDir(), "w.sock")}).WriteTo(in); err != nil {
		t.Fatal(err)
	}
	<-loading // stuck in a load, as in a call into the runtime
	_ = in.Close()
	select {
	case <-orphaned:
	case <-time.After(2 * time.Second):
		t.Error("not noticed")
	}
	cancel()
	_ = ready.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
}

func TestBadLaunch(t *testing.T) {
	for name, text := range map[string]string{"not JSON": "hello\n", "cut": `{"socket":`, "too long": strings.Repeat(" ", maxControl+1) + "\n"} {
		t.Run(name, func(t *testing.T) {
			c := child{in: strings.NewReader(text), ready: nopCloser{io.Discard}, orphaned: func() {}}
			if err := c.run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "read launch") {
				t.Errorf("got %v", err)
			}
		})
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestAwaitReadyRefusesNonsense(t *testing.T) {
	for name, text := range map[string]string{"dead": "", "not JSON": "ready\n", "empty": "{}\n", "cut": `{"ready":{`, "endless": strings.Repeat("x", maxControl+10)} {
		t.Run(name, func(t *testing.T) {
			if c, err := AwaitReady(strings.NewReader(text), "/none"); err == nil {
				t.Errorf("got a client of %+v", c.Model())
			}
		})
	}
}

func TestRunByHand(t *testing.T) {
	var st syscall.Stat_t
	if err := syscall.Fstat(readyFD, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFIFO {
		t.Skip("descriptor 3 of this test process happens to be a pipe")
	}
	if err := Run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "not by hand") {
		t.Errorf("got %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"event":{"choice":0,"text":"x"}}` + "\n" + `{"done":true}` + "\n"))
	f.Add([]byte(`{"error":{"kind":"request","message":"m"}}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		events := 0
		err := read(context.Background(), strings.NewReader(string(body)), func(*engine.Event) error { events++; return nil })
		if err == nil && !strings.Contains(strings.ToLower(string(body)), "done") {
			t.Errorf("%q ended well after %d events", body, events)
		}
	})
}
