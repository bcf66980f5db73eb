package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/server/api"
	"athanor/server/app"
	"athanor/server/config"
	"athanor/store"
)

// training puts t in place of the processes that train.
func training(t engine.Trainer) setting {
	return func(_ *config.Config, opt *app.Options) { opt.Trainer = t }
}

// trainable uploads a dataset and waits until it can be trained on.
func trainable(t *testing.T, base, key string) string {
	t.Helper()
	f, ok, err := sendFile(base, key, "fine-tune", trainingData(3))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	within(t, 10*time.Second, "the end of ingestion", func() bool { return fileOf(t, base, key, f.ID).ProcessingStatus == "COMPLETED" })
	return f.ID
}

// jobCall makes a request about fine-tuning that must succeed.
func jobCall[T any](t *testing.T, a *appliance, method, path, body string) (out T) {
	t.Helper()
	status, answer := send(t, method, a.Base+"/v1"+path, a.Admin, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	if err := json.Unmarshal([]byte(answer), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ended waits for the end of a job.
func ended(t *testing.T, a *appliance, id string) (f api.FineTune) {
	t.Helper()
	within(t, 20*time.Second, "the end of the job", func() bool {
		f = jobCall[api.FineTune](t, a, "GET", "/fine-tunes/"+id, "")
		return slices.Contains([]string{"completed", "error", "cancelled"}, f.Status)
	})
	return f
}

// fineTunes holds the responses of the operations on jobs against the description.
func (c *contract) fineTunes(t *testing.T) {
	t.Helper()
	file, eval := trainable(t, c.a.Base, c.a.Admin), trainable(t, c.a.Base, c.a.Admin)
	lora := fmt.Sprintf(`{"model":%q,"training_file":%q,"validation_file":%q,"n_evals":4,"n_checkpoints":2,"early_stopping_enabled":true,"suffix":"x","wandb_project_name":"p","lr_scheduler":{"lr_scheduler_type":"linear"}}`, app.DemoModel, file, eval)
	full := fmt.Sprintf(`{"model":%q,"training_file":%q,"training_type":{"type":"Full"}}`, app.DemoModel, file)
	c.described200(t, "POST /fine-tunes", "/fine-tunes", full)
	job := c.described200(t, "POST /fine-tunes", "/fine-tunes", lora)["id"].(string)
	if f := ended(t, c.a, job); f.Status != "completed" {
		t.Fatalf("%s: %s", f.Status, f.ErrorMessage)
	}
	model := jobCall[api.FineTune](t, c.a, "GET", "/fine-tunes/"+job, "").ModelOutputName
	for _, r := range []struct{ name, path, body string }{
		{"GET /fine-tunes", "/fine-tunes", ""},
		{"GET /fine-tunes/:id", "/fine-tunes/" + job, ""},
		{"GET /fine-tunes/:id/events", "/fine-tunes/" + job + "/events", ""},
		{"GET /fine-tunes/:id/checkpoints", "/fine-tunes/" + job + "/checkpoints", ""},
		{"GET /fine-tunes/:id/metrics", "/fine-tunes/" + job + "/metrics", ""},
		{"GET /fine-tunes/:id/download-tokenized-dataset", "/fine-tunes/" + job + "/download-tokenized-dataset", ""},
		{"GET /fine-tunes/models/limits", "/fine-tunes/models/limits?model_name=" + app.DemoModel, ""},
		{"GET /fine-tunes/models/supported", "/fine-tunes/models/supported", ""},
		{"POST /fine-tunes/estimate-price", "/fine-tunes/estimate-price", lora},
		{"POST /fine-tunes/preview", "/fine-tunes/preview", fmt.Sprintf(`{"model":%q,"training_file":%q}`, app.DemoModel, file)},
	} {
		c.described200(t, r.name, r.path, r.body)
	}
	if status, body := send(t, "GET", c.a.Base+"/v1/finetune/download?checkpoint=adapter&ft_id="+job, c.a.Admin, ""); status != http.StatusOK || body == "" {
		t.Errorf("download: %d", status)
	}
	c.seen["GET /finetune/download"] = true
	if m := jobCall[api.Model](t, c.a, "GET", "/models/"+model, ""); m.ID != model {
		t.Errorf("the model of the job: %+v", m)
	}
	c.described200(t, "DELETE /fine-tunes/:id", "/fine-tunes/"+job, "")
	job = c.described200(t, "POST /fine-tunes", "/fine-tunes", full)["id"].(string)
	within(t, 10*time.Second, "the beginning of the job", func() bool {
		return jobCall[api.FineTune](t, c.a, "GET", "/fine-tunes/"+job, "").Status == "running"
	})
	c.described200(t, "POST /fine-tunes/:id/cancel", "/fine-tunes/"+job+"/cancel", "")
	if f := ended(t, c.a, job); f.Status != "cancelled" {
		t.Errorf("got %s", f.Status)
	}
}

// thirdStays is a trainer whose third run goes on until it is cancelled.
func thirdStays() *enginetest.Trainer {
	return &enginetest.Trainer{Hook: func(ctx context.Context, run int, _ *engine.TrainEvent) error {
		if run == 3 {
			<-ctx.Done()
		}
		return nil
	}}
}

// described200 makes a request that must succeed, checks the response, and returns
// it.
func (c *contract) described200(t *testing.T, name, path, body string) map[string]any {
	t.Helper()
	method, pattern, _ := strings.Cut(name, " ")
	described := strings.ReplaceAll(pattern, ":id", "{id}")
	out := jobCall[map[string]any](t, c.a, method, path, body)
	answer, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	schema := c.doc.Paths.Find(described).GetOperation(method).Responses.Status(200).Value.Content.Get("application/json").Schema.Value
	c.validate(t, described, name, schema, answer)
	c.seen[name] = true
	return out
}

// TestNothingIsHalfRegistered has jobs whose results can be stored in part only, and
// then one that goes well and is deleted.
func TestNothingIsHalfRegistered(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	data := ""
	a := open(t, func(cfg *config.Config, _ *app.Options) { data = cfg.Data }, training(&enginetest.Trainer{Result: func(r *engine.TrainResult) {
		if broken.Load() {
			r.AdapterDir += "-that-is-not-there"
		}
	}}))
	before := objectsOf(t, data)
	request := fmt.Sprintf(`{"model":%q,"training_file":%q}`, app.DemoModel, trainable(t, a.Base, a.Admin))
	id := jobCall[api.FineTune](t, a, "POST", "/fine-tunes", request).ID
	var f api.FineTune
	within(t, 20*time.Second, "the end of the job", func() bool {
		a.Clock.Advance(10 * time.Minute) // past the pauses between its tries
		a.Wake()
		f = jobCall[api.FineTune](t, a, "GET", "/fine-tunes/"+id, "")
		return f.Status == "error"
	})
	if f.ErrorMessage != "The server failed to do the job; its log says why" {
		t.Errorf("got %s", f.ErrorMessage)
	}
	if after := objectsOf(t, data); len(after) != len(before) {
		t.Errorf("%d objects of models before, %d after", len(before), len(after))
	}
	broken.Store(false)
	id = jobCall[api.FineTune](t, a, "POST", "/fine-tunes", request).ID
	if f = ended(t, a, id); f.Status != "completed" {
		t.Fatalf("afterwards: %s: %s", f.Status, f.ErrorMessage)
	}
	if l := jobCall[api.FineTuneLineage](t, a, "GET", "/fine-tunes/lineage?model="+f.ModelOutputName, ""); !l.Verified || len(l.Chain) != 4 {
		t.Errorf("lineage: %+v", l)
	}
	if kept := objectsOf(t, data); len(kept) != len(before)+3 { // two of the adapter, one of the merged model
		t.Errorf("%d objects of models before, %d after a job", len(before), len(kept))
	}
	jobCall[api.FineTuneDeleted](t, a, "DELETE", "/fine-tunes/"+id, "")
	within(t, 10*time.Second, "the deletion", func() bool { return len(objectsOf(t, data)) == len(before)+2 })
	within(t, 10*time.Second, "the removal of directories", func() bool {
		left, err := os.ReadDir(filepath.Join(data, "training"))
		return err == nil && len(left) == 0
	})
	err := a.DB().Update(t.Context(), func(tx *store.Tx) error { return store.Check(tx) })
	if err != nil {
		t.Error(err)
	}
}

// objectsOf lists the objects of models in a data directory.
func objectsOf(t *testing.T, data string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(data, "objects", "models", "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
