package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/rest"
)

type itemReq struct {
	ID    string   `path:"id" json:"-"`
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Deep  deep     `json:"deep"`
	Kinds []string `query:"kind" json:"-"`
	Limit *int     `query:"limit" json:"-"`
}

type deep struct {
	Flag *bool `json:"flag"`
}

func (r *itemReq) Validate() error {
	if r.Count < 0 {
		return api.Invalid("count", "count must not be negative")
	}
	return nil
}

type itemResp struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Kinds []string `json:"kinds"`
	Limit *int     `json:"limit"`
	Key   string   `json:"key"`
	Req   string   `json:"req"`
}

func echo(ctx context.Context, r *itemReq) (*itemResp, error) {
	return &itemResp{ID: r.ID, Name: r.Name, Kinds: r.Kinds, Limit: r.Limit, Key: rest.Caller(ctx).KeyID, Req: rest.RequestID(ctx)}, nil
}

func TestOrdinaryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{}, rest.Post("/items/:id", "items", rest.AnyKey, echo))
	for _, prefix := range rest.Prefixes() {
		got := w.do(t, "POST", prefix+"/items/a%2Fb.c-1?kind=x,y&kind=z&kind[]=u&limit=3&other=1", `{"name":"n","unknown":1}`)
		want := fmt.Sprintf(`{"id":"a/b.c-1","name":"n","kinds":["x","y","z","u"],"limit":3,"key":"key-1","req":%q}`, got.header.Get("X-Request-Id"))
		if got.status != 200 || got.body != want {
			t.Errorf("got %d %s, want %s", got.status, got.body, want)
		}
		if ct := got.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("got content-type %q", ct)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	calls := 0
	count := func(context.Context, *itemReq) (*itemResp, error) { calls++; return nil, nil }
	w := newWorld(t, rest.Limits{Body: 300 << 10},
		rest.Post("/items/:id", "items", rest.AnyKey, count, rest.Inference()),
		rest.Post("/strict/:id", "items", rest.AnyKey, count, rest.Strict()),
		rest.Post("/edit/:id", "items", rest.ProjectEditor, count))
	tests := []struct {
		name, method, path, body, headers string
		status                            int
		code, param, message              string
	}{
		{name: "no key", body: "{", headers: "Authorization: ", status: 401, code: "missing_api_key", message: "no API key"},
		{name: "only scheme", headers: "Authorization: Bearer", status: 401, code: "missing_api_key"},
		{name: "other scheme", headers: "Authorization: Basic Z29vZA==", status: 401, code: "invalid_api_key", message: "must be: Bearer"},
		{name: "two keys", headers: "Authorization: Bearer good good", status: 401, code: "invalid_api_key"},
		{name: "unknown key", body: "{", headers: "Authorization: Bearer bad", status: 401, code: "invalid_api_key"},
		{name: "role", path: "/v1/edit/1", body: "{", headers: "Authorization: Bearer viewer", status: 403, message: "project editor"},
		{name: "empty body", body: " ", status: 400, message: "empty"},
		{name: "null", body: "null", status: 400, message: "must be a JSON object, got null"},
		{name: "array", body: "[]", status: 400, message: "must be an object, got an array"},
		{name: "string", body: `"x"`, status: 400, message: "must be an object, got a string"},
		{name: "trailing data", body: `{"name":"x"}{}`, status: 400, message: "not valid JSON"},
		{name: "cut", body: `{"name":`, status: 400, message: "not valid JSON"},
		{name: "wrong type", body: `{"name":3}`, status: 400, param: "name", message: "name must be a string, got a number"},
		{name: "fraction", body: `{"count":1.5}`, status: 400, param: "count", message: "count must be an integer, got 1.5"},
		{name: "too large a number", body: `{"count":1e99}`, status: 400, param: "count"},
		{name: "nested", body: `{"deep":{"flag":"yes"}}`, status: 400, param: "deep.flag", message: "must be a boolean, got a string"},
		{name: "twice", body: `{"name":"a","name":"b"}`, status: 400, param: "name", message: "name is given twice"},
		{name: "twice and unknown", body: `{"u":{"a":1,"a":2}}`, status: 400, param: "u.a"},
		{name: "invalid UTF-8", body: "{\"name\":\"\xff\"}", status: 400, param: "name", message: "UTF-8"},
		{name: "depth", body: `{"x":` + strings.Repeat("[", 100_000), status: 400, message: "depth"},
		{name: "validate", body: `{"count":-1}`, status: 400, param: "count", message: "must not be negative"},
		{name: "query type", path: "/v1/items/1?limit=x", body: `{}`, status: 400, param: "limit", message: `limit must be an integer, got "x"`},
		{name: "query twice", path: "/v1/items/1?limit=1&limit=2", body: `{}`, status: 400, param: "limit", message: "given twice"},
		{name: "strict body", path: "/v1/strict/1", body: `{"deep":{"extra":1}}`, status: 400, param: "deep.extra", message: "unknown field"},
		{name: "strict case", path: "/v1/strict/1", body: `{"Name":"x"}`, status: 400, param: "Name", message: "unknown field"},
		{name: "strict query", path: "/v1/strict/1?foo=1", body: `{}`, status: 400, param: "foo", message: "unknown query parameter"},
		{name: "form", body: `{}`, headers: "Content-Type: application/x-www-form-urlencoded", status: 415, code: "unsupported_media_type", message: "application/json"},
		{name: "charset", body: `{}`, headers: "Content-Type: application/json; charset=latin1", status: 415, code: "unsupported_media_type"},
		{name: "gzip", body: `{}`, headers: "Content-Encoding: gzip", status: 415, code: "unsupported_media_type", message: "content-encoding"},
		{name: "too large", body: `{"name":"` + strings.Repeat("x", 300<<10) + `"}`, status: 413, code: "request_too_large"},
		{name: "unknown route", path: "/v1/_stainless_unknown_path", headers: "Authorization: ", status: 404, code: "unknown_url", message: "POST /v1/_stainless_unknown_path"},
		{name: "no base", path: "/items/1", status: 404, code: "unknown_url"},
		{name: "wrong case", path: "/v1/ITEMS/1", status: 404, code: "unknown_url"},
		{name: "wrong method", method: "DELETE", headers: "Authorization: ", status: 405, code: "method_not_allowed"},
		{name: "no such method", method: "BREW", status: 405, code: "method_not_allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			method, path := "POST", "/v1/items/1"
			if tt.method != "" {
				method = tt.method
			}
			if tt.path != "" {
				path = tt.path
			}
			var headers []string
			if tt.headers != "" {
				headers = append(headers, tt.headers)
			}
			got := w.do(t, method, path, tt.body, headers...)
			e := got.error(t)
			if got.status != tt.status || str(e.Code) != tt.code || str(e.Param) != tt.param || !strings.Contains(e.Message, tt.message) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			for _, key := range []string{`"message":`, `"type":`, `"param":`, `"code":`} {
				if strings.Count(got.body, key) != 1 {
					t.Errorf("key %s is not there once in %s", key, got.body)
				}
			}
			if got.header.Get("X-Request-Id") == "" {
				t.Error("no x-request-id")
			}
			if inference := strings.HasPrefix(path, "/v1/items/1") && method == "POST"; inference != (got.header.Get("X-Ratelimit-Reset") == "0") {
				t.Errorf("got x-ratelimit-reset %q", got.header.Get("X-Ratelimit-Reset"))
			}
		})
	}
	if calls != 0 {
		t.Errorf("the operation ran %d times", calls)
	}
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{}, rest.Post("/items/:id", "items", rest.AnyKey, echo))
	for _, ct := range []string{"", "application/json", "application/json; charset=UTF-8", "Application/JSON"} {
		if got := w.do(t, "POST", "/v1/items/1", `{}`, "Content-Type: "+ct); got.status != 200 {
			t.Errorf("content-type %q: got %d %s", ct, got.status, got.body)
		}
	}
}

func TestErrorsOfOperations(t *testing.T) {
	t.Parallel()
	plain := errors.New("disk on fire")
	tests := []struct {
		name   string
		fn     func() error
		status int
		header string
		want   string
		body   string
	}{
		{"unknown", func() error { return plain }, 500, "", "", `{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`},
		{"panic", func() error { panic("boom") }, 500, "", "", `{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`},
		{"wrapped", func() error { return fmt.Errorf("get: %w", api.NotFound("no item x")) }, 404, "", "", `{"error":{"message":"no item x","type":"invalid_request_error","param":null,"code":"not_found"}}`},
		{"conflict", func() error { return api.Conflict("stale") }, 409, "X-Should-Retry", "false", ""},
		{"overloaded", func() error { return api.Overloaded(1500*time.Millisecond, "busy") }, 503, "Retry-After", "2", ""},
		{"rate limit", func() error { return api.New(429, api.TypeRateLimit, "x", "slow down") }, 429, "X-Ratelimit-Reset", "1", ""},
		{"not UTF-8", func() error { return api.Conflict("a\xffb") }, 409, "", "", `{"error":{"message":"a?b","type":"conflict","param":null,"code":null}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rest.Limits{}, rest.Get("/x", "x", rest.AnyKey, func(context.Context, *rest.None) (*itemResp, error) { return nil, tt.fn() }, rest.Inference()))
			got := w.do(t, "GET", "/v1/x", "")
			if got.status != tt.status || tt.body != "" && got.body != tt.body {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if tt.header != "" && got.header.Get(tt.header) != tt.want {
				t.Errorf("got %s %q, want %q", tt.header, got.header.Get(tt.header), tt.want)
			}
			within(t, time.Second, w.samples, "sample")
			line := w.log.String()
			if tt.status == 500 && !strings.Contains(line, "disk on fire") && !strings.Contains(line, "stack=") {
				t.Errorf("the cause is not in the log: %s", line)
			}
			if tt.status == 500 && !strings.Contains(line, `op="GET /x" status=500`) {
				t.Errorf("no access line: %s", line)
			}
		})
	}
}

// TestLongMessagesAreCut: an error that repeats the client's text stays short.
func TestLongMessagesAreCut(t *testing.T) {
	long := api.Invalid("x", "bad: %s", strings.Repeat("\u00e9", 100_000))
	w := newWorld(t, rest.Limits{}, rest.Get("/long", "t", rest.AnyKey, func(context.Context, *rest.None) (*rest.None, error) { return nil, long }))
	a := w.do(t, "GET", "/v1/long", "")
	e := a.error(t)
	if a.status != 400 || len(e.Message) > 2100 || !strings.HasPrefix(e.Message, "bad: \u00e9") || !strings.HasSuffix(e.Message, "\u00e9...") {
		t.Errorf("%d with a message of %d bytes: %.40s", a.status, len(e.Message), e.Message)
	}
	if len(long.Message) < 200_000 {
		t.Error("the operation's own error was changed")
	}
}

func TestStatusesOfSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{},
		rest.Post("/made", "x", rest.AnyKey, func(context.Context, *rest.None) (*itemResp, error) { return &itemResp{}, nil }, rest.Created()),
		rest.Delete("/made", "x", rest.AnyKey, func(context.Context, *rest.None) (*rest.None, error) { return nil, nil }),
		rest.Put("/opt", "x", rest.AnyKey, func(_ context.Context, r *deep) (*deep, error) { return r, nil }, rest.OptionalBody()),
		rest.Patch("/unencodable", "x", rest.AnyKey, func(context.Context, *rest.None) (*map[string]any, error) {
			return &map[string]any{"f": func() {}}, nil
		}))
	tests := []struct {
		method, path string
		status       int
		body         string
	}{
		{"POST", "/v1/made", 201, `{"id":"","name":"","kinds":[],"limit":null,"key":"","req":""}`},
		{"DELETE", "/v2/made", 204, ""},
		{"PUT", "/v1/opt", 200, `{"flag":null}`},
		{"PATCH", "/v1/unencodable", 500, `{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`},
	}
	for _, tt := range tests {
		if got := w.do(t, tt.method, tt.path, ""); got.status != tt.status || got.body != tt.body {
			t.Errorf("%s %s: got %d %s", tt.method, tt.path, got.status, got.body)
		}
	}
}

func TestMostSpecificRouteWins(t *testing.T) {
	t.Parallel()
	say := func(s string) func(context.Context, *rest.None) (*string, error) {
		return func(context.Context, *rest.None) (*string, error) { return &s, nil }
	}
	type one struct {
		ID string `path:"id" json:"-"`
	}
	id := func(_ context.Context, r *one) (*string, error) { return &r.ID, nil }
	w := newWorld(t, rest.Limits{},
		rest.Get("/models/*id", "x", rest.AnyKey, id),
		rest.Get("/videos/:id", "x", rest.AnyKey, id),
		rest.Get("/videos/:id/content", "x", rest.AnyKey, id),
		rest.Get("/videos/retrieve", "x", rest.AnyKey, say("literal")),
		rest.Get("/videos", "x", rest.AnyKey, say("list")))
	for path, want := range map[string]string{
		"/videos": `"list"`, "/videos/": `"list"`, "/videos/retrieve": `"literal"`, "/videos/video-1.x": `"video-1.x"`,
		"/videos/v1/content": `"v1"`, "/models/a": `"a"`, "/models/meta/Llama-3:x": `"meta/Llama-3:x"`, "/models/meta%2Fb%20c": `"meta/b c"`,
	} {
		if got := w.do(t, "GET", "/v1"+path, ""); got.body != want {
			t.Errorf("%s: got %d %s, want %s", path, got.status, got.body, want)
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{})
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`} {
		if got := w.do(t, "GET", path, "", "Authorization: "); got.status != 200 || got.body != want {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
	if got := w.do(t, "GET", "/metrics", ""); got.status != 404 {
		t.Errorf("metrics without a source: got %d", got.status)
	}
	if err := w.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.do(t, "GET", "/readyz", ""); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("ready while shutting down: got %d %s", got.status, got.body)
	}
}

func TestSamplesAndAccessLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{}, rest.Post("/items/:id", "items", rest.AnyKey, echo))
	w.do(t, "POST", "/v1/items/secret-path?q=secret-query", `{"name":"secret-body"}`)
	s := within(t, time.Second, w.samples, "sample")
	if s.Op.Name() != "POST /items/:id" || s.Status != 200 || s.In != int64(len(`{"name":"secret-body"}`)) || s.Out == 0 || s.Failed || s.Streamed {
		t.Errorf("got %+v", s)
	}
	line := w.log.String()
	for _, want := range []string{`op="POST /items/:id"`, "status=200", "req=req-1", "key=key-1", "ms="} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	if strings.Contains(line, "secret") || strings.Contains(line, "good") {
		t.Errorf("a secret is in the log: %s", line)
	}
	w.do(t, "GET", "/v1/none", "")
	if s := within(t, time.Second, w.samples, "sample"); s.Op != nil || s.Status != http.StatusNotFound || !s.Failed {
		t.Errorf("got %+v", s)
	}
}

func TestMalformedHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rest.Limits{Header: 4096}, rest.Post("/items/:id", "items", rest.AnyKey, echo))
	addr := w.listen(t)
	const good = "POST /v1/items/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n\r\n{}"
	tests := []struct {
		name, text string
		status     int
		code       string
	}{
		{"not HTTP", "hello\r\n\r\n", 400, "malformed_request"},
		{"bad length", "POST /v1/items/1 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400, "malformed_request"},
		{"large head", "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 8192) + "\r\n\r\n", 431, "request_header_too_large"},
		{"bad chunk", "POST /v1/items/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A readable request goes before: what it left behind must not leak.
			br := bufio.NewReader(raw(t, addr, good+tt.text))
			first := response(t, br)
			got := response(t, br)
			if e := got.error(t); first.status != 200 || got.status != tt.status || str(e.Code) != tt.code {
				t.Errorf("got %d, then %d %s", first.status, got.status, got.body)
			}
			if id := got.header.Get("X-Request-Id"); id == "" || id == first.header.Get("X-Request-Id") {
				t.Errorf("got x-request-id %q", id)
			}
		})
	}
}
