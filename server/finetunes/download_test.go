package finetunes

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
	"athanor/store/storetest"
)

// projectKeys are keys that are the names of their projects.
type projectKeys struct{}

func (projectKeys) Authenticate(_ context.Context, key string) (*rest.Principal, error) {
	return &rest.Principal{KeyID: key, ProjectID: key, OrgRole: rest.RoleDeveloper}, nil
}

// shelf is a service with objects and the operations of downloads.
type shelf struct {
	*Service
	t      *testing.T
	clock  *servertest.Clock
	server *rest.Server
}

func newShelf(t *testing.T) *shelf {
	k, clock := servertest.NewKit(t)
	objects, err := object.OpenLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := objects.Close(); err != nil {
			t.Error(err)
		}
	})
	links := rest.NewLinks([]byte(strings.Repeat("k", 32)), k.Now)
	s := &shelf{Service: New(Config{Kit: k, DB: storetest.Open(t), Objects: objects, Links: links}), t: t, clock: clock}
	s.server, err = rest.New(rest.Config{Ops: s.downloadOps(), Auth: projectKeys{}, Kit: k, Links: links})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put stores files and returns their records, in no order.
func (s *shelf) put(contents map[string]string) (files []resource.ModelFile) {
	s.t.Helper()
	for name, content := range contents {
		sum := sha256.Sum256([]byte(content))
		f := resource.ModelFile{Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
		f.ObjectKey = "models/sha256/" + f.SHA256
		if _, err := s.Objects.Put(s.t.Context(), f.ObjectKey, strings.NewReader(content), f.Size); err != nil {
			s.t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// get asks for a path, with a key unless it is a link.
func (s *shelf) get(target, key, byteRange string) (*http.Response, []byte) {
	s.t.Helper()
	if !strings.HasPrefix(target, "http") {
		target = "http://athanor/v1" + target
	}
	req := httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, target, nil)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	resp, err := s.server.Test(req)
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	return resp, data
}

// unpack reads a .tar.zst with a decoder of another project.
func unpack(t *testing.T, data []byte) map[string]string {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			if _, err := io.Copy(io.Discard, z); err != nil {
				t.Error(err)
			}
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

func TestArchive(t *testing.T) {
	noise := make([]byte, 700_000)
	source := rand.NewChaCha8([32]byte{})
	if _, err := source.Read(noise); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		files map[string]string
	}{
		{"none", map[string]string{}},
		{"small", map[string]string{"config.json": "{}", "README.md": ""}},
		{"whole blocks", map[string]string{"a": string(noise[:128<<10-512-1024])}},
		{"large", map[string]string{"config.json": "{}", "model.safetensors": string(noise), "z/long" + strings.Repeat("x", 150): string(noise[:512])}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newShelf(t)
			files := s.put(tt.files)
			a, err := newArchive(s.Objects, files)
			if err != nil {
				t.Fatal(err)
			}
			whole := s.part(a, 0, a.size())
			if got := unpack(t, whole); !maps.Equal(got, tt.files) {
				t.Errorf("unpacked %v", slices.Sorted(maps.Keys(got)))
			}
			slices.Reverse(files)
			b, err := newArchive(s.Objects, files)
			if err != nil || b.etag != a.etag || !bytes.Equal(s.part(b, 0, b.size()), whole) {
				t.Error("the order of the files changes the archive")
			}
			for range 50 {
				from := rand.Int64N(a.size())
				length := 1 + rand.Int64N(a.size()-from)
				if !bytes.Equal(s.part(a, from, length), whole[from:from+length]) {
					t.Fatalf("%d bytes from %d on differ", length, from)
				}
			}
		})
	}
}

func (s *shelf) part(a *archive, offset, length int64) []byte {
	s.t.Helper()
	r, err := a.open(s.t.Context(), offset, length)
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || int64(len(data)) != length {
		s.t.Fatalf("%d of %d bytes, %v", len(data), length, err)
	}
	return data
}

// job writes a job and the models that it made.
func (s *shelf) job(f *resource.FineTune, models ...*resource.Model) {
	s.t.Helper()
	f.ProjectID, f.OutputName, f.CreatedAt = "proj-1", "name-of-"+string(f.ID), s.Kit.Now()
	err := s.DB.Update(s.t.Context(), func(tx *store.Tx) error {
		for _, m := range models {
			m.Name = string(m.ID)
			if err := store.Models.Insert(tx, string(m.ID), m); err != nil {
				return err
			}
		}
		return store.FineTunes.Insert(tx, string(f.ID), f)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestDownload(t *testing.T) {
	s := newShelf(t)
	file := func(content string) []resource.ModelFile { return s.put(map[string]string{"weights": content}) }
	lora := resource.FineTuneParams{LoRA: &resource.FineTuneLoRA{Rank: 8}}
	s.job(&resource.FineTune{ID: "ft-lora", Params: lora, Result: &resource.FineTuneResult{ModelID: "ml-adapter", Step: 20, Merged: file("merged")},
		Checkpoints: []resource.FineTuneCheckpoint{{Step: 10, Adapter: true, Files: file("adapter 10")}, {Step: 20, Adapter: true, ModelID: "ml-20"}}},
		&resource.Model{ID: "ml-adapter", BaseID: "ml-base", Files: file("adapter")}, &resource.Model{ID: "ml-20", BaseID: "ml-base", Files: file("adapter 20")})
	s.job(&resource.FineTune{ID: "ft-full", Result: &resource.FineTuneResult{ModelID: "ml-full"},
		Checkpoints: []resource.FineTuneCheckpoint{{Step: 5, ModelID: "ml-gone", Name: "gone-5"}}}, &resource.Model{ID: "ml-full", Files: file("full")})
	s.job(&resource.FineTune{ID: "ft-hub", Params: lora, Result: &resource.FineTuneResult{ModelID: "ml-hub", Adapter: file("hub adapter")}},
		&resource.Model{ID: "ml-hub", Files: file("hub merged")})
	s.job(&resource.FineTune{ID: "ft-running", Params: lora, Status: resource.FineTuneRunning})
	tests := []struct {
		query, key string
		status     int
		want       string // the weights, or words of the error
	}{
		{"ft_id=ft-lora", "proj-1", 200, "merged"},
		{"ft_id=ft-lora&checkpoint=merged", "proj-1", 200, "merged"},
		{"ft_id=ft-lora&checkpoint=model_output_path&checkpoint_step=0", "proj-1", 200, "merged"},
		{"ft_id=ft-lora&checkpoint=adapter", "proj-1", 200, "adapter"},
		{"ft_id=ft-lora&checkpoint_step=10", "proj-1", 200, "adapter 10"},
		{"ft_id=ft-lora&checkpoint_step=20&checkpoint=adapter", "proj-1", 200, "adapter 20"},
		{"ft_id=ft-lora&checkpoint_step=20&checkpoint=merged", "proj-1", 200, "merged"},
		{"ft_id=ft-lora&checkpoint_step=10&checkpoint=merged", "proj-1", 400, "only the result is merged"},
		{"ft_id=ft-lora&checkpoint_step=11", "proj-1", 404, "no checkpoint of step 11"},
		{"ft_id=ft-full", "proj-1", 200, "full"},
		{"ft_id=ft-full&checkpoint=model_output_path", "proj-1", 200, "full"},
		{"ft_id=ft-full&checkpoint=adapter", "proj-1", 400, "has no adapter"},
		{"ft_id=ft-full&checkpoint_step=5", "proj-1", 404, "gone-5 has been deleted"},
		{"ft_id=ft-hub", "proj-1", 200, "hub merged"},
		{"ft_id=ft-hub&checkpoint=merged", "proj-1", 200, "hub merged"},
		{"ft_id=ft-hub&checkpoint=adapter", "proj-1", 200, "hub adapter"},
		{"ft_id=ft-running", "proj-1", 404, "its status is running"},
		{"ft_id=ft-lora", "proj-2", 404, "no fine-tuning job"},
		{"ft_id=ft-none", "proj-1", 404, "no fine-tuning job"},
		{"", "proj-1", 400, "ft_id"},
		{"ft_id=ft-lora&checkpoint=best", "proj-1", 400, "merged, adapter or model_output_path"},
		{"ft_id=ft-lora&checkpoint_step=-1", "proj-1", 400, "checkpoint_step"},
	}
	for _, tt := range tests {
		t.Run(tt.query+" "+tt.key, func(t *testing.T) {
			resp, data := s.get("/finetune/download?"+tt.query, tt.key, "")
			if resp.StatusCode != tt.status {
				t.Fatalf("got %d %s", resp.StatusCode, data)
			}
			if tt.status != 200 {
				if !strings.Contains(string(data), tt.want) {
					t.Errorf("got %s, want %q", data, tt.want)
				}
				return
			}
			if got := unpack(t, data); got["weights"] != tt.want || resp.Header.Get("Content-Type") != "application/zstd" {
				t.Errorf("got %v as %s, want %q", got, resp.Header.Get("Content-Type"), tt.want)
			}
		})
	}
}

// TestDownloadInParts does as the Python client does: two bytes first, to learn
// the size and the kind, then the rest.
func TestDownloadInParts(t *testing.T) {
	s := newShelf(t)
	s.job(&resource.FineTune{ID: "ft-1", Result: &resource.FineTuneResult{ModelID: "ml-1"}},
		&resource.Model{ID: "ml-1", Files: s.put(map[string]string{"weights": strings.Repeat("w", 300_000)})})
	const at = "/finetune/download?ft_id=ft-1"
	first, head := s.get(at, "proj-1", "bytes=0-1")
	var size int
	if _, err := fmt.Sscanf(first.Header.Get("Content-Range"), "bytes 0-1/%d", &size); err != nil || first.StatusCode != 206 {
		t.Fatalf("got %d, %s", first.StatusCode, first.Header.Get("Content-Range"))
	}
	rest, tail := s.get(at, "proj-1", "bytes=2-")
	if len(head)+len(tail) != size || rest.Header.Get("ETag") != first.Header.Get("ETag") || first.Header.Get("ETag") == "" {
		t.Errorf("%d and %d of %d bytes, %s and %s", len(head), len(tail), size, first.Header.Get("ETag"), rest.Header.Get("ETag"))
	}
	if got := unpack(t, append(head, tail...)); len(got["weights"]) != 300_000 {
		t.Errorf("unpacked %d files", len(got))
	}
}

func TestTokenizedDataset(t *testing.T) {
	s := newShelf(t)
	const at = "/fine-tunes/ft-1/download-tokenized-dataset"
	s.job(&resource.FineTune{ID: "ft-1"})
	if resp, data := s.get(at, "proj-1", ""); resp.StatusCode != 404 || !strings.Contains(string(data), "has not been uploaded") {
		t.Fatalf("got %d %s", resp.StatusCode, data)
	}
	if _, err := s.Objects.Put(t.Context(), "finetunes/ft-1/tokenized", strings.NewReader("archive"), 7); err != nil {
		t.Fatal(err)
	}
	err := s.DB.Update(t.Context(), func(tx *store.Tx) error {
		_, err := store.FineTunes.Update(tx, "ft-1", func(f *resource.FineTune) error {
			f.Tokenized = &resource.FineTuneArchive{ObjectKey: "finetunes/ft-1/tokenized", Size: 7, SHA256: "abc"}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if resp, _ := s.get(at, "proj-2", ""); resp.StatusCode != 404 {
		t.Errorf("another project got %d", resp.StatusCode)
	}
	_, data := s.get(at, "proj-1", "")
	var link api.TokenizedDataset
	if err := json.Unmarshal(data, &link); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if link.Filename != "ft-1-tokenized-dataset.tar.zst" || link.Size != 7 || link.ContentType != "application/zstd" || link.ExpiresAt.Sub(s.Kit.Now()) > time.Hour {
		t.Errorf("got %+v", link)
	}
	if resp, data := s.get(link.URL, "", ""); resp.StatusCode != 200 || string(data) != "archive" {
		t.Errorf("the link gives %d %s", resp.StatusCode, data)
	}
	for name, url := range map[string]string{"another job": strings.Replace(link.URL, "ft-1", "ft-2", 1), "a longer time": strings.Replace(link.URL, "expires=1", "expires=2", 1)} {
		if resp, _ := s.get(url, "", ""); resp.StatusCode != 401 {
			t.Errorf("%s: got %d", name, resp.StatusCode)
		}
	}
	deleted := func(yes bool) {
		err := s.DB.Update(t.Context(), func(tx *store.Tx) error {
			_, err := store.FineTunes.Update(tx, "ft-1", func(f *resource.FineTune) error { f.Deleted = yes; return nil })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	deleted(true)
	if resp, _ := s.get(link.URL, "", ""); resp.StatusCode != 404 {
		t.Errorf("of a deleted job: got %d", resp.StatusCode)
	}
	deleted(false)
	s.clock.Advance(time.Hour)
	if resp, data := s.get(link.URL, "", ""); resp.StatusCode != 401 || !strings.Contains(string(data), "expired") {
		t.Errorf("after an hour: %d %s", resp.StatusCode, data)
	}
}

// TestManyRows has a job with more rows than one answer gives.
func TestManyRows(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.job(&resource.FineTune{ID: "ft-1"})
	const rows = maxTrainRows + 7
	err := s.DB.Update(t.Context(), func(tx *store.Tx) error {
		for step := 1; step <= rows; step++ {
			if err := putMetrics(tx, &resource.FineTuneMetrics{Job: "ft-1", Step: step, At: s.Kit.Now()}); err != nil {
				return err
			}
		}
		return putMetrics(tx, &resource.FineTuneMetrics{Job: "ft-1", Step: rows, Eval: true, At: s.Kit.Now()})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := rest.WithCaller(t.Context(), &rest.Principal{ProjectID: "proj-1"})
	beyond, from := rows, rows-10
	for name, tt := range map[string]struct {
		req  api.FineTuneMetricsRequest
		want int
	}{
		"all": {api.FineTuneMetricsRequest{ID: "ft-1"}, maxTrainRows + 1}, "a resolution above": {api.FineTuneMetricsRequest{ID: "ft-1", Resolution: &beyond}, maxTrainRows + 1},
		"a part": {api.FineTuneMetricsRequest{ID: "ft-1", StepFrom: &from}, 12},
	} {
		got, err := s.Metrics(ctx, &tt.req)
		if err != nil || len(got.Metrics) != tt.want {
			t.Fatalf("%s: %d rows, %v, want %d", name, len(got.Metrics), err, tt.want)
		}
		if last := got.Metrics[tt.want-2]; last[trainStep] != rows || got.Metrics[tt.want-1][evalStep] != rows {
			t.Errorf("%s: the last rows are not among them", name)
		}
	}
}

// presigning is a store that gives links by itself, as S3 does.
type presigning struct{ object.Store }

var _ object.Presigner = presigning{}

func (presigning) PresignGet(_ context.Context, key string, ttl time.Duration) (string, error) {
	return "https://storage.example/" + key + "?ttl=" + ttl.String(), nil
}

func TestTokenizedDatasetOfStorage(t *testing.T) {
	s := newShelf(t)
	s.Objects = presigning{s.Objects}
	s.job(&resource.FineTune{ID: "ft-1", Tokenized: &resource.FineTuneArchive{ObjectKey: "finetunes/ft-1/tokenized"}})
	_, data := s.get("/fine-tunes/ft-1/download-tokenized-dataset", "proj-1", "")
	var link api.TokenizedDataset
	if err := json.Unmarshal(data, &link); err != nil || link.URL != "https://storage.example/finetunes/ft-1/tokenized?ttl=1h0m0s" {
		t.Errorf("got %s", data)
	}
}
