package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/engine/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs gen behind a socket until the test ends.
func serve(t testing.TB, srv *worker.Server) (client *worker.Client, stop func() error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "w.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	if srv.Log == nil {
		srv.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, ln) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	client, err = worker.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(errors.Join(err, stop()))
	}
	t.Cleanup(func() {
		client.Close()
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return client, stop
}

func TestClientKeepsTheContract(t *testing.T) {
	client, _ := serve(t, &worker.Server{Generator: &enginetest.Mock{Slots: 2, Queue: 2}})
	enginetest.CheckGenerator(t, client)
}

func TestModelAndHealth(t *testing.T) {
	mock := &enginetest.Mock{Info: engine.ModelInfo{Name: "small", Parameters: 1 << 40}, Slots: 3}
	client, _ := serve(t, &worker.Server{Generator: mock})
	if got, want := client.Model(), mock.Model(); got != want {
		t.Errorf("Model: %+v, want %+v", got, want)
	}
	if err := client.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
}

// generator is an engine.Generator made of one function.
type generator func(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error

func (generator) Model() engine.ModelInfo { return engine.ModelInfo{Name: "func"} }
func (g generator) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	return g(ctx, req, emit)
}

func TestErrorsCrossTheSocket(t *testing.T) {
	bad := &engine.RequestError{Param: "messages", Code: engine.CodeTemplate, Message: "no user message"}
	tests := []struct {
		name  string
		err   error
		check func(error) bool
	}{
		{"request", fmt.Errorf("render: %w", bad), func(err error) bool {
			got := new(engine.RequestError)
			return errors.As(err, &got) && *got == *bad
		}},
		{"overloaded", fmt.Errorf("queue: %w", engine.ErrOverloaded), func(err error) bool { return errors.Is(err, engine.ErrOverloaded) }},
		{"unavailable", fmt.Errorf("gone: %w", engine.ErrUnavailable), func(err error) bool { return errors.Is(err, engine.ErrUnavailable) }},
		{"internal", errors.New("tensor is NaN"), func(err error) bool {
			got := new(worker.RemoteError)
			return errors.As(err, &got) && strings.Contains(got.Message, "tensor is NaN")
		}},
	}
	for _, events := range []int{0, 2} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s after %d events", tt.name, events), func(t *testing.T) {
				client, _ := serve(t, &worker.Server{Generator: generator(func(_ context.Context, _ *engine.GenerateRequest, emit func(*engine.Event) error) error {
					for range events {
						if err := emit(&engine.Event{Text: "x"}); err != nil {
							return err
						}
					}
					return tt.err
				})})
				got := 0
				err := client.Generate(t.Context(), &engine.GenerateRequest{}, func(*engine.Event) error { got++; return nil })
				if !tt.check(err) || got != events {
					t.Errorf("got %v after %d events", err, got)
				}
			})
		}
	}
}

func TestPanicCostsOneRequest(t *testing.T) {
	client, _ := serve(t, &worker.Server{Generator: generator(func(_ context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
		if req.Prompt == "bomb" {
			panic("index out of range")
		}
		return emit(&engine.Event{Text: "fine"})
	})})
	got := new(worker.RemoteError)
	err := client.Generate(t.Context(), &engine.GenerateRequest{Prompt: "bomb"}, func(*engine.Event) error { return nil })
	if !errors.As(err, &got) || !strings.Contains(got.Message, "panic: index out of range") {
		t.Errorf("the bad request: %v", err)
	}
	if err := client.Generate(t.Context(), &engine.GenerateRequest{}, func(*engine.Event) error { return nil }); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestGeneratorWithoutEvents(t *testing.T) {
	client, _ := serve(t, &worker.Server{Generator: generator(func(context.Context, *engine.GenerateRequest, func(*engine.Event) error) error { return nil })})
	err := client.Generate(t.Context(), &engine.GenerateRequest{}, func(*engine.Event) error { return nil })
	if !errors.As(err, new(*worker.RemoteError)) {
		t.Errorf("got %v, want a RemoteError", err)
	}
}

// TestCancelReachesTheGenerator waits until the worker's own context ends.
func TestCancelReachesTheGenerator(t *testing.T) {
	for name, end := range map[string]func(cancel func()) error{
		"context":    func(cancel func()) error { cancel(); return nil },
		"emit error": func(func()) error { return io.ErrShortWrite },
	} {
		t.Run(name, func(t *testing.T) {
			freed := make(chan error, 1)
			client, _ := serve(t, &worker.Server{Generator: generator(func(ctx context.Context, _ *engine.GenerateRequest, emit func(*engine.Event) error) error {
				if err := emit(&engine.Event{Text: "x"}); err != nil {
					return err
				}
				<-ctx.Done()
				freed <- ctx.Err()
				return ctx.Err()
			})})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := client.Generate(ctx, &engine.GenerateRequest{}, func(*engine.Event) error { return end(cancel) })
			if !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("Generate: %v", err)
			}
			select {
			case <-freed:
			case <-time.After(2 * time.Second):
				t.Error("the generator runs on after its client is gone")
			}
		})
	}
}

func TestDrainFinishesRequests(t *testing.T) {
	mock := &enginetest.Mock{StepDelay: 20 * time.Millisecond}
	client, stop := serve(t, &worker.Server{Generator: mock})
	stopped := make(chan error, 1)
	started := false
	answer := 0
	err := client.Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 10}, func(e *engine.Event) error {
		answer += len(e.Tokens)
		if !started {
			started = true
			go func() { stopped <- stop() }()
		}
		return nil
	})
	if err != nil || answer != 10 {
		t.Errorf("during a drain: %d tokens, %v; want all 10", answer, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
	err = client.Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 1}, func(*engine.Event) error { return nil })
	if !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("after the drain: %v, want ErrUnavailable", err)
	}
}

// TestDrainDropsUnusedConnections checks that a connection that was opened in
// vain does not hold the end up.
func TestDrainDropsUnusedConnections(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "w.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Serve(ctx, ln, &enginetest.Mock{}) }()
	idle, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	client, err := worker.Dial(t.Context(), socket) // accepted after the idle one
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	begun := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
}

func TestDrainCutsWhatLasts(t *testing.T) {
	mock := &enginetest.Mock{StepDelay: time.Millisecond}
	client, stop := serve(t, &worker.Server{Generator: mock, DrainTimeout: 50 * time.Millisecond})
	stopped := make(chan error, 1)
	var once sync.Once
	err := client.Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 4000}, func(*engine.Event) error {
		once.Do(func() { go func() { stopped <- stop() }() })
		return nil
	})
	if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("got %v, want ErrUnavailable because of the shutdown", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestCutAnswers serves broken answers by hand.
func TestCutAnswers(t *testing.T) {
	event := `{"event":{"choice":0,"text":"x"}}` + "\n"
	tests := []struct {
		name, body string
		check      func(error) bool
	}{
		{"cut between records", event, func(err error) bool { return errors.Is(err, engine.ErrUnavailable) }},
		{"cut inside a record", event + `{"ev`, func(err error) bool { return errors.Is(err, engine.ErrUnavailable) }},
		{"nothing", "", func(err error) bool { return errors.Is(err, engine.ErrUnavailable) }},
		{"not JSON", "<html>\n", func(err error) bool { return errors.As(err, new(*worker.RemoteError)) }},
		{"empty record", "{}\n", func(err error) bool { return errors.As(err, new(*worker.RemoteError)) }},
		{"long line", event + strings.Repeat(" ", 1<<20) + `{"done":true}` + "\n", func(err error) bool { return err == nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := byHand(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) })
			err := client.Generate(t.Context(), &engine.GenerateRequest{}, func(*engine.Event) error { return nil })
			if !tt.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnswerThatIsNoAnswer(t *testing.T) {
	client := byHand(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "teapot", http.StatusTeapot) })
	err := client.Generate(t.Context(), &engine.GenerateRequest{}, func(*engine.Event) error { return nil })
	if got := new(worker.RemoteError); !errors.As(err, &got) || !strings.Contains(got.Message, "418") {
		t.Errorf("got %v, want a RemoteError with 418", err)
	}
}

// byHand is a client of a server that answers /generate with h.
func byHand(t *testing.T, h http.HandlerFunc) *worker.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "w.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(engine.ModelInfo{}) })
	mux.HandleFunc("POST /generate", h)
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(ln) }()
	client, err := worker.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); _ = srv.Close() })
	return client
}

func TestBadRequestBodies(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	ln, err := worker.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Serve(ctx, ln, &enginetest.Mock{}) }()
	defer func() { cancel(); <-ended }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	for _, tt := range []struct {
		name string
		body io.Reader
		want string
	}{
		{"not JSON", strings.NewReader("nope"), "not valid JSON"},
		{"unknown field", strings.NewReader(`{"temprature":1}`), "temprature"},
		{"deep", strings.NewReader(`{"prompt":` + strings.Repeat("[", 100_000)), "not valid JSON"},
		{"too large", io.LimitReader(anything{}, worker.MaxRequest+1), "more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://w/generate", tt.body)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), tt.want) {
				t.Errorf("got %d %s, want 400 with %q", resp.StatusCode, body, tt.want)
			}
		})
	}
}

// anything has bytes without end; what they are does not matter.
type anything struct{}

func (anything) Read(p []byte) (int, error) { return len(p), nil }

func TestManyStreams(t *testing.T) {
	client, _ := serve(t, &worker.Server{Generator: &enginetest.Mock{}})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			a, err := enginetest.Collect(t.Context(), t, client, &engine.GenerateRequest{MaxTokens: 20, Seed: uint64(i)})
			if err != nil || len(a.Tokens[0]) != 20 {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// BenchmarkClient_Generate streams through a socket with both ends in this
// process: 200 streams at the same time, one event and one flush per token.
func BenchmarkClient_Generate(b *testing.B) {
	for _, streams := range []int{1, 200} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			client, _ := serve(b, &worker.Server{Generator: &enginetest.Mock{}})
			const tokens = 250
			events := 0
			b.ReportAllocs()
			for b.Loop() {
				var wg sync.WaitGroup
				for range streams {
					wg.Go(func() {
						err := client.Generate(b.Context(), &engine.GenerateRequest{MaxTokens: tokens}, func(*engine.Event) error { return nil })
						if err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				events += streams * (tokens + 2)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
