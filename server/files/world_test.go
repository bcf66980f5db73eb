package files_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/files"
	"athanor/server/jobs"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
	"athanor/store/storetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// callers are the keys of the tests.
type callers map[string]*rest.Principal

var _ rest.Authenticator = callers(nil)

func (c callers) Authenticate(_ context.Context, key string) (*rest.Principal, error) {
	if p := c[key]; p != nil {
		return p, nil
	}
	return nil, api.Unauthorized("invalid_api_key", "unknown key")
}

// world is a service behind a server, with jobs that run when settle says so.
type world struct {
	*files.Service
	t       testing.TB
	db      *store.DB
	kit     kit.Kit
	clock   *servertest.Clock
	objects object.Store
	server  *rest.Server
	kinds   map[string]jobs.Kind
	keys    callers
}

func newWorld(t testing.TB, limits files.Limits) *world {
	t.Helper()
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
	w := &world{t: t, db: storetest.Open(t), kit: k, clock: clock, objects: objects, kinds: map[string]jobs.Kind{}}
	w.keys = callers{
		"editor-key": {KeyID: "key-1", ProjectID: "proj-1", OrgRole: rest.RoleDeveloper, ProjectRole: rest.RoleEditor},
		"reader-key": {KeyID: "key-2", ProjectID: "proj-1", OrgRole: rest.RoleDeveloper},
		"other-key":  {KeyID: "key-3", ProjectID: "proj-2", OrgRole: rest.RoleDeveloper, ProjectRole: rest.RoleAdmin},
	}
	links := rest.NewLinks([]byte(strings.Repeat("k", 32)), k.Now)
	w.Service = files.New(k, w.db, objects, links, limits)
	for _, kind := range w.Kinds() {
		w.kinds[kind.Name] = kind
	}
	w.server, err = rest.New(rest.Config{Ops: w.Ops(), Auth: w.keys, Kit: k, Links: links})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// settle runs the jobs that are due until none is, as a runner would.
func (w *world) settle() {
	w.t.Helper()
	for {
		var due *resource.Job
		err := w.db.View(func(tx *store.Tx) error {
			list, _, err := store.Jobs.List(tx, "", store.Page{Limit: 1000})
			for _, j := range list {
				if !j.DueAt.After(w.clock.Now()) {
					due = j
				}
			}
			return err
		})
		if err == nil && due != nil {
			if err = w.kinds[due.Kind].Run(w.t.Context(), *due); err == nil {
				err = w.db.Update(w.t.Context(), func(tx *store.Tx) error {
					if err := store.Jobs.Delete(tx, string(due.ID)); !errors.Is(err, store.ErrNotFound) {
						return err
					}
					return nil
				})
			}
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if due == nil {
			return
		}
	}
}

// stored lists the keys of all objects.
func (w *world) stored() []string {
	w.t.Helper()
	list, err := w.objects.List(w.t.Context(), "", "", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var keys []string
	for _, o := range list {
		keys = append(keys, o.Key)
	}
	return keys
}

// send makes a request; the target may be a whole URL.
func (w *world) send(method, target string, body io.Reader, headers ...string) (*http.Response, string) {
	w.t.Helper()
	if !strings.HasPrefix(target, "http") {
		target = "http://athanor/v1" + target
	}
	req := httptest.NewRequestWithContext(w.t.Context(), method, target, body)
	if !strings.Contains(target, "signature=") {
		req.Header.Set("Authorization", "Bearer editor-key")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.server.Test(req)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		w.t.Fatal(err)
	}
	return resp, string(data)
}

// call makes a JSON request that must succeed.
func (w *world) call(method, target string, in, out any) {
	w.t.Helper()
	var body io.Reader = strings.NewReader("")
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			w.t.Fatal(err)
		}
		body = bytes.NewReader(data)
	}
	resp, data := w.send(method, target, body, "Content-Type", "application/json")
	if resp.StatusCode != 200 {
		w.t.Fatalf("%s %s: got %d %s", method, target, resp.StatusCode, data)
	}
	if err := json.Unmarshal([]byte(data), out); err != nil {
		w.t.Fatal(err)
	}
}

// upload sends a file by multipart and returns it.
func (w *world) upload(name, purpose, content string) api.File {
	w.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err := form.WriteField("purpose", purpose)
	if err == nil {
		var part io.Writer
		if part, err = form.CreateFormFile("file", name); err == nil {
			_, err = io.WriteString(part, content)
		}
	}
	if err := errors.Join(err, form.Close()); err != nil {
		w.t.Fatal(err)
	}
	resp, data := w.send("POST", "/files", &body, "Content-Type", form.FormDataContentType())
	var f api.File
	if err := json.Unmarshal([]byte(data), &f); resp.StatusCode != 200 || err != nil {
		w.t.Fatalf("upload: got %d %s", resp.StatusCode, data)
	}
	return f
}

func (w *world) file(id string) api.File {
	w.t.Helper()
	var f api.File
	w.call("GET", "/files/"+id, nil, &f)
	return f
}

const sample = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	servertest.Transcripts(t, "testdata", func(t *testing.T) servertest.World {
		w := newWorld(t, files.Limits{File: 10000})
		var signature string
		return servertest.World{
			Clock: w.clock,
			Vars:  map[string]string{"EDITOR": "editor-key", "READER": "reader-key", "OTHER": "other-key"},
			Do: func(r *http.Request) (*http.Response, error) {
				// A link of this server's may be written with the signature left out.
				if strings.HasSuffix(r.URL.RawQuery, "signature=LAST") {
					r.URL.RawQuery = strings.TrimSuffix(r.URL.RawQuery, "LAST") + signature
				}
				resp, err := w.server.Test(r)
				if err != nil {
					return nil, err
				}
				data, err := io.ReadAll(resp.Body)
				if err := errors.Join(err, resp.Body.Close()); err != nil {
					return nil, err
				}
				w.settle()
				hide := func(s string) string {
					for i := strings.Index(s, "signature="); i >= 0; {
						i += len("signature=")
						signature = s[i : i+43]
						s = s[:i] + "LAST" + s[i+43:]
						next := strings.Index(s[i:], "signature=")
						if next < 0 {
							break
						}
						i += next
					}
					return s
				}
				if l := resp.Header.Get("Location"); l != "" {
					resp.Header.Set("Location", hide(l))
				}
				resp.Body = io.NopCloser(strings.NewReader(hide(string(data))))
				return resp, nil
			},
		}
	})
}

func TestAccessOfEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	f := w.upload("a.jsonl", "fine-tune", sample)
	var u api.Upload
	w.call("POST", "/files/multipart/initiate", map[string]any{"purpose": "fine-tune", "file_name": "b.jsonl", "file_size": 10, "num_parts": 1}, &u)
	servertest.CheckAuthMatrix(t, servertest.Matrix{
		Do: w.server.Test, Ops: w.server.Ops(), Expired: "gone", Revoked: "gone", Foreign: "other-key",
		Key: func(org, project string) string {
			key := org + "-" + project + "-key"
			w.keys[key] = &rest.Principal{KeyID: key, ProjectID: "proj-1", OrgRole: org, ProjectRole: project}
			return key
		},
		Existing: func(_ rest.Op, param string) string {
			return map[string]string{"id": f.ID, "upload_id": u.UploadID, "number": "1"}[param]
		},
	})
	if got := w.file(f.ID); got.ProcessingStatus != "QUEUED" {
		t.Errorf("the check changed the file: %+v", got)
	}
}

// hash is the SHA-256 of a string, as an ETag.
func hash(s string) string { return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(s))) }

var day = 24 * time.Hour
