package object_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"athanor/store/object"
	"athanor/store/object/objecttest"

	"github.com/minio/minio-go/v7"
)

// TestMain takes the pauses out of the client's repetitions.
func TestMain(m *testing.M) {
	minio.DefaultRetryUnit = time.Millisecond
	os.Exit(m.Run())
}

// small makes every part as small as the protocol allows.
func small(c object.S3Config) object.S3Config {
	c.PartSize = 5 << 20
	return c
}

func openS3(t *testing.T, c object.S3Config) object.Store {
	t.Helper()
	s, err := object.OpenS3(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3(t *testing.T) {
	server := objecttest.StartS3(t)
	n := 0
	objecttest.Run(t, func(t *testing.T) object.Store {
		n++
		c := small(server.Config(t, fmt.Sprint("bucket-", n)))
		if n%2 == 0 {
			c.Prefix = "shared/athanor"
		}
		t.Cleanup(func() {
			for _, file := range server.Files(t, c.Bucket) {
				if strings.Contains(file, "multipart") || strings.Contains(file, "probe") {
					t.Errorf("the server still holds %s", file)
				}
			}
		})
		return openS3(t, c)
	})
}

func TestS3Prefixes(t *testing.T) {
	t.Parallel()
	server := objecttest.StartS3(t)
	plain := server.Config(t, "bucket")
	one, other := plain, plain
	one.Prefix, other.Prefix = "one", "one-more/"
	a, b, all := openS3(t, one), openS3(t, other), openS3(t, plain)
	for name, s := range map[string]object.Store{"a": a, "b": b} {
		if _, err := s.Put(t.Context(), "k/"+name, strings.NewReader(name), 1); err != nil {
			t.Fatal(err)
		}
	}
	for want, s := range map[string]object.Store{"k/a": a, "k/b": b, "one-more/k/b one/k/a": all} {
		var got []string
		list, err := s.List(t.Context(), "", "", 0)
		for _, info := range list {
			got = append(got, info.Key)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("List = %q, %v, want %q", got, err, want)
		}
	}
	if _, err := a.Stat(t.Context(), "k/b"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("a store sees its neighbour's blob: %v", err)
	}
}

func TestS3Presign(t *testing.T) {
	t.Parallel()
	server := objecttest.StartS3(t)
	s := openS3(t, server.Config(t, "bucket"))
	if _, err := s.Put(t.Context(), "a b/ü", strings.NewReader("content"), 7); err != nil {
		t.Fatal(err)
	}
	url, err := s.(object.Presigner).PresignGet(t.Context(), "a b/ü", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{"": http.StatusOK, "&x=y": http.StatusForbidden} {
		resp, err := http.Get(url + query)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want || want == http.StatusOK && string(data) != "content" {
			t.Errorf("GET with %q: %d %q, want %d", query, resp.StatusCode, data, want)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Second, 8 * 24 * time.Hour} {
		if _, err := s.(object.Presigner).PresignGet(t.Context(), "a", ttl); err == nil {
			t.Errorf("a URL for %v", ttl)
		}
	}
}

func TestOpenS3Refuses(t *testing.T) {
	t.Parallel()
	server := objecttest.StartS3(t)
	good := server.Config(t, "bucket")
	tests := []struct {
		name   string
		change func(*object.S3Config)
		want   error  // nil: any
		text   string // what the message has to say
	}{
		{"wrong secret", func(c *object.S3Config) { c.SecretKey = "wrong-secret" }, object.ErrDenied, "secret key"},
		{"unknown access key", func(c *object.S3Config) { c.AccessKey = "nobody" }, object.ErrDenied, "access key"},
		{"no bucket", func(c *object.S3Config) { c.Bucket = "nowhere" }, object.ErrUnavailable, `no bucket "nowhere"`},
		{"bad bucket name", func(c *object.S3Config) { c.Bucket = "a/../b" }, nil, "ucket"},
		{"bad prefix", func(c *object.S3Config) { c.Prefix = "../up" }, object.ErrInvalidKey, "prefix"},
		{"small parts", func(c *object.S3Config) { c.PartSize = 1 << 20 }, nil, "part size"},
		{"bad endpoint", func(c *object.S3Config) { c.Endpoint = "no host" }, nil, "host"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := good
			tt.change(&c)
			_, err := object.OpenS3(t.Context(), c)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %v with %q", err, tt.want, tt.text)
			}
			if strings.Contains(err.Error(), c.SecretKey) {
				t.Errorf("the message shows the secret: %v", err)
			}
			t.Log(err)
		})
	}
}

func TestS3ServerGone(t *testing.T) {
	t.Parallel()
	server := objecttest.StartS3(t)
	c := server.Config(t, "bucket")
	s := openS3(t, c)
	if _, err := s.Put(t.Context(), "a", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, errPut := s.Put(t.Context(), "a", strings.NewReader("x"), 1)
	_, _, errGet := s.Get(t.Context(), "a", 0, -1)
	_, errOpen := object.OpenS3(t.Context(), c)
	for name, err := range map[string]error{"Put": errPut, "Get": errGet, "OpenS3": errOpen} {
		if !errors.Is(err, object.ErrUnavailable) || !strings.Contains(err.Error(), c.Endpoint) {
			t.Errorf("%s: %v, want ErrUnavailable with the address", name, err)
		}
	}
	t.Log(errPut)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stat(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// A server that takes conditional writes and ignores the condition loses leases.
func TestOpenS3RefusesUnsafeServer(t *testing.T) {
	t.Parallel()
	var deleted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"1"`)
		if r.Method == http.MethodDelete {
			deleted = append(deleted, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	c := object.S3Config{Endpoint: server.Listener.Addr().String(), Bucket: "bucket", AccessKey: "a", SecretKey: "s", Insecure: true}
	_, err := object.OpenS3(t.Context(), c)
	if !errors.Is(err, object.ErrNoConditionalWrites) {
		t.Errorf("got %v, want ErrNoConditionalWrites", err)
	}
	if len(deleted) != 1 || !strings.HasPrefix(deleted[0], "/bucket/.athanor-probe/") {
		t.Errorf("the probe has removed %q", deleted)
	}
}

// sickServer passes the probe of OpenS3 and then fails in the way of the test.
func sickServer(t *testing.T, fail http.HandlerFunc) object.Store {
	t.Helper()
	var probed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := strings.Contains(r.URL.Path, ".athanor-probe/")
		switch {
		case probe && r.Method == http.MethodPut && probed.Add(1) == 2:
			w.WriteHeader(http.StatusPreconditionFailed)
		case probe && r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case probe:
			w.Header().Set("ETag", `"1"`)
		default:
			fail(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return openS3(t, object.S3Config{Endpoint: server.Listener.Addr().String(), Bucket: "bucket", AccessKey: "a", SecretKey: "s", Insecure: true})
}

func TestS3CutOffAnswer(t *testing.T) {
	t.Parallel()
	s := sickServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("Last-Modified", "Fri, 21 Nov 2025 00:00:00 GMT")
		_, _ = w.Write([]byte("only this"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r, _, err := s.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut-off answer reads as %q, %v", data, err)
	}
}

func TestS3FailingAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{
		http.StatusInternalServerError: object.ErrUnavailable,
		http.StatusServiceUnavailable:  object.ErrUnavailable,
		http.StatusForbidden:           object.ErrDenied,
		http.StatusNotFound:            object.ErrNotFound,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := sickServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			if _, _, err := s.Get(t.Context(), "k", 0, -1); !errors.Is(err, want) {
				t.Errorf("Get: %v, want %v", err, want)
			}
			if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, want) {
				t.Errorf("Stat: %v, want %v", err, want)
			}
		})
	}
}

func TestS3ConfigHidesTheSecret(t *testing.T) {
	t.Parallel()
	c := object.S3Config{Endpoint: "h:1", Bucket: "b", AccessKey: "access", SecretKey: "hush"}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v %v %s", c, &c, c), c.LogValue().String()} {
		if strings.Contains(text, "hush") {
			t.Errorf("the secret shows in %q", text)
		}
	}
}
