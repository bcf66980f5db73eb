package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"athanor/server/rest"
)

// TestSmuggling puts a whole request into bodies that no operation reads. It
// must never be served, and an honest next request on a connection that stays
// open must be.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	served := make(chan string, 100)
	w := newWorld(t, rest.Limits{},
		rest.Get("/smuggled", "x", rest.AnyKey, func(context.Context, *rest.None) (*rest.None, error) { served <- "smuggled"; return nil, nil }),
		rest.Get("/honest", "x", rest.AnyKey, func(context.Context, *rest.None) (*rest.None, error) { served <- "honest"; return nil, nil }),
		rest.Post("/ignores", "x", rest.AnyKey, func(context.Context, *rest.None) (*rest.None, error) { return nil, nil }),
		rest.Post("/reads", "x", rest.AnyKey, func(context.Context, *deep) (*rest.None, error) { return nil, nil }))
	addr := w.listen(t)
	const auth = "Host: x\r\nAuthorization: Bearer good\r\n"
	const honest = "GET /v1/honest HTTP/1.1\r\n" + auth + "Connection: close\r\n\r\n"
	const smuggled = "GET /v1/smuggled HTTP/1.1\r\n" + auth + "\r\n"
	sized := func(path, headers, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
	}
	chunked := func(path, headers, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", path, headers, len(body), body)
	}
	type test struct {
		name, text string
		status     int
		open       bool // the next request is served
	}
	tests := []test{
		{"chunked, ignored", chunked("/v1/ignores", auth, smuggled), 204, false},
		{"chunked, read", chunked("/v1/reads", auth, "{}"), 204, true},
		{"chunked, not JSON", chunked("/v1/reads", auth, "{}"+smuggled), 400, true},
		{"chunked, no key", chunked("/v1/reads", "Host: x\r\n", smuggled), 401, false},
		{"chunked, no route", chunked("/v1/none", auth, smuggled), 404, false},
		{"trailing bytes of a chunk", "POST /v1/reads HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}" + smuggled, 400, false},
		{"both lengths", "POST /v1/reads HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 400, false},
		{"both lengths, body", "POST /v1/reads HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\ncontent-length: 12\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + smuggled, 400, false},
		{"two lengths", "POST /v1/reads HTTP/1.1\r\n" + auth + "Content-Length: 2\r\nContent-Length: 50\r\n\r\n{}" + smuggled, 400, false},
		{"length and trailing data", sized("/v1/reads", auth, "{}"+smuggled), 400, true},
		{"head with a body", "GET /v1/honest HTTP/1.1\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n", 9000) + strings.Repeat("A", 9000-len(smuggled)) + smuggled, 204, false},
	}
	for _, pad := range []int{0, 4096, 8000, 8100, 8150, 8192, 16384, 100_000} {
		body := strings.Repeat("A", pad) + smuggled
		open := len(body) <= 8192
		tests = append(tests,
			test{fmt.Sprintf("ignored after %d", pad), sized("/v1/ignores", auth, body), 204, open},
			test{fmt.Sprintf("no route after %d", pad), sized("/v1/none", auth, body), 404, open},
			test{fmt.Sprintf("no key after %d", pad), sized("/v1/reads", "Host: x\r\n", body), 401, open})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			br := bufio.NewReader(raw(t, addr, tt.text+honest))
			if got := response(t, br); got.status != tt.status {
				t.Errorf("got %d %s, want %d", got.status, got.body, tt.status)
			}
			rest, err := io.ReadAll(br)
			if err != nil {
				t.Errorf("the connection did not end cleanly: %v", err)
			}
			if open := strings.HasPrefix(string(rest), "HTTP/1.1 204"); open != tt.open || strings.Count(string(rest), "HTTP/1.1") > 1 {
				t.Errorf("next request served: %v, want %v: %q", open, tt.open, rest)
			}
			for len(served) > 0 {
				if name := <-served; name == "smuggled" {
					t.Error("the smuggled request was served")
				}
			}
		})
	}
}

func TestTooLargeIsAnsweredUnread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{Body: 20_000},
		rest.Post("/reads", "x", rest.AnyKey, func(context.Context, *deep) (*rest.None, error) { return nil, nil }),
		rest.Post("/large", "x", rest.AnyKey, func(context.Context, *deep) (*rest.None, error) { return nil, nil }, rest.BodyLimit(1<<20)))
	addr := w.listen(t)
	const head = "POST /v1/reads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
	t.Run("by length", func(t *testing.T) {
		t.Parallel()
		// 100 MB are announced and 9 KB sent: the answer must not wait for more.
		got := response(t, bufio.NewReader(raw(t, addr, head+"Content-Length: 104857600\r\n\r\n"+strings.Repeat("x", 9000))))
		if e := got.error(t); got.status != 413 || str(e.Code) != "request_too_large" || !got.close {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
	t.Run("by chunks", func(t *testing.T) {
		t.Parallel()
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 10_000, strings.Repeat("x", 10_000))
		got := response(t, bufio.NewReader(raw(t, addr, head+"Transfer-Encoding: chunked\r\n\r\n"+chunk+chunk+chunk)))
		if got.status != 413 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
	t.Run("own limit", func(t *testing.T) {
		t.Parallel()
		if got := w.do(t, "POST", "/v1/large", `{"x":"`+strings.Repeat("x", 500_000)+`"}`); got.status != 204 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
	t.Run("a client that sends it all", func(t *testing.T) {
		t.Parallel()
		// The response must survive what was still on its way.
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/reads", io.LimitReader(zeros{}, 20<<20))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer good")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, resp); got.status != 413 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBodyThatStopsComing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{Read: 100 * time.Millisecond},
		rest.Post("/reads", "x", rest.AnyKey, func(context.Context, *deep) (*rest.None, error) { return nil, nil }))
	addr := w.listen(t)
	const head = "POST /v1/reads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
	for name, text := range map[string]string{
		"small":   head + "Content-Length: 100\r\n\r\n{",
		"large":   head + "Content-Length: 20000\r\n\r\n" + strings.Repeat(" ", 10_000),
		"chunked": head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := response(t, bufio.NewReader(raw(t, addr, text)))
			if e := got.error(t); got.status != 408 || str(e.Code) != "request_timeout" {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
}
