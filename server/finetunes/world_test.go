package finetunes_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/server/api"
	"athanor/server/finetunes"
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

// world is a service behind a server, with a scripted trainer and with jobs that run
// when settle says so.
type world struct {
	*finetunes.Service
	t       testing.TB
	cfg     finetunes.Config
	db      *store.DB
	kit     kit.Kit
	clock   *servertest.Clock
	objects object.Store
	weights *weights
	trainer *enginetest.Trainer
	server  *rest.Server
	kinds   map[string]jobs.Kind
	keys    callers
}

const project = "proj-1"

func newWorld(t testing.TB) *world {
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
	w := &world{t: t, db: storetest.Open(t), kit: k, clock: clock, objects: objects, trainer: &enginetest.Trainer{}}
	w.keys = callers{
		"editor-key": {KeyID: "key-1", UserID: "user-1", ProjectID: project, ProjectSlug: "acme", OrganizationName: "Acme", OrgRole: rest.RoleDeveloper, ProjectRole: rest.RoleEditor},
		"reader-key": {KeyID: "key-2", ProjectID: project, ProjectSlug: "acme", OrgRole: rest.RoleDeveloper},
		"other-key":  {KeyID: "key-3", ProjectID: "proj-2", ProjectSlug: "other", OrgRole: rest.RoleDeveloper, ProjectRole: rest.RoleAdmin},
	}
	w.weights = &weights{w: w, cache: t.TempDir(), traits: map[string]*finetunes.Traits{}}
	w.cfg = finetunes.Config{
		Kit: k, DB: w.db, Objects: objects, Models: registry{w.db}, Weights: w.weights, Trainer: w.trainer, Previewer: previewer{},
		Links: rest.NewLinks([]byte(strings.Repeat("k", 32)), k.Now), Dir: t.TempDir(), Version: "v1", Backoff: time.Microsecond, Flush: time.Hour,
	}
	w.seed()
	w.boot()
	return w
}

// boot makes the service, as the start of a process does.
func (w *world) boot() {
	w.t.Helper()
	w.Service = finetunes.New(w.cfg)
	if err := w.Sweep(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.kinds = map[string]jobs.Kind{}
	for _, kind := range w.Kinds() {
		w.kinds[kind.Name] = kind
	}
	var err error
	w.server, err = rest.New(rest.Config{Ops: w.Ops(), Auth: w.keys, Kit: w.kit, Links: w.cfg.Links})
	if err != nil {
		w.t.Fatal(err)
	}
}

// seed registers a base model, a larger one, and the project.
func (w *world) seed() {
	w.t.Helper()
	dir := w.t.TempDir()
	for name, content := range map[string]string{"config.json": "{}", "model.safetensors": "weights"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	err := w.weights.Publish(w.t.Context(), []string{dir}, func(stored []finetunes.Stored) error {
		return w.db.Update(w.t.Context(), func(tx *store.Tx) error {
			for i, name := range []string{"lab/base", "lab/other", "lab/lora-only", "lab/odd"} {
				m := baseModel(name, stored[0], i+1)
				if err := store.Models.Insert(tx, string(m.ID), m); err != nil {
					return err
				}
			}
			return store.Projects.Insert(tx, project, &resource.Project{ID: project, OrganizationID: "org-1", Name: "Acme", Slug: "acme"})
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.weights.traits["lab/lora-only"] = &finetunes.Traits{Modules: []string{"q_proj"}, ContextLength: 8}
	w.weights.traits["lab/odd"] = nil
}

func baseModel(name string, s finetunes.Stored, n int) *resource.Model {
	return &resource.Model{
		ID: resource.ModelID(fmt.Sprintf("model-base-%d", n)), EndpointID: resource.EndpointID(fmt.Sprintf("endpoint-base-%d", n)), Name: name,
		Type: resource.ModelChat, Architecture: "TestForCausalLM", Quantization: resource.QuantizationNone, ContextLength: 512, Parameters: 5000,
		Files: s.Files, Revision: s.Revision,
	}
}

// registry answers from the store.
type registry struct{ db *store.DB }

var _ finetunes.Models = registry{}

func (r registry) Resolve(p resource.ProjectID, name string) (m *resource.Model, err error) {
	err = r.db.View(func(tx *store.Tx) error {
		for _, owner := range []resource.ProjectID{p, ""} {
			if m, err = store.Models.Lookup(tx, store.ByName, store.Key(string(owner), name)); !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return api.ModelNotFound(name)
	})
	return m, err
}

func (r registry) Visible(p resource.ProjectID) (list []*resource.Model, err error) {
	err = r.db.View(func(tx *store.Tx) error {
		all, _, err := store.Models.List(tx, store.ByCreated, store.Page{Limit: 1000})
		for _, m := range all {
			if m.VisibleTo(p) {
				list = append(list, m)
			}
		}
		return err
	})
	return list, err
}

func (registry) Changed() {}

// weights keeps directories in the object store without taking anything back, which
// is the composition root's part; it counts what was stored and not committed.
type weights struct {
	w       *world
	cache   string
	traits  map[string]*finetunes.Traits // by name; nil: cannot be trained
	release []resource.ModelFile
	during  func() // of a publication, before its commit
}

var _ finetunes.Weights = (*weights)(nil)

func (s *weights) Directory(ctx context.Context, m *resource.Model) (string, error) {
	dir := filepath.Join(s.cache, m.Revision)
	for _, f := range m.Files {
		r, _, err := s.w.objects.Get(ctx, f.ObjectKey, 0, -1)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close(), os.MkdirAll(dir, 0o700)); err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Path), data, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (*weights) Describe(string) (*resource.Model, error) {
	return &resource.Model{Type: resource.ModelChat, Architecture: "TestForCausalLM", ContextLength: 512, Parameters: 5000}, nil
}

func (s *weights) Traits(_ context.Context, m *resource.Model) (*finetunes.Traits, error) {
	t, special := s.traits[m.Name]
	if special && t == nil {
		return nil, fmt.Errorf("%w: %s is odd", finetunes.ErrUntrainable, m.Name)
	}
	if special {
		return t, nil
	}
	return &finetunes.Traits{Modules: []string{"q_proj", "v_proj"}, ContextLength: m.ContextLength, Full: true, Tools: true}, nil
}

func (s *weights) Publish(ctx context.Context, dirs []string, commit func([]finetunes.Stored) error) error {
	var stored []finetunes.Stored
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		var one finetunes.Stored
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			f := resource.ModelFile{Path: e.Name(), Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
			f.ObjectKey = "models/sha256/" + f.SHA256
			if _, err := s.w.objects.Put(ctx, f.ObjectKey, bytes.NewReader(data), f.Size); err != nil {
				return err
			}
			one.Files = append(one.Files, f)
		}
		one.Revision = resource.Revision(one.Files)
		stored = append(stored, one)
	}
	if s.during != nil {
		s.during()
	}
	return commit(stored)
}

func (s *weights) Release(_ context.Context, files []resource.ModelFile) error {
	s.release = append(s.release, files...)
	return nil
}

// previewer takes every line for a row of ten tokens.
type previewer struct{}

var _ finetunes.Previewer = previewer{}

func (previewer) Preview(_ context.Context, _ string, r io.Reader, opt finetunes.PreviewOptions) (*api.FineTunePreview, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	out := &api.FineTunePreview{DatasetFormat: "conversation", Rows: []api.FineTunePreviewRow{}}
	for i, l := range lines[:min(len(lines), opt.Rows)] {
		if l == "bad" {
			return nil, &engine.DataError{File: "training", Line: int64(i + 1), Message: fmt.Sprintf("Line %d: bad", i+1)}
		}
		row := api.FineTunePreviewRow{InputIDs: []int32{1, 2}, Tokens: []string{"a", "b"}, Labels: []int32{-100, 2}, TrainedSpans: [][2]int{{1, 2}}, NumTokens: 10, NumTrainedTokens: 1}
		if opt.TrainOnInputs {
			row.Labels, row.TrainedSpans, row.NumTrainedTokens = []int32{1, 2}, [][2]int{{0, 2}}, 2
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

func (p previewer) Tokens(ctx context.Context, dir string, r io.Reader, lines int64, opt finetunes.PreviewOptions) (int64, error) {
	opt.Rows = int(lines)
	out, err := p.Preview(ctx, dir, r, opt)
	if err != nil {
		return 0, err
	}
	return int64(10 * len(out.Rows)), nil
}

// file registers a dataset; set changes its record.
func (w *world) file(content string, set func(*resource.File)) string {
	w.t.Helper()
	id := w.kit.NewID("file")
	info, err := w.objects.Put(w.t.Context(), "files/"+id, strings.NewReader(content), int64(len(content)))
	if err != nil {
		w.t.Fatal(err)
	}
	lines := int64(strings.Count(content, "\n"))
	f := &resource.File{
		ID: resource.FileID(id), ProjectID: project, Name: "train.jsonl", Purpose: resource.PurposeFineTune, Type: resource.FileJSONL, Size: info.Size,
		SHA256: info.SHA256, ObjectKey: info.Key, Status: resource.FileCompleted, Report: &resource.FileReport{Valid: true, Format: "conversation", Lines: lines},
	}
	if set != nil {
		set(f)
	}
	err = w.db.Update(w.t.Context(), func(tx *store.Tx) error { return store.Files.Insert(tx, id, f) })
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

const sample = "one\ntwo\nthree\n"

// due is a job of the queue that is due, of a kind if one is given; nil when none is.
func (w *world) due(kind ...string) (due *resource.Job) {
	w.t.Helper()
	err := w.db.View(func(tx *store.Tx) error {
		list, _, err := store.Jobs.List(tx, "", store.Page{Limit: 1000})
		for _, j := range list {
			if due == nil && !j.DueAt.After(w.clock.Now()) && (len(kind) == 0 || kind[0] == j.Kind) {
				due = j
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return due
}

// work runs one job of the queue as a runner would, and returns its error, after
// which the job waits again.
func (w *world) work(ctx context.Context, job *resource.Job) error {
	w.t.Helper()
	w.mark(job, resource.JobRunning)
	if err := w.kinds[job.Kind].Run(ctx, *job); err != nil {
		w.mark(job, resource.JobQueued)
		return err
	}
	err := w.db.Update(w.t.Context(), func(tx *store.Tx) error {
		if err := store.Jobs.Delete(tx, string(job.ID)); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return nil
}

// mark moves a job of the queue, unless it was removed.
func (w *world) mark(job *resource.Job, next resource.JobStatus) {
	w.t.Helper()
	err := w.db.Update(w.t.Context(), func(tx *store.Tx) error {
		_, err := store.Jobs.Update(tx, string(job.ID), func(j *resource.Job) error { return j.To(next, w.clock.Now()) })
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// settle runs the jobs that are due until none is.
func (w *world) settle() {
	w.t.Helper()
	for job := w.due(); job != nil; job = w.due() {
		if err := w.work(w.t.Context(), job); err != nil {
			w.t.Fatal(err)
		}
	}
}

// send makes a request as the editor, or with another key.
func (w *world) send(method, target, body string, key ...string) (int, string) {
	w.t.Helper()
	req := httptest.NewRequestWithContext(w.t.Context(), method, "http://athanor/v1"+target, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+append(key, "editor-key")[0])
	resp, err := w.server.Test(req)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// call makes a request that must succeed.
func (w *world) call(method, target string, in, out any) {
	w.t.Helper()
	body := ""
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			w.t.Fatal(err)
		}
		body = string(data)
	}
	status, data := w.send(method, target, body)
	if status != http.StatusOK {
		w.t.Fatalf("%s %s %s: got %d %s", method, target, body, status, data)
	}
	if err := json.Unmarshal([]byte(data), out); err != nil {
		w.t.Fatal(err)
	}
}

type fields = map[string]any

// create makes a job on the base model with a fresh file.
func (w *world) create(more fields) api.FineTune {
	w.t.Helper()
	body := fields{"model": "lab/base", "training_file": w.file(sample, nil)}
	for k, v := range more {
		body[k] = v
	}
	var f api.FineTune
	w.call("POST", "/fine-tunes", body, &f)
	return f
}

func (w *world) job(id string) api.FineTune {
	w.t.Helper()
	var f api.FineTune
	w.call("GET", "/fine-tunes/"+id, nil, &f)
	return f
}

// events are the types of a job's events, with their steps.
func (w *world) events(id string) []string {
	w.t.Helper()
	var list api.FineTuneEventList
	w.call("GET", "/fine-tunes/"+id+"/events", nil, &list)
	var out []string
	for _, e := range list.Data {
		name := e.Type
		if e.Step > 0 {
			name = fmt.Sprintf("%s %d", name, e.Step)
		}
		out = append(out, name)
	}
	return out
}

// models are the names of what is registered for the project.
func (w *world) models() []string {
	w.t.Helper()
	list, err := registry{w.db}.Visible(project)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, m := range list {
		if m.ProjectID == project {
			out = append(out, m.Name)
		}
	}
	return out
}

// clean checks that nothing but records is left of jobs that are final.
func (w *world) clean() {
	w.t.Helper()
	entries, err := os.ReadDir(w.cfg.Dir)
	if err != nil || len(entries) > 0 {
		w.t.Errorf("left in the directory of jobs: %v, %v", entries, err)
	}
	err = w.db.View(func(tx *store.Tx) error {
		queue, _, err := store.Jobs.List(tx, "", store.Page{})
		secrets, _, serr := store.FineTuneSecrets.List(tx, "", store.Page{})
		if len(queue) > 0 || len(secrets) > 0 {
			w.t.Errorf("left: jobs %v, %d secrets", queue, len(secrets))
		}
		return errors.Join(err, serr)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) dropFile(id string) {
	w.t.Helper()
	if err := w.db.Update(w.t.Context(), func(tx *store.Tx) error { return store.Files.Delete(tx, id) }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setModel(id string, change func(*resource.Model)) {
	w.t.Helper()
	err := w.db.Update(w.t.Context(), func(tx *store.Tx) error {
		_, err := store.Models.Update(tx, id, func(m *resource.Model) error { change(m); return nil })
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) model(name string) *resource.Model {
	w.t.Helper()
	m, err := registry{w.db}.Resolve(project, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}
