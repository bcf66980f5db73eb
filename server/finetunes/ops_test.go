package finetunes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/finetunes"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/resource"
)

func TestTranscripts(t *testing.T) {
	t.Parallel()
	servertest.Transcripts(t, "testdata", func(t *testing.T) servertest.World {
		w := newWorld(t)
		vars := map[string]string{
			"EDITOR": "editor-key", "READER": "reader-key", "OTHER": "other-key", "TRAIN": w.file(sample, nil), "EVAL": w.file(sample, nil),
			"BAD": w.file("good\nbad\n", nil), "PENDING": w.file(sample, func(f *resource.File) { f.Status = resource.FileQueued }),
			"INVALID": w.file(sample, func(f *resource.File) { f.Status = resource.FileInvalid }),
			"IMAGES":  w.file(sample, func(f *resource.File) { f.Report.Multimodal = true }),
		}
		return servertest.World{Clock: w.clock, Vars: vars, Do: func(r *http.Request) (*http.Response, error) {
			resp, err := w.server.Test(r)
			if !strings.HasSuffix(t.Name(), "waiting") {
				w.settle()
			}
			return resp, err
		}}
	})
}

func TestAccessOfEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(nil)
	servertest.CheckAuthMatrix(t, servertest.Matrix{
		Do: w.server.Test, Ops: w.server.Ops(), Expired: "gone", Revoked: "gone", Foreign: "other-key",
		Key: func(org, role string) string {
			key := org + "-" + role + "-key"
			w.keys[key] = &rest.Principal{KeyID: key, ProjectID: project, OrgRole: org, ProjectRole: role}
			return key
		},
		Existing: func(rest.Op, string) string { return f.ID },
	})
	if got := w.job(f.ID); got.Status != "pending" {
		t.Errorf("the check changed the job: %+v", got)
	}
}

// TestOtherProjectsSeeNothing asks with the key of another project for everything of
// a completed job: nothing can be told from what does not exist.
func TestOtherProjectsSeeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(fields{"n_checkpoints": 2})
	w.settle()
	own := w.file(sample, func(f *resource.File) { f.ProjectID = "proj-2" })
	job := func(rest string) [2]string { return [2]string{"GET", "/fine-tunes/ID" + rest} }
	for _, op := range [][2]string{
		job(""), job("/events"), job("/checkpoints"), job("/metrics"), job("/download-tokenized-dataset"), {"DELETE", "/fine-tunes/ID"},
		{"POST", "/fine-tunes/ID/cancel"}, {"DELETE", "/fine-tunes/ID?force=true"}, {"GET", "/finetune/download?ft_id=ID"}, {"GET", "/finetune/download?ft_id=ID&checkpoint_step=4"},
	} {
		ask := func(id string) (int, string) {
			code, body := w.send(op[0], strings.Replace(op[1], "ID", id, 1), "", "other-key")
			return code, strings.ReplaceAll(body, id, "ID")
		}
		code, body := ask(f.ID)
		if unknown, words := ask("ft-nobody"); code != 404 || code != unknown || body != words {
			t.Errorf("%s %s: %d %s; for a job that nobody has: %d %s", op[0], op[1], code, body, unknown, words)
		}
	}
	for _, tt := range []struct {
		method, target, body string
		code                 int
	}{
		{"GET", "/fine-tunes/lineage?model=" + f.ModelOutputName, "", 404},
		{"GET", "/fine-tunes/models/limits?model_name=" + f.ModelOutputName, "", 404},
		{"POST", "/fine-tunes", fmt.Sprintf(`{"training_file":%q,"from_checkpoint":%q}`, own, f.ID), 400},
		{"POST", "/fine-tunes", fmt.Sprintf(`{"training_file":%q,"from_checkpoint":"%s:4"}`, own, f.ModelOutputName), 400},
		{"POST", "/fine-tunes", fmt.Sprintf(`{"training_file":%q,"model":%q}`, own, f.ModelOutputName), 404},
		{"POST", "/fine-tunes", fmt.Sprintf(`{"training_file":%q,"model":"lab/base"}`, f.TrainingFile), 400},
		{"POST", "/fine-tunes/estimate-price", fmt.Sprintf(`{"training_file":%q,"model":"lab/base"}`, f.TrainingFile), 400},
		{"POST", "/fine-tunes/preview", fmt.Sprintf(`{"training_file":%q,"model":"lab/base"}`, f.TrainingFile), 404},
		{"POST", "/fine-tunes/preview", fmt.Sprintf(`{"training_file":%q,"model":%q}`, own, f.ModelOutputName), 404},
	} {
		if code, body := w.send(tt.method, tt.target, tt.body, "other-key"); code != tt.code {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.target, tt.body, code, body)
		}
	}
	if _, body := w.send("GET", "/fine-tunes", "", "other-key"); body != `{"data":[]}` {
		t.Errorf("listed: %s", body)
	}
	if got := w.job(f.ID); got.Status != "completed" {
		t.Errorf("the job is %s now", got.Status)
	}
}

// TestRecordAndWire fills a record and looks for each of its parameters in the
// response, under each name that it has there.
func TestRecordAndWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(fields{"suffix": "s", "tracker_project_name": "p", "tracker_name": "n", "n_checkpoints": 2})
	w.settle()
	raw := func(target string) (out map[string]any) {
		w.call("GET", target, nil, &out)
		return out
	}
	full := raw("/fine-tunes/" + f.ID)
	short := raw("/fine-tunes")["data"].([]any)[0].(map[string]any)
	truncated := []string{
		"id", "status", "created_at", "updated_at", "started_at", "user_id", "owner_address", "total_price", "token_count", "events", "training_file",
		"packing", "max_seq_length", "model", "model_output_name", "suffix", "n_epochs", "n_evals", "n_checkpoints", "batch_size", "training_type",
		"training_method", "learning_rate", "lr_scheduler", "warmup_ratio", "max_grad_norm", "weight_decay", "random_seed", "wandb_project_name",
		"tracker_project_name", "wandb_name", "tracker_name", "progress", "early_stopped", "early_stopping_best_metric", "model_object_id",
		"model_object_revision_id", "adapter_object_id", "adapter_object_revision_id",
	}
	more := []string{
		"model_output_path", "tokenized_dataset_path", "tokenized_dataset_uploaded_at", "model_object_name", "adapter_object_name",
		"trainingfile_numlines", "trainingfile_size", "eval_steps", "job_id", "param_count", "epochs_completed", "queue_depth",
	}
	for _, name := range truncated {
		if _, ok := full[name]; !ok {
			t.Errorf("the full form lacks %s", name)
		}
		if _, ok := short[name]; !ok {
			t.Errorf("the truncated form lacks %s", name)
		}
	}
	for _, name := range more {
		if _, ok := full[name]; !ok {
			t.Errorf("the full form lacks %s", name)
		}
		if _, ok := short[name]; ok {
			t.Errorf("the truncated form has %s", name)
		}
	}
	w.deleteProject()
	gone := w.job(f.ID)
	if gone.ModelObjectName != gone.ModelObjectID || gone.AdapterObjectName != gone.AdapterObjectID || gone.ModelObjectID == "" {
		t.Errorf("without the project: %s, %s", gone.ModelObjectName, gone.AdapterObjectName)
	}
}

// TestOlderPython reads the events of a job as the older Python client does, which
// knows types in capitals only, and not all of them.
func TestOlderPython(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.StopAfter = 3
	k := &tracker{}
	w.cfg.Tracker = k
	w.boot()
	f := w.create(fields{"validation_file": w.file(sample, nil), "n_evals": 4, "early_stopping_enabled": true, "wandb_key": secret})
	w.settle()
	known := strings.Fields(`JOB_PENDING JOB_START MODEL_DOWNLOADING MODEL_DOWNLOAD_COMPLETE TRAINING_DATA_DOWNLOADING TRAINING_DATA_DOWNLOAD_COMPLETE
		VALIDATION_DATA_DOWNLOADING VALIDATION_DATA_DOWNLOAD_COMPLETE WARNING WANDB_INIT TRAINING_START WARNING CHECKPOINT_SAVE TRAINING_COMPLETE
		COMPRESSING_MODEL MODEL_COMPRESSION_COMPLETE MODEL_UPLOADING MODEL_UPLOAD_COMPLETE JOB_COMPLETE`)
	for _, target := range []string{"/fine-tunes/" + f.ID + "/events", "/fine-tunes/" + f.ID} {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "http://athanor/v1"+target, nil)
		req.Header.Set("Authorization", "Bearer editor-key")
		req.Header.Set("User-Agent", "Together/v1 PythonBindings/1.5.35")
		resp, err := w.server.Test(req)
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Data, Events []api.FineTuneEvent }
		if err := errors.Join(json.NewDecoder(resp.Body).Decode(&out), resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, e := range append(out.Data, out.Events...) {
			types = append(types, e.Type)
		}
		if !slices.Equal(types, known) {
			t.Errorf("%s: got %q", target, types)
		}
	}
}

// TestMetrics filters rows by step and time, and thins them out.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.Steps = 100
	w.trainer.Hook = func(context.Context, int, *engine.TrainEvent) error {
		w.clock.Advance(time.Second)
		return nil
	}
	start := w.clock.Now()
	f := w.create(fields{"validation_file": w.file(sample, nil), "n_evals": 5})
	w.settle()
	get := func(query string) (train, eval []float64) {
		t.Helper()
		var out api.FineTuneMetrics
		w.call("GET", "/fine-tunes/"+f.ID+"/metrics?"+query, nil, &out)
		last := 0.0
		for _, row := range out.Metrics {
			step, isTrain := row["train/global_step"]
			if evalStep, isEval := row["eval/global_step"]; isEval {
				step = evalStep
				eval = append(eval, step)
			} else if isTrain {
				train = append(train, step)
			}
			if step < last {
				t.Errorf("%s: step %g after %g", query, step, last)
			}
			last = step
		}
		return train, eval
	}
	at := func(seconds int) string {
		return url.QueryEscape(start.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339))
	}
	for _, tt := range []struct {
		query       string
		train, eval int
		first, last float64
	}{
		{"", 100, 5, 1, 100},
		{"global_step_from=10&global_step_to=20", 11, 1, 10, 20},
		{"resolution=1", 1, 5, 100, 100},
		{"resolution=2", 2, 5, 1, 100},
		{"resolution=7", 7, 5, 1, 100},
		{"resolution=99", 99, 5, 1, 100},
		{"resolution=1000", 100, 5, 1, 100},
		{"resolution=3&global_step_from=40", 3, 4, 40, 100},
		{"logged_at_from=" + at(0) + "&logged_at_to=" + at(12), 10, 0, 1, 10},
		{"logged_at_from=" + at(3600), 0, 0, 0, 0},
	} {
		train, eval := get(tt.query)
		if len(train) != tt.train || len(eval) != tt.eval || len(train) > 0 && (train[0] != tt.first || train[len(train)-1] != tt.last) {
			t.Errorf("%q: %d rows of training %v, %d of evaluation; want %+v", tt.query, len(train), train, len(eval), tt)
		}
	}
}

// TestProgress looks at a job while it runs.
func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen api.FineTune
	var id string
	w.trainer.Hook = func(_ context.Context, _ int, e *engine.TrainEvent) error {
		if e.Type == engine.TrainCheckpoint && e.Step == 4 { // after the note about the epoch of step 2
			seen = w.job(id)
		}
		return nil
	}
	id = w.create(fields{"n_epochs": 4, "n_checkpoints": 2}).ID
	w.settle()
	if seen.Status != "running" || seen.Step != 2 || seen.TotalSteps != 8 || !seen.Progress.EstimateAvailable || seen.Progress.SecondsRemaining != 6 || seen.EpochsCompleted != 1 {
		t.Errorf("while it runs: %+v %+v", seen.Progress, seen.FineTuneDetails)
	}
}

// TestRowsAreWrittenInTime waits, within a step, for the rows of the steps before.
func TestRowsAreWrittenInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Flush = time.Millisecond
	w.boot()
	var id string
	w.trainer.Hook = func(ctx context.Context, _ int, e *engine.TrainEvent) error {
		for e.Type == engine.TrainStep && e.Step == 3 && w.job(id).Step < 2 {
			if err := ctx.Err(); err != nil { // the test's time is over
				return err
			}
		}
		return nil
	}
	id = w.create(nil).ID
	w.settle()
	if got := w.job(id); got.Status != "completed" {
		t.Errorf("got %s: %s", got.Status, got.ErrorMessage)
	}
}

// hub is a model hub that has one repository.
type hub struct {
	w      *world
	err    error
	pushed []string
}

var _ finetunes.Hub = (*hub)(nil)

func (h *hub) Allowed() error { return nil }

func (h *hub) Fetch(_ context.Context, repo, revision, token, dir string, most int64) (string, error) {
	if most != 8*5000+1<<30 {
		h.w.t.Errorf("a repository of %d bytes may be fetched", most)
	}
	if h.err != nil || token != secret {
		return "", fmt.Errorf("%s at %s: %w", repo, revision, h.err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return "c0ffee", os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600)
}

func (h *hub) Push(_ context.Context, repo, token, dir, _ string) (string, error) {
	if h.err != nil || token != secret {
		return "", h.err
	}
	h.pushed = append(h.pushed, repo)
	return "https://hub.example/" + repo, nil
}

// tracker keeps what it is told.
type tracker struct {
	mu       sync.Mutex // guards what follows
	run      finetunes.TrackerRun
	rows     int
	finished []bool
}

var _ finetunes.Tracker = (*tracker)(nil)

func (k *tracker) Start(_ context.Context, run finetunes.TrackerRun) finetunes.TrackerSession {
	k.run = run
	run.Started("https://tracker.example/runs/" + run.ID)
	return k
}

func (k *tracker) Log(int, time.Time, map[string]float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows++
}

func (k *tracker) Finish(succeeded bool) { k.finished = append(k.finished, succeeded) }

// secret is a token that nobody may see again.
const secret = "s3cr3t-t0ken"

// TestHubAndTracker begins at a hub, ends there, reports to a tracker, and looks for
// the secrets everywhere.
func TestHubAndTracker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, k := &hub{w: w}, &tracker{}
	w.cfg.Hub, w.cfg.Tracker = h, k
	w.boot()
	shown := ""
	body := fields{
		"from_hf_model": "them/model", "hf_api_token": secret, "hub_output_repo_name": "us/model", "wandb_key": secret, "wandb_name": "run", "n_checkpoints": 2,
	}
	f := w.create(body)
	w.settle()
	got := w.job(f.ID)
	if got.Status != "completed" || *got.FromHFModel != "them/model" || *got.HubModelRevision != "main" || !slices.Equal(h.pushed, []string{"us/model"}) ||
		k.rows != 8 || !slices.Equal(k.finished, []bool{true}) || k.run.Project != "athanor" || *got.WandbURL != "https://tracker.example/runs/"+f.ID {
		t.Errorf("got %s (%s), hub %q, tracker %+v", got.Status, got.ErrorMessage, h.pushed, k)
	}
	if !slices.Contains(w.events(f.ID), "tracker_init") {
		t.Errorf("events %q", w.events(f.ID))
	}
	// No registered model is the base: the merged weights are the model.
	m := w.model(got.ModelOutputName)
	if m.BaseID != "" || got.AdapterObjectID != "" || m.Lineage.Base.Revision != "c0ffee" || m.Lineage.Artifacts["adapter"] == "" {
		t.Errorf("model %+v, lineage %+v", m, m.Lineage)
	}
	for _, target := range []string{"/fine-tunes", "/fine-tunes/" + f.ID, "/fine-tunes/" + f.ID + "/events", "/fine-tunes/" + f.ID + "/checkpoints", "/fine-tunes/lineage?model=" + m.Name} {
		_, body := w.send("GET", target, "")
		shown += body
	}
	settings, err := json.Marshal(k.run.Config)
	if err != nil || strings.Contains(shown+string(settings), secret) {
		t.Errorf("a secret is shown (%v)", err)
	}
	h.err = fmt.Errorf("the hub is closed")
	g := w.create(body)
	w.settle()
	if got := w.job(g.ID); got.Status != "error" || !strings.Contains(got.ErrorMessage, "the hub is closed") {
		t.Errorf("without the hub: %s: %s", got.Status, got.ErrorMessage)
	}
	delete(body, "from_hf_model")
	i := w.create(body)
	w.settle()
	if got := w.job(i.ID); got.Status != "completed" || !slices.Contains(w.events(i.ID), "warning") {
		t.Errorf("a hub that takes nothing: %s, %q", got.Status, w.events(i.ID))
	}
	w.clean()
}

// TestLineage verifies a chain, and again after something in it has changed.
func TestLineage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.Result = func(r *engine.TrainResult) { r.Export.Warning = "the merged model differs" }
	w.setModel("model-base-1", func(m *resource.Model) { m.Quantization = resource.QuantizationInt8 })
	f := w.create(fields{"n_checkpoints": 2, "validation_file": w.file(sample, nil)})
	w.settle()
	get := func(query string) (l api.FineTuneLineage) {
		t.Helper()
		w.call("GET", "/fine-tunes/lineage?model="+f.ModelOutputName+query, nil, &l)
		return l
	}
	l := get("")
	var kinds []string
	for _, link := range l.Chain {
		kinds = append(kinds, link.Kind+" "+link.State)
	}
	want := []string{"dataset verified", "dataset verified", "base verified", "checkpoint verified", "merged verified", "model verified"}
	if !l.Verified || !slices.Equal(kinds, want) || l.CodeVersion != "v1" || l.Export.Warning == "" || !strings.Contains(string(l.Config), `"learning_rate":0.00001`) || strings.Contains(string(l.Config), w.cfg.Dir) {
		t.Errorf("got %+v", l)
	}
	if q := l.Quantized; q == nil || q.MeanKL != 1e-3 || !strings.Contains(string(l.Config), `"quantization":"int8"`) {
		t.Errorf("as it is served: %+v, configuration %s", q, l.Config)
	}
	if !slices.Contains(w.events(f.ID), "warning") {
		t.Errorf("no warning in %q", w.events(f.ID))
	}
	if l := get("&verify=false"); l.Verified || l.Chain[0].State != "unknown" {
		t.Errorf("without reading: %+v", l)
	}
	m := w.model(f.ModelOutputName)
	if _, err := w.objects.Put(t.Context(), m.Files[0].ObjectKey, strings.NewReader("changed"), 7); err != nil {
		t.Fatal(err)
	}
	w.dropFile(f.TrainingFile)
	l = get("")
	last := l.Chain[len(l.Chain)-1]
	if l.Verified || l.Chain[0].State != "gone" || last.State != "changed" || !strings.Contains(last.Reason, m.Files[0].Path) {
		t.Errorf("after a change: %+v", l)
	}
	if code, _ := w.send("GET", "/fine-tunes/lineage?model="+f.ModelOutputName, "", "other-key"); code != 404 {
		t.Errorf("another project: %d", code)
	}
}

func (w *world) deleteProject() {
	w.t.Helper()
	if err := w.db.Update(w.t.Context(), func(tx *store.Tx) error { return store.Projects.Delete(tx, project) }); err != nil {
		w.t.Fatal(err)
	}
}
