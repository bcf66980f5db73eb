package rest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/kit"
	"athanor/server/rest"
)

type named struct {
	Name string `query:"name" json:"-"`
}

type heard struct {
	Type   string `json:"type"`
	Length int64  `json:"length"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// drain reads the body to its end.
func drain(_ context.Context, _ *rest.None, b *rest.Body) (*heard, error) {
	h := sha256.New()
	n, err := io.Copy(h, b)
	if err != nil {
		return nil, err
	}
	return &heard{b.Type, b.Length, n, hex.EncodeToString(h.Sum(nil))}, nil
}

// parts lists the parts of a multipart body.
func parts(_ context.Context, _ *rest.None, b *rest.Body) (*struct {
	Names []string `json:"names"`
}, error) {
	r, err := b.Parts()
	if err != nil {
		return nil, err
	}
	out := &struct {
		Names []string `json:"names"`
	}{}
	for {
		p, err := r.NextPart()
		if err == io.EOF { // a wrapped one means that the end is missing
			return out, nil
		}
		if err != nil {
			return nil, rest.PartError(err)
		}
		n, err := io.Copy(io.Discard, p)
		if err != nil {
			return nil, rest.PartError(err)
		}
		out.Names = append(out.Names, fmt.Sprint(p.FormName(), " ", n))
	}
}

var content = bytes.Repeat([]byte("0123456789"), 1000)

func download(_ context.Context, r *named) (*rest.Reply, error) {
	c := &rest.Content{Size: int64(len(content)), ETag: "abc", Type: "text/plain"}
	c.Open = func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		switch r.Name {
		case "missing":
			return nil, api.NotFound("it is gone")
		case "short":
			return io.NopCloser(strings.NewReader("too little")), nil
		case "panic":
			return io.NopCloser(panics{}), nil
		}
		return io.NopCloser(io.NewSectionReader(bytes.NewReader(content), offset, length)), nil
	}
	if r.Name == "empty" {
		c.Size = 0
	}
	return &rest.Reply{Content: c}, nil
}

type panics struct{}

func (panics) Read([]byte) (int, error) { panic("read") }

func rawServer(t *testing.T, now func() time.Time) (*rest.Server, *rest.Links) {
	t.Helper()
	k := kit.New(slog.New(slog.DiscardHandler))
	k.Now = now
	links := rest.NewLinks([]byte(strings.Repeat("s", 32)), now)
	s, err := rest.New(rest.Config{Auth: testKeys, Kit: k, Links: links, Ops: []rest.Op{
		rest.PostBody("/drain", "x", rest.AnyKey, drain, rest.BodyLimit(1<<20)),
		rest.PostBody("/parts", "x", rest.AnyKey, parts, rest.BodyLimit(1<<20)),
		rest.Get("/content", "x", rest.AnyKey, download),
		rest.Post("/go", "x", rest.AnyKey, func(ctx context.Context, _ *rest.None) (*rest.Reply, error) {
			return rest.Redirect(rest.BaseURL(ctx)+"/there", map[string]string{"x-together-file-id": "file-1"}), nil
		}),
		rest.PutBody("/linked/:id", "x", rest.Signed, func(ctx context.Context, r *struct {
			ID string `path:"id" json:"-"`
		}, b *rest.Body) (*rest.Reply, error) {
			if rest.Caller(ctx) != nil {
				return nil, errors.New("a link has no caller")
			}
			_, err := io.Copy(io.Discard, b)
			return &rest.Reply{Header: map[string]string{"etag": `"` + r.ID + `"`}}, err
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, links
}

// call sends a request and returns the response with its body.
func call(t *testing.T, s *rest.Server, method, target, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, "http://athanor:81/v1"+target, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer good")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Test(req)
	if err != nil { // cut before the head was out
		return nil, "error: " + err.Error()
	}
	data, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return resp, "error: " + err.Error()
	}
	return resp, string(data)
}

func TestRawBody(t *testing.T) {
	t.Parallel()
	s, _ := rawServer(t, time.Now)
	sum := sha256.Sum256([]byte("hello"))
	resp, body := call(t, s, "POST", "/drain", "hello", "Content-Type", "Text/Plain; charset=x")
	want := fmt.Sprintf(`{"type":"text/plain","length":5,"bytes":5,"sha256":"%x"}`, sum)
	if resp.StatusCode != 200 || body != want {
		t.Errorf("got %d %s, want %s", resp.StatusCode, body, want)
	}
	if resp, body = call(t, s, "POST", "/drain", strings.Repeat("x", 1<<20+1)); resp.StatusCode != 413 {
		t.Errorf("over the limit: got %d %s", resp.StatusCode, body)
	}
	if resp, body = call(t, s, "POST", "/drain", "x", "Content-Encoding", "gzip"); resp.StatusCode != 415 {
		t.Errorf("compressed: got %d %s", resp.StatusCode, body)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for _, name := range []string{"purpose", "file"} {
		f, err := w.CreateFormFile(name, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, strings.Repeat("y", 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if resp, body = call(t, s, "POST", "/parts", form.String()+"epilogue", "Content-Type", w.FormDataContentType()); body != `{"names":["purpose 100","file 100"]}` {
		t.Errorf("multipart: got %d %s", resp.StatusCode, body)
	}
	for name, broken := range map[string]string{"cut": form.String()[:150], "empty": "", "no boundary": "hello"} {
		if resp, body = call(t, s, "POST", "/parts", broken, "Content-Type", w.FormDataContentType()); resp.StatusCode != 400 {
			t.Errorf("multipart, %s: got %d %s", name, resp.StatusCode, body)
		}
	}
	if resp, body = call(t, s, "POST", "/parts", "x", "Content-Type", "multipart/form-data"); resp.StatusCode != 415 {
		t.Errorf("no boundary named: got %d %s", resp.StatusCode, body)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	s, _ := rawServer(t, time.Now)
	all := string(content)
	tests := []struct {
		name, query, header string
		status              int
		want, contentRange  string
	}{
		{"all", "", "", 200, all, ""},
		{"first two", "", "bytes=0-1", 206, "01", "bytes 0-1/10000"},
		{"middle", "", "bytes=15-24", 206, "5678901234", "bytes 15-24/10000"},
		{"open end", "", "bytes=9995-", 206, "56789", "bytes 9995-9999/10000"},
		{"last", "", "bytes=-3", 206, "789", "bytes 9997-9999/10000"},
		{"more than there is", "", "bytes=-99999", 206, all, "bytes 0-9999/10000"},
		{"end behind the end", "", "bytes=9999-20000", 206, "9", "bytes 9999-9999/10000"},
		{"several", "", "bytes=0-1,4-5", 200, all, ""},
		{"other unit", "", "lines=0-1", 200, all, ""},
		{"backwards", "", "bytes=5-1", 200, all, ""},
		{"not numbers", "", "bytes=a-b", 200, all, ""},
		{"nothing", "", "bytes=-", 200, all, ""},
		{"signed number", "", "bytes=+1-2", 200, all, ""},
		{"empty", "?name=empty", "", 200, "", ""},
	}
	for _, tt := range tests {
		resp, body := call(t, s, "GET", "/content"+tt.query, "", "Range", tt.header)
		if resp.StatusCode != tt.status || body != tt.want || resp.Header.Get("Content-Range") != tt.contentRange {
			t.Errorf("%s: got %d %q, %d bytes", tt.name, resp.StatusCode, resp.Header.Get("Content-Range"), len(body))
		}
		if resp.ContentLength != int64(len(tt.want)) || resp.Header.Get("Etag") != `"abc"` || resp.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%s: length %d, headers %v", tt.name, resp.ContentLength, resp.Header)
		}
	}
	for _, header := range []string{"bytes=10000-", "bytes=20000-20001", "bytes=-0"} {
		resp, body := call(t, s, "GET", "/content", "", "Range", header)
		if resp.StatusCode != 416 || resp.Header.Get("Content-Range") != "bytes */10000" || !strings.Contains(body, "range_not_satisfiable") {
			t.Errorf("%s: got %d %s %s", header, resp.StatusCode, resp.Header.Get("Content-Range"), body)
		}
	}
	if resp, _ := call(t, s, "GET", "/content", "", "Range", "bytes=0-1", "If-Range", `"other"`); resp.StatusCode != 200 {
		t.Errorf("If-Range of another version: got %d", resp.StatusCode)
	}
	if resp, body := call(t, s, "GET", "/content", "", "Range", "bytes=0-1", "If-Range", `"abc"`); resp.StatusCode != 206 {
		t.Errorf("If-Range of this version: got %d %s", resp.StatusCode, body)
	}
	if resp, body := call(t, s, "GET", "/content?name=missing", ""); resp.StatusCode != 404 || resp.Header.Get("Etag") != "" {
		t.Errorf("gone: got %d %s", resp.StatusCode, body)
	}
	for _, name := range []string{"short", "panic"} {
		if _, body := call(t, s, "GET", "/content?name="+name, ""); !strings.HasPrefix(body, "error: ") {
			t.Errorf("%s: the client got %d bytes without noticing", name, len(body))
		}
	}
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	s, _ := rawServer(t, time.Now)
	resp, body := call(t, s, "POST", "/go", "")
	if got := resp.Header.Get("Location"); resp.StatusCode != 302 || got != "http://athanor:81/v1/there" || body != "" || resp.Header.Get("X-Together-File-Id") != "file-1" {
		t.Errorf("got %d %q %q", resp.StatusCode, got, body)
	}
	if resp, _ = call(t, s, "POST", "/go", "", "X-Forwarded-Proto", "https"); !strings.HasPrefix(resp.Header.Get("Location"), "https://") {
		t.Errorf("behind TLS: %s", resp.Header.Get("Location"))
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	s, links := rawServer(t, func() time.Time { return now })
	good := links.Sign("PUT", "/linked/a", now.Add(time.Second))
	for _, base := range []string{"/v1", "/v2"} {
		req := httptest.NewRequestWithContext(t.Context(), "PUT", "http://athanor"+base+good, strings.NewReader("hello"))
		resp, err := s.Test(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 || resp.Header.Get("Etag") != `"a"` {
			t.Errorf("%s: got %d %v", base, resp.StatusCode, err)
		}
	}
	bad := map[string]string{
		"another path":   strings.Replace(good, "/linked/a", "/linked/b", 1),
		"another time":   strings.Replace(good, "expires=1000001", "expires=1000009", 1),
		"another method": links.Sign("GET", "/linked/a", now.Add(time.Second)),
		"no signature":   "/linked/a?expires=1000001",
		"no link":        "/linked/a",
	}
	for name, link := range bad {
		if resp, body := call(t, s, "PUT", link, "x"); resp.StatusCode != 401 || !strings.Contains(body, "invalid_signature") {
			t.Errorf("%s: got %d %s", name, resp.StatusCode, body)
		}
	}
	now = now.Add(time.Second)
	if resp, body := call(t, s, "PUT", good, "x"); resp.StatusCode != 401 || !strings.Contains(body, "link_expired") {
		t.Errorf("too late: got %d %s", resp.StatusCode, body)
	}
}
