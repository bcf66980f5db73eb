package rest_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/rest"
)

type tick struct {
	N int `json:"n"`
}

// streamOp is POST /stream with the given function.
func streamOp(fn func(ctx context.Context, ev *rest.Events) (*tick, error)) rest.Op {
	return rest.PostStream("/stream", "x", rest.AnyKey,
		func(ctx context.Context, _ *rest.None, ev *rest.Events) (*tick, error) { return fn(ctx, ev) }, rest.Inference())
}

func send(n int, then error) func(context.Context, *rest.Events) (*tick, error) {
	return func(_ context.Context, ev *rest.Events) (*tick, error) {
		for i := range n {
			if err := ev.Send(tick{i}); err != nil {
				return nil, err
			}
		}
		return nil, then
	}
}

func TestStreamBodies(t *testing.T) {
	t.Parallel()
	const internal = `{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`
	tests := []struct {
		name   string
		fn     func(context.Context, *rest.Events) (*tick, error)
		status int
		body   string
	}{
		{"events", send(2, nil), 200, "data: {\"n\":0}\n\ndata: {\"n\":1}\n\ndata: [DONE]\n\n"},
		{"no event", send(0, nil), 200, "data: [DONE]\n\n"},
		{"ordinary", func(context.Context, *rest.Events) (*tick, error) { return &tick{7}, nil }, 200, `{"n":7}`},
		{"last object", func(ctx context.Context, ev *rest.Events) (*tick, error) { return &tick{7}, ev.Send(tick{1}) }, 200, "data: {\"n\":1}\n\ndata: {\"n\":7}\n\ndata: [DONE]\n\n"},
		{"error before", send(0, api.Invalid("model", "no such model")), 400, `{"error":{"message":"no such model","type":"invalid_request_error","param":"model","code":null}}`},
		{"error after", send(1, api.Overloaded(0, "worker lost")), 200, "data: {\"n\":0}\n\ndata: {\"error\":{\"message\":\"worker lost\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}\n\n"},
		{"panic before", func(context.Context, *rest.Events) (*tick, error) { panic("boom") }, 500, internal},
		{"panic after", func(_ context.Context, ev *rest.Events) (*tick, error) {
			if err := ev.Send(tick{0}); err != nil {
				return nil, err
			}
			panic("boom")
		}, 200, "data: {\"n\":0}\n\ndata: " + internal + "\n\n"},
		{"cannot be encoded", func(_ context.Context, ev *rest.Events) (*tick, error) {
			return nil, errors.Join(ev.Send(tick{0}), ev.Send(func() {}))
		}, 200, "data: {\"n\":0}\n\ndata: " + internal + "\n\n"},
		{"panics while encoded", func(_ context.Context, ev *rest.Events) (*tick, error) { return nil, ev.Send(bomb{}) }, 500, internal},
		{"large event", func(_ context.Context, ev *rest.Events) (*tick, error) {
			return nil, ev.Send(strings.Repeat("x", 300_000))
		}, 200, "data: \"" + strings.Repeat("x", 300_000) + "\"\n\ndata: [DONE]\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rest.Limits{}, streamOp(tt.fn))
			got := w.do(t, "POST", "/v1/stream", "")
			if got.status != tt.status || got.body != tt.body {
				t.Errorf("got %d %q", got.status, got.body)
			}
			if stream := strings.HasPrefix(tt.body, "data:"); stream != strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
				t.Errorf("got content-type %q", got.header.Get("Content-Type"))
			}
			if got.header.Get("X-Ratelimit-Reset") == "" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("headers are missing: %v", got.header)
			}
			s := within(t, time.Second, w.samples, "sample")
			if failed := strings.Contains(tt.body, `"error"`); s.Failed != failed || s.Streamed != strings.HasPrefix(tt.body, "data:") || s.Out != int64(len(got.body)) {
				t.Errorf("got sample %+v", s)
			}
			if strings.Contains(tt.name, "panic ") && !strings.Contains(w.log.String(), "stack=") {
				t.Errorf("no stack in the log: %s", w.log)
			}
		})
	}
}

// bomb panics when it is encoded.
type bomb struct{}

func (bomb) MarshalJSON() ([]byte, error) { panic("boom") }

func TestEventsArriveAsTheyAreSent(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	w := newWorld(t, rest.Limits{}, streamOp(func(_ context.Context, ev *rest.Events) (*tick, error) {
		for i := range 3 {
			if err := ev.Send(tick{i}); err != nil {
				return nil, err
			}
			<-next
		}
		return nil, nil
	}))
	addr := w.listen(t)
	resp := post(t, http.DefaultTransport, "http://"+addr)
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := br.ReadString('\n'); err != nil || line != fmt.Sprintf("data: {\"n\":%d}\n", i) {
			t.Fatalf("got %q, %v", line, err)
		}
		if _, err := br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(br); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func post(t testing.TB, transport http.RoundTripper, base string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer good")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestAbandonedRequests drops the connection while the operation works, over
// TCP and TLS, before and after the first event, in both kinds of operation.
func TestAbandonedRequests(t *testing.T) {
	t.Parallel()
	cert := certificate(t)
	for _, secure := range []bool{false, true} {
		for _, kind := range []string{"plain", "before", "after"} {
			t.Run(fmt.Sprintf("%s tls=%v", kind, secure), func(t *testing.T) {
				t.Parallel()
				working, freed := make(chan struct{}), make(chan error, 1)
				work := func(ctx context.Context) error {
					close(working)
					<-ctx.Done()
					freed <- context.Cause(ctx)
					return ctx.Err()
				}
				op := streamOp(func(ctx context.Context, ev *rest.Events) (*tick, error) {
					if kind == "after" {
						if err := ev.Send(tick{0}); err != nil {
							return nil, err
						}
					}
					return nil, work(ctx)
				})
				if kind == "plain" {
					op = rest.Post("/stream", "x", rest.AnyKey, func(ctx context.Context, _ *rest.None) (*tick, error) { return nil, work(ctx) })
				}
				w := newWorld(t, rest.Limits{}, op)
				c := dial(t, w, secure, cert)
				if _, err := io.WriteString(c, "POST /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				within(t, time.Second, working, "operation")
				if kind == "after" {
					if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
						t.Fatalf("got %q, %v", line, err)
					}
				}
				start := time.Now()
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				within(t, time.Second, freed, "end of the context")
				t.Logf("freed after %s", time.Since(start))
				if took := time.Since(start); took > 500*time.Millisecond {
					t.Errorf("freed only after %s", took)
				}
				if s := within(t, time.Second, w.samples, "sample"); s.Status != 499 {
					t.Errorf("got sample %+v", s)
				}
			})
		}
	}
}

func dial(t *testing.T, w *world, secure bool, cert tls.Certificate) net.Conn {
	t.Helper()
	if !secure {
		return raw(t, w.listen(t), "")
	}
	addr := w.listen(t, func(ln net.Listener) net.Listener {
		return tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}})
	})
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "localhost"}}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestClientThatStopsReading fills the network's buffers: Send must wait, not
// hoard, and the stream must end when no room comes.
func TestClientThatStopsReading(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	w := newWorld(t, rest.Limits{Write: 300 * time.Millisecond}, streamOp(func(_ context.Context, ev *rest.Events) (*tick, error) {
		for {
			if err := ev.Send(strings.Repeat("x", 32<<10)); err != nil {
				ended <- err
				return nil, err
			}
		}
	}))
	c := raw(t, w.listen(t), "POST /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
	within(t, 5*time.Second, ended, "end of the stream")
	if s := within(t, time.Second, w.samples, "sample"); s.Status != 499 || s.Out > 64<<20 {
		t.Errorf("got sample %+v", s)
	}
	_ = c.Close()
}

func TestShutdownEndsStreamsFirst(t *testing.T) {
	t.Parallel()
	release, working := make(chan struct{}), make(chan struct{}, 2)
	w := newWorld(t, rest.Limits{},
		streamOp(func(ctx context.Context, ev *rest.Events) (*tick, error) {
			if err := ev.Send(tick{0}); err != nil {
				return nil, err
			}
			working <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}),
		rest.Post("/waiting", "x", rest.AnyKey, func(ctx context.Context, _ *deep) (*tick, error) {
			working <- struct{}{}
			<-release
			return &tick{1}, ctx.Err()
		}),
		rest.PostStream("/early", "x", rest.AnyKey, func(ctx context.Context, _ *rest.None, _ *rest.Events) (*tick, error) {
			working <- struct{}{}
			<-ctx.Done()
			return nil, fmt.Errorf("generate: %w", ctx.Err())
		}))
	addr := w.listen(t)
	idle := raw(t, addr, "") // has sent nothing
	stream := post(t, http.DefaultTransport, "http://"+addr)
	const head = " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n\r\n{}"
	plain := bufio.NewReader(raw(t, addr, "POST /v1/waiting"+head))
	early := bufio.NewReader(raw(t, addr, "POST /v1/early"+head))
	for range 3 {
		within(t, time.Second, working, "operations")
	}
	done := make(chan error, 1)
	go func() { done <- w.Shutdown(context.Background()) }()

	body, err := io.ReadAll(stream.Body)
	want := "data: {\"n\":0}\n\ndata: {\"error\":{\"message\":\"the server is shutting down\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}\n\n"
	if err != nil || string(body) != want {
		t.Errorf("stream: got %q, %v", body, err)
	}
	if got := response(t, early); got.status != 503 || got.header.Get("Retry-After") != "1" {
		t.Errorf("stream before its first event: got %d %s", got.status, got.body)
	}
	select {
	case err := <-done:
		t.Errorf("Shutdown did not wait for the request: %v", err)
	default:
	}
	close(release)
	if got := response(t, plain); got.status != 200 || got.body != `{"n":1}` || !got.close {
		t.Errorf("request: got %d %s", got.status, got.body)
	}
	if err := within(t, 3*time.Second, done, "shutdown"); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection survived")
	}
	if err := w.Shutdown(t.Context()); err != rest.ErrClosed {
		t.Errorf("second shutdown: got %v", err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(ln); !errors.Is(err, rest.ErrClosed) {
		t.Errorf("serve after shutdown: got %v", err)
	}
}

func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	working, freed := make(chan struct{}), make(chan struct{})
	w := newWorld(t, rest.Limits{}, rest.Post("/stuck", "x", rest.AnyKey, func(ctx context.Context, _ *rest.None) (*tick, error) {
		close(working)
		<-ctx.Done()
		close(freed)
		return nil, ctx.Err()
	}))
	raw(t, w.listen(t), "POST /v1/stuck HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
	within(t, time.Second, working, "operation")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	within(t, time.Second, freed, "end of the request")
}

func TestManyStreams(t *testing.T) {
	t.Parallel()
	const streams, events = 200, 50
	var together sync.WaitGroup
	together.Add(streams)
	w := newWorld(t, rest.Limits{}, streamOp(func(_ context.Context, ev *rest.Events) (*tick, error) {
		together.Done()
		together.Wait() // all at once, or the test does not end
		return send(events, nil)(nil, ev)
	}))
	transport := &http.Transport{MaxIdleConns: streams}
	defer transport.CloseIdleConnections()
	addr := w.listen(t)
	var clients sync.WaitGroup
	for range streams {
		clients.Go(func() {
			resp := post(t, transport, "http://"+addr)
			body, err := io.ReadAll(resp.Body)
			if err != nil || strings.Count(string(body), "data: ") != events+1 || !strings.HasSuffix(string(body), "[DONE]\n\n") {
				t.Errorf("got %d bytes, %v", len(body), err)
			}
		})
	}
	clients.Wait()
}

// TestReusedConnection sends many requests over one connection: a stream must
// leave it in order.
func TestReusedConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{}, streamOp(send(3, nil)))
	c := raw(t, w.listen(t), "")
	br := bufio.NewReader(c)
	for i := range 20 {
		if _, err := io.WriteString(c, "POST /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := response(t, br); got.status != 200 || !strings.HasSuffix(got.body, "[DONE]\n\n") {
			t.Fatalf("request %d: got %d %q", i, got.status, got.body)
		}
	}
}
