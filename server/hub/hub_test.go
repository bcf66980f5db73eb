package hub

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"athanor/server/egress"
)

// model is a small repository.
func model() map[string]string {
	return map[string]string{
		"config.json": `{"model_type":"llama"}`, "model.safetensors": noise(100_000), "sub/more.safetensors": noise(10), "README.md": "", "pytorch_model.bin": "pickle",
	}
}

func notPickle(name string) bool { return !strings.HasSuffix(name, ".bin") }

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantTree(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := tree(t, dir)
	if !maps.Equal(got, want) {
		t.Errorf("the directory has %v", slices.Sorted(maps.Keys(got)))
	}
}

func wanted(files map[string]string) map[string]string {
	out := maps.Clone(files)
	delete(out, "pytorch_model.bin")
	return out
}

func TestFetch(t *testing.T) {
	tests := []struct {
		name  string
		fault func(*hubServer)
		waits int
	}{
		{"whole", func(*hubServer) {}, 0},
		{"cut three times", func(s *hubServer) { s.cuts = []int{3, 0, 1} }, 3},
		{"cut where Range is ignored", func(s *hubServer) { s.cuts, s.noRange = []int{3}, true }, 1},
		{"a wrong byte once", func(s *hubServer) { s.corrupt = 1 }, 1},
		{"too many requests", func(s *hubServer) { s.statuses = []int{429} }, 1},
		{"server errors", func(s *hubServer) { s.statuses = []int{500, 502, 503, 504} }, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newHubServer(t, model())
			tt.fault(s)
			c, waits := s.client(notPickle, Limits{})
			dir := t.TempDir()
			var done, total int64
			commit, err := c.Fetch(t.Context(), "owner/model", "main", testToken, dir, func(d, n int64) { done, total = d, n })
			if err != nil || commit != testCommit {
				t.Fatalf("got commit %q, error %v", commit, err)
			}
			wantTree(t, dir, wanted(s.file))
			if len(*waits) != tt.waits {
				t.Errorf("waited %v, want %d waits", *waits, tt.waits)
			}
			for i, r := range s.ranges {
				if (r == "") != (s.conds[i] == "") {
					t.Errorf("asked for the range %q if it is still %q", r, s.conds[i])
				}
			}
			if size := int64(100_010 + 22); done != size || total != size {
				t.Errorf("progress ended with %d of %d", done, total)
			}
		})
	}
}

// TestResume checks that a fetch that was given up goes on where it was, and that
// a finished one asks for no content.
func TestResume(t *testing.T) {
	s := newHubServer(t, model())
	only := func(name string) bool { return name == "model.safetensors" }
	dir := t.TempDir()
	c, _ := s.client(only, Limits{Tries: 1})
	s.cuts = []int{40_000}
	if _, err := c.Fetch(t.Context(), "owner/model", "main", testToken, dir, nil); err == nil {
		t.Fatal("the cut was not noticed")
	}
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil {
		t.Fatal("half a file has its name")
	}
	s.ranges = nil
	for range 2 {
		c, _ = s.client(only, Limits{Tries: 1})
		if _, err := c.Fetch(t.Context(), "owner/model", "main", testToken, dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantTree(t, dir, map[string]string{"model.safetensors": s.file["model.safetensors"]})
	if len(s.ranges) != 1 || s.ranges[0] == "" || s.ranges[0] == "bytes=0-" {
		t.Errorf("asked for %q", s.ranges)
	}
}

func TestRetryAfter(t *testing.T) {
	s := newHubServer(t, model())
	s.statuses, s.retry = []int{429, 503}, "7"
	c, waits := s.client(notPickle, Limits{Wait: 5 * time.Second})
	if _, err := c.Fetch(t.Context(), "owner/model", "refs/pr/1", testToken, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{5 * time.Second, 5 * time.Second}; !slices.Equal(*waits, want) {
		t.Errorf("waited %v, want %v: Retry-After, but no longer than the limit", *waits, want)
	}
}

func TestFetchFails(t *testing.T) {
	tests := []struct {
		name     string
		repo     string
		revision string
		token    string
		fault    func(*hubServer)
		limits   Limits
		is       error
		want     string
	}{
		{"no token", "owner/model", "main", "", nil, Limits{}, ErrAuth, "401 Unauthorized: Invalid username"},
		{"forbidden", "owner/model", "main", testToken, func(s *hubServer) { s.statuses = []int{403} }, Limits{}, ErrAuth, "403"},
		{"unknown repository", "owner/other", "main", testToken, nil, Limits{}, ErrNotFound, "owner/other"},
		{"unknown revision", "owner/model", "v1", testToken, nil, Limits{}, ErrNotFound, "revision v1"},
		{"always busy", "owner/model", "main", testToken, func(s *hubServer) { s.statuses = []int{429, 429, 429, 429, 429} }, Limits{}, nil, "after 5 tries"},
		{"always a wrong byte", "owner/model", "main", testToken, func(s *hubServer) { s.corrupt = 100 }, Limits{}, ErrCorrupt, "digest"},
		{"always cut", "owner/model", "main", testToken, func(s *hubServer) { s.cuts = make([]int, 100) }, Limits{}, nil, "after 5 tries"},
		{"too many files", "owner/model", "main", testToken, nil, Limits{Files: 2}, nil, "2 files"},
		{"too many bytes", "owner/model", "main", testToken, nil, Limits{Bytes: 1000}, nil, "1000 bytes"},
		{"out of the directory", "owner/model", "main", testToken, func(s *hubServer) { s.listed = []string{"../evil.json"} }, Limits{}, nil, "not a safe path"},
		{"absolute", "owner/model", "main", testToken, func(s *hubServer) { s.listed = []string{"/etc/passwd"} }, Limits{}, nil, "not a safe path"},
		{"among unfinished files", "owner/model", "main", testToken, func(s *hubServer) { s.listed = []string{".fetch/x"} }, Limits{}, nil, "not a safe path"},
		{"twice", "owner/model", "main", testToken, func(s *hubServer) { s.listed = []string{"config.json"} }, Limits{}, nil, "twice"},
		{"not a repository", "a/b/c", "main", testToken, nil, Limits{}, nil, "not a repository"},
		{"a repository that climbs", "a/..", "main", testToken, nil, Limits{}, nil, "not a repository"},
		{"not a revision", "owner/model", "a..b", testToken, nil, Limits{}, nil, "not a revision"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newHubServer(t, model())
			if tt.fault != nil {
				tt.fault(s)
			}
			c, _ := s.client(notPickle, tt.limits)
			dir := t.TempDir()
			_, err := c.Fetch(t.Context(), tt.repo, tt.revision, tt.token, filepath.Join(dir, "to"), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), testToken) {
				t.Errorf("the token is in the error: %v", err)
			}
			for name := range tree(t, dir) {
				if !strings.HasPrefix(name, "to/") {
					t.Errorf("%s lies outside", name)
				}
			}
		})
	}
}

// TestNotListed checks that a host that is not listed ends the fetch at once, with
// the error that says so.
func TestNotListed(t *testing.T) {
	gate, err := egress.New(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{BaseURL: "https://hub.example", HTTP: gate.Client(egress.Options{})})
	_, err = c.Fetch(t.Context(), "owner/model", "main", "", t.TempDir(), nil)
	if _, denied := errors.AsType[*egress.Denied](err); !denied || !strings.Contains(err.Error(), "--allow-egress hub.example") {
		t.Errorf("got %v", err)
	}
}

func TestPush(t *testing.T) {
	files := map[string]string{"config.json": "{}", "model.safetensors": noise(100_000), "sub/b.safetensors": noise(1000), "README.md": "# Read\n", "ignored.txt": "x"}
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	delete(files, "ignored.txt")
	tests := []struct {
		name, repo string
		fault      func(*hubServer)
		verified   int
	}{
		{"new", "owner/model", nil, 2},
		{"owner of the token", "model", nil, 2},
		{"in parts", "owner/model", func(s *hubServer) { s.chunk = 30_000 }, 2},
		{"in many parts", "owner/model", func(s *hubServer) { s.chunk = 999 }, 2},
		{"the hub has one", "owner/model", func(s *hubServer) { s.stored[sha(noise(1000))] = noise(1000) }, 1},
		{"the hub is busy", "owner/model", func(s *hubServer) { s.statuses = []int{503, 429} }, 2},
		{"it exists", "owner/model", func(s *hubServer) { s.statuses = []int{http.StatusConflict} }, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newHubServer(t, nil)
			if tt.fault != nil {
				tt.fault(s)
			}
			c, _ := s.client(nil, Limits{})
			var done, total int64
			page, err := c.Push(t.Context(), tt.repo, testToken, dir, "Fine-tuned\n\nby a job", func(d, n int64) { done, total = d, n })
			if err != nil || page != s.hub.URL+"/owner/model" {
				t.Fatalf("got %q, %v", page, err)
			}
			if got := s.pushed(); !maps.Equal(got, files) {
				t.Errorf("the repository has %v", slices.Sorted(maps.Keys(got)))
			}
			head := s.commit[0]["value"].(map[string]any)
			if s.commit[0]["key"] != "header" || head["summary"] != "Fine-tuned" || head["description"] != "by a job" {
				t.Errorf("header %v", s.commit[0])
			}
			if len(s.verified) != tt.verified || done != 101_000 || total != 101_000 {
				t.Errorf("verified %d, progress ended with %d of %d", len(s.verified), done, total)
			}
			if s.created != nil && (s.created["private"] != true || s.created["visibility"] != "private" || s.created["name"] != "model" || s.created["organization"] != "owner") {
				t.Errorf("created %v", s.created)
			}
		})
	}
}

func TestPushFails(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "a.safetensors"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "a.json")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, repo, token, dir string
		is                     error
		want                   string
	}{
		{"a hub that is full", "owner/model", testToken, full, nil, "no room for you, ... (507)"},
		{"wrong token", "owner/model", "hf_other", full, ErrAuth, "401"},
		{"not a repository", "owner/model/x", testToken, full, nil, "not a repository"},
		{"unknown repository", "owner/other", testToken, full, ErrNotFound, "owner/other"},
		{"nothing", "owner/model", testToken, t.TempDir(), nil, "no files"},
		{"a link", "owner/model", testToken, linked, nil, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newHubServer(t, nil)
			s.full = true
			c, _ := s.client(nil, Limits{})
			_, err := c.Push(t.Context(), tt.repo, tt.token, tt.dir, "m", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) || strings.Contains(err.Error(), testToken) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestContentRange(t *testing.T) {
	tests := []struct {
		text        string
		from, total int64
		ok          bool
	}{
		{"bytes 5-9/10", 5, 10, true}, {"bytes 0-0/*", 0, -1, true}, {"bytes 5-9/9", 0, 0, false}, {"bytes 9-5/10", 0, 0, false},
		{"bytes -5/10", 0, 0, false}, {"items 0-1/2", 0, 0, false}, {"", 0, 0, false}, {"bytes 0-99999999999999999999/1", 0, 0, false},
	}
	for _, tt := range tests {
		from, total, ok := contentRange(tt.text)
		if ok != tt.ok || ok && (from != tt.from || total != tt.total) {
			t.Errorf("%q: got %d, %d, %t", tt.text, from, total, ok)
		}
	}
}
