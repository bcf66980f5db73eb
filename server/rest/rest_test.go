package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/kit"
	"athanor/server/rest"
)

// keys is an Authenticator of fixed keys.
type keys map[string]*rest.Principal

var _ rest.Authenticator = keys(nil)

func (k keys) Authenticate(_ context.Context, key string) (*rest.Principal, error) {
	if p := k[key]; p != nil {
		return p, nil
	}
	return nil, api.Unauthorized("invalid_api_key", "unknown key")
}

var testKeys = keys{
	"good":   {KeyID: "key-1", ProjectID: "proj-1", OrgRole: rest.RoleDeveloper, ProjectRole: rest.RoleEditor},
	"viewer": {KeyID: "key-2", ProjectID: "proj-1", OrgRole: rest.RoleDeveloper},
}

// journal is a log that a test can read while it is written.
type journal struct {
	mu sync.Mutex
	bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Buffer.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Buffer.String()
}

// world is a server under test with what it reports.
type world struct {
	*rest.Server
	log     *journal
	samples chan rest.Sample
}

func newWorld(t testing.TB, limits rest.Limits, ops ...rest.Op) *world {
	t.Helper()
	w := &world{log: &journal{}, samples: make(chan rest.Sample, 4096)}
	n := 0
	var mu sync.Mutex
	s, err := rest.New(rest.Config{
		Ops: ops, Auth: testKeys, Limits: limits,
		Observe: func(s rest.Sample) { w.samples <- s },
		Kit: kit.Kit{
			Now:   time.Now,
			NewID: func(p string) string { mu.Lock(); defer mu.Unlock(); n++; return fmt.Sprintf("%s-%d", p, n) },
			Log:   slog.New(slog.NewTextHandler(w.log, nil)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Server = s
	return w
}

// listen serves w on a local port until the test ends.
func (w *world) listen(t testing.TB, wrap ...func(net.Listener) net.Listener) (addr string) {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	for _, f := range wrap {
		ln = f(ln)
	}
	done := make(chan error, 1)
	go func() { done <- w.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.Shutdown(ctx); err != nil && err != rest.ErrClosed {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != rest.ErrClosed {
			t.Errorf("Serve returned %v, want ErrClosed", err)
		}
	})
	return addr
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	close  bool // the connection ends here
}

func (a answer) error(t testing.TB) api.Error {
	t.Helper()
	var body struct{ Error *api.Error }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error == nil {
		t.Fatalf("no error body in %d %q", a.status, a.body)
	}
	return *body.Error
}

// do sends one request over a connection in memory with the good key; headers
// are "name: value" and may replace it.
func (w *world) do(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequestWithContext(t.Context(), method, path, r)
	req.Header.Set("Authorization", "Bearer good")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.Test(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return read(t, resp)
}

func read(t testing.TB, resp *http.Response) answer {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatalf("close body: %v", err)
	}
	return answer{resp.StatusCode, resp.Header, string(b), resp.Close}
}

// raw writes text to a new connection and returns the connection.
func raw(t testing.TB, addr, text string) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// response reads one response from a raw connection.
func response(t testing.TB, br *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("read response: %v", err)
	}
	return read(t, resp)
}

// within fails the test when c does not deliver in time.
func within[T any](t testing.TB, d time.Duration, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(d):
		t.Fatalf("%s: nothing within %s", what, d)
		panic("unreachable")
	}
}
