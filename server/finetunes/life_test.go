package finetunes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/store/resource"
)

// course are the events of a job with two checkpoints and two epochs of eight steps.
var course = []string{
	"job_pending", "job_start", "model_downloading", "model_download_complete", "training_data_downloading", "training_data_download_complete",
	"tokenized_dataset_upload_complete", "training_start", "checkpoint_save 4", "epoch_complete 4", "checkpoint_save 8", "epoch_complete 8",
	"training_complete 8", "model_compressing", "model_compression_complete", "model_uploading", "model_upload_complete", "job_complete",
}

var twice = fields{"n_checkpoints": 2, "n_epochs": 2}

func TestSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(twice)
	if f.Status != "pending" || len(f.Events) != 1 || f.Events[0].Type != "job_pending" {
		t.Errorf("created: %+v", f)
	}
	w.settle()
	got := w.job(f.ID)
	if got.Status != "completed" || got.EpochsCompleted != 2 || got.TokenCount != 2000 || got.ParamCount != 5000 || got.BatchSize.N != 4 || got.TotalPrice != 0 {
		t.Errorf("in the end: %+v, details %+v", got, got.FineTuneDetails)
	}
	if events := w.events(f.ID); !slices.Equal(events, course) {
		t.Errorf("events\n%q, want\n%q", events, course)
	}
	if got.ModelObjectName != "acme/base-1" || got.AdapterObjectName != "acme/base-1-adapter" || got.ModelOutputName != "acme/base-1" || got.ModelObjectID == "" {
		t.Errorf("names: %s, %s, %s", got.ModelObjectName, got.AdapterObjectName, got.ModelOutputName)
	}
	if want := []string{"acme/base-1-4", "acme/base-1"}; !slices.Equal(w.models(), want) {
		t.Errorf("models %q, want %q", w.models(), want)
	}
	m, err := registry{w.db}.Resolve(project, "acme/base-1-adapter")
	if err != nil || m.BaseID != "model-base-1" || string(m.ID) != got.ModelObjectID || m.Lineage.Base.Name != "lab/base" {
		t.Errorf("by its alias: %+v, %v", m, err)
	}
	w.clean()
}

// TestEarlyStop has a validation file, full weights and early stopping.
func TestEarlyStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.StopAfter = 3
	f := w.create(fields{
		"validation_file": w.file(sample, nil), "n_evals": 4, "early_stopping_enabled": true, "training_type": fields{"type": "Full"}, "n_checkpoints": 1,
	})
	w.settle()
	got := w.job(f.ID)
	if got.Status != "completed" || !got.EarlyStopped || *got.EarlyStoppingBestStep != 2 || *got.EarlyStoppingBestMetric != 3 || got.AdapterObjectID != "" {
		t.Errorf("got %+v", got)
	}
	want := []string{
		"validation_data_downloading", "validation_data_download_complete", "tokenized_dataset_upload_complete", "training_start",
		"early_stopped 6", "checkpoint_save 6", "training_complete 6",
	}
	if events := w.events(f.ID); !slices.Equal(events[6:13], want) {
		t.Errorf("events %q, want %q", events[6:], want)
	}
	var list api.FineTuneEventList
	w.call("GET", "/fine-tunes/"+f.ID+"/events", nil, &list)
	for _, e := range list.Data {
		if (e.Type == "early_stopped") != (e.BestStep != nil) || e.BestStep != nil && (*e.BestStep != 2 || **e.BestMetricValue != 3) {
			t.Errorf("event %+v", e)
		}
	}
	m, err := registry{w.db}.Resolve(project, got.ModelOutputName)
	if err != nil || m.BaseID != "" || len(m.Files) != 3 {
		t.Errorf("the model: %+v, %v", m, err)
	}
	w.clean()
}

// TestCancel cancels a job before each of its events, and while it is stored.
func TestCancel(t *testing.T) {
	t.Parallel()
	stages := []string{"created", "queued", "planned", "started", "step 3", "checkpoint 4", "checkpoint 8", "finished", "storing", "stored"}
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Trainer = w.trainer
			var id, status string
			cancel := func() {
				var f api.FineTune
				w.call("POST", "/fine-tunes/"+id+"/cancel", nil, &f)
				status = f.Status
			}
			w.trainer.Hook = func(ctx context.Context, _ int, e *engine.TrainEvent) error {
				if stage == string(e.Type) || stage == fmt.Sprintf("%s %d", e.Type, e.Step) {
					cancel()
					<-ctx.Done()
				}
				return nil
			}
			id = w.create(twice).ID
			publications := 0
			w.weights.during = func() {
				if publications++; publications == 2 && stage == "storing" { // the first is that of a checkpoint
					cancel()
				}
			}
			switch stage {
			case "created":
				cancel()
			case "queued":
				if err := w.work(t.Context(), w.due()); err != nil {
					t.Fatal(err)
				}
				cancel()
			}
			w.settle()
			f, events := w.job(id), w.events(id)
			switch stage {
			case "storing": // the work is done
				if status != "cancel_requested" || f.Status != "completed" || events[len(events)-1] != "job_complete" {
					t.Errorf("%s, then %s with %q", status, f.Status, events)
				}
			case "stored":
				if code, body := w.send("POST", "/fine-tunes/"+id+"/cancel", ""); code != 400 || !strings.Contains(body, "completed") {
					t.Errorf("cancelling what is done: %d %s", code, body)
				}
			default:
				end := events[len(events)-2:]
				if f.Status != "cancelled" || end[0] != "cancel_requested" || end[1] != "job_stopped" || slices.Contains(w.models(), f.ModelOutputName) {
					t.Errorf("%s, events %q, models %q", f.Status, events, w.models())
				}
				if code, _ := w.send("POST", "/fine-tunes/"+id+"/cancel", ""); code != 400 {
					t.Errorf("cancelling again: %d", code)
				}
			}
			w.clean()
		})
	}
}

// TestFailures ends jobs by each error of the engine.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"data":    {&engine.DataError{File: "training", Line: 3, Message: "Line 3: nothing to train on"}, "The training file cannot be trained on: Line 3: nothing to train on"},
		"request": {&engine.RequestError{Param: "max_seq_length", Message: "too short"}, "max_seq_length: too short"},
		"memory":  {fmt.Errorf("worker: %w", engine.ErrNoMemory), "The job does not fit into the memory"},
		"worker":  {engine.ErrUnavailable, "The process that trained went away 5 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.trainer.Hook = func(_ context.Context, _ int, e *engine.TrainEvent) error {
				if e.Step == 3 {
					return tt.err
				}
				return nil
			}
			f := w.create(nil)
			w.settle()
			got, events := w.job(f.ID), w.events(f.ID)
			last := got.Events[len(got.Events)-1]
			if got.Status != "error" || last.Type != "job_error" || *last.Level != "error" || !strings.HasPrefix(last.Message, tt.want) || got.ErrorMessage != last.Message {
				t.Errorf("got %s, last event %+v", got.Status, last)
			}
			restarts := 0
			for _, e := range events {
				if e == "job_restarted" {
					restarts++
				}
			}
			if want := map[bool]int{true: 4, false: 0}[name == "worker"]; restarts != want {
				t.Errorf("restarted %d times, want %d: %q", restarts, want, events)
			}
			if len(w.models()) != 0 {
				t.Errorf("models %q", w.models())
			}
			w.clean()
		})
	}
}

// TestWorkerDies loses the worker in each of ten runs, each time a step further on.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.Steps = 20
	w.trainer.Hook = func(_ context.Context, run int, e *engine.TrainEvent) error {
		if run <= 10 && e.Step == 2*run {
			return fmt.Errorf("killed: %w", engine.ErrUnavailable)
		}
		return nil
	}
	f := w.create(fields{"n_epochs": 10})
	w.settle()
	if got := w.job(f.ID); got.Status != "completed" {
		t.Fatalf("got %s: %s", got.Status, got.ErrorMessage)
	}
	seen := map[string]int{}
	for _, e := range w.events(f.ID) {
		seen[e]++
	}
	for e, n := range seen {
		if e == "job_restarted" && n != 10 || e != "job_restarted" && n != 1 {
			t.Errorf("%s came %d times", e, n)
		}
	}
	var rows api.FineTuneMetrics
	w.call("GET", "/fine-tunes/"+f.ID+"/metrics", nil, &rows)
	if len(rows.Metrics) != 20 {
		t.Errorf("%d rows of 20 steps", len(rows.Metrics))
	}
}

// TestProcessDies stops the process, or lets it die, before each event of a job, and
// takes the job up in another one.
func TestProcessDies(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stopped", "killed"} {
		for at := 1; at <= 15; at++ {
			t.Run(fmt.Sprint(how, " ", at), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				base, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				n := 0
				died, never := make(chan struct{}), make(chan struct{})
				w.trainer.Hook = func(ctx context.Context, _ int, _ *engine.TrainEvent) error {
					if n++; n != at {
						return nil
					}
					if how == "stopped" {
						stop(jobs.ErrStopping)
						return nil
					}
					close(died)
					<-never // this process does nothing any more
					return errors.New("killed")
				}
				f := w.create(twice)
				if err := w.work(t.Context(), w.due()); err != nil { // its admission
					t.Fatal(err)
				}
				job := w.due()
				done := make(chan error, 1)
				go func() { done <- w.kinds[job.Kind].Run(base, *job) }()
				select {
				case err := <-done:
					if how != "stopped" || !errors.Is(base.Err(), context.Canceled) || err == nil {
						t.Fatalf("the run ended: %v", err)
					}
				case <-died:
				}
				w.boot()
				w.settle()
				got := w.job(f.ID)
				if got.Status != "completed" || len(w.models()) != 2 {
					t.Fatalf("got %s (%s), models %q", got.Status, got.ErrorMessage, w.models())
				}
				events := w.events(f.ID)
				events = slices.DeleteFunc(events, func(e string) bool { return e == "job_restarted" })
				if !slices.Equal(events, course) {
					t.Errorf("events\n%q, want\n%q", events, course)
				}
				var rows api.FineTuneMetrics
				w.call("GET", "/fine-tunes/"+f.ID+"/metrics", nil, &rows)
				if len(rows.Metrics) != 8 {
					t.Errorf("%d rows of 8 steps", len(rows.Metrics))
				}
				if how == "killed" {
					close(never)
					<-done // it finds that the job has ended, and changes nothing
				}
				if again := w.job(f.ID); again.Status != "completed" || len(again.Events) != len(got.Events) {
					t.Errorf("the dead process changed the job: %+v", again)
				}
				w.clean()
			})
		}
	}
}

// TestBusyMachine puts a job back until there is room.
func TestBusyMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.Busy = func(run int) error {
		if run <= 2 {
			return &engine.BusyError{Reason: fmt.Sprintf("another job trains, %d GiB are free", run)}
		}
		return nil
	}
	f := w.create(nil)
	if err := w.work(t.Context(), w.due()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var busy *engine.BusyError
		if err := w.work(t.Context(), w.due()); !errors.As(err, &busy) {
			t.Fatalf("got %v", err)
		}
		if got := w.job(f.ID); got.Status != "queued" || !strings.Contains(got.Events[len(got.Events)-1].Message, "another job trains") {
			t.Errorf("while it waits: %s, %+v", got.Status, got.Events)
		}
	}
	w.settle()
	events := w.events(f.ID)
	if got := w.job(f.ID); got.Status != "completed" || slices.Contains(events, "job_restarted") {
		t.Errorf("got %s, %q", got.Status, events)
	}
	waits := slices.DeleteFunc(events, func(e string) bool { return e != "job_pending" })
	if len(waits) != 2 { // creation, and the reason once
		t.Errorf("%d job_pending", len(waits))
	}
}

// TestCancelBetweenTries cancels jobs that nobody works on at the moment, in states in
// which jobs are worked on: they end at once, not with the next try.
func TestCancelBetweenTries(t *testing.T) {
	t.Parallel()
	for status, fail := range map[string]func(w *world){
		"running": func(w *world) {
			w.trainer.Hook = func(_ context.Context, _ int, e *engine.TrainEvent) error {
				if e.Step == 3 {
					return errors.New("a fault of the server's own")
				}
				return nil
			}
		},
		"uploading": func(w *world) {
			w.trainer.Result = func(r *engine.TrainResult) { r.ModelDir += "-that-is-not-there" }
		},
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			fail(w)
			id := w.create(nil).ID
			if err := w.work(t.Context(), w.due()); err != nil {
				t.Fatal(err)
			}
			if err := w.work(t.Context(), w.due()); err == nil || w.job(id).Status != status {
				t.Fatalf("after the try: %v, %s", err, w.job(id).Status)
			}
			var f api.FineTune
			w.call("POST", "/fine-tunes/"+id+"/cancel", nil, &f)
			if f.Status != "cancelled" || f.Events[len(f.Events)-1].Type != "job_stopped" {
				t.Errorf("got %s, %+v", f.Status, f.Events)
			}
			w.settle()
			w.clean()
		})
	}
}

// TestQueueDepth has three jobs in line.
func TestQueueDepth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []string
	for range 3 {
		ids = append(ids, w.create(nil).ID)
		if err := w.work(t.Context(), w.due("finetune-admit")); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(1e9)
	}
	for i, id := range ids {
		if got := w.job(id); got.QueueDepth != i || got.Status != "queued" {
			t.Errorf("job %d: %s at depth %d", i, got.Status, got.QueueDepth)
		}
	}
	if last := w.job(ids[2]); !strings.Contains(last.Events[0].Message, "2 jobs come before it") {
		t.Errorf("the first event says %q", last.Events[0].Message)
	}
}

// TestDelete deletes jobs in each state; the model stays, the rest goes.
func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(twice)
	if code, body := w.send("DELETE", "/fine-tunes/"+f.ID, ""); code != 400 || !strings.Contains(body, "cancel it first") {
		t.Errorf("deleting a job that waits: %d %s", code, body)
	}
	w.settle()
	kept := len(w.job(f.ID).Events)
	var out api.FineTuneDeleted
	w.call("DELETE", "/fine-tunes/"+f.ID+"?force=false", nil, &out)
	if code, _ := w.send("GET", "/fine-tunes/"+f.ID, ""); code != 404 || kept == 0 || out.Message == "" {
		t.Errorf("a deleted job: %d", code)
	}
	w.settle()
	if want := []string{"acme/base-1"}; !slices.Equal(w.models(), want) {
		t.Errorf("models %q, want %q", w.models(), want)
	}
	if len(w.weights.release) != 5 { // three of the merged model, two of the checkpoint
		t.Errorf("released %+v", w.weights.release)
	}
	archives := func() {
		t.Helper()
		if list, err := w.objects.List(t.Context(), "fine-tunes/", "", 0); err != nil || len(list) != 0 {
			t.Errorf("left %+v, %v", list, err)
		}
	}
	archives()

	g := w.create(nil)
	// As a process leaves it that died before it could note it.
	if _, err := w.objects.Put(t.Context(), "fine-tunes/"+g.ID+"/tokenized_dataset.tar.zst", strings.NewReader("rows"), 4); err != nil {
		t.Fatal(err)
	}
	w.call("DELETE", "/fine-tunes/"+g.ID+"?force=true", nil, &out)
	w.settle()
	var id string
	w.trainer.Hook = func(ctx context.Context, _ int, e *engine.TrainEvent) error {
		if e.Step == 2 {
			w.call("DELETE", "/fine-tunes/"+id+"?force=true", nil, &out)
			if got := w.job(id); got.Status != "cancel_requested" {
				t.Errorf("while it ends: %s", got.Status)
			}
		}
		return nil
	}
	id = w.create(nil).ID
	w.settle()
	for _, id := range []string{f.ID, g.ID, id} {
		if code, _ := w.send("GET", "/fine-tunes/"+id, ""); code != 404 {
			t.Errorf("job %s: %d", id, code)
		}
	}
	archives()
	var left api.FineTuneList
	w.call("GET", "/fine-tunes", nil, &left)
	if len(left.Data) != 0 {
		t.Errorf("listed: %+v", left.Data)
	}
	w.clean()
}

// TestWarningsComeOnce has a long warning, in letters of two bytes, in each of two
// tries.
func TestWarningsComeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trainer.Result = func(r *engine.TrainResult) {
		r.Export.Warning = "a" + strings.Repeat("é", 1200)
		r.ModelDir += "-that-is-not-there"
	}
	id := w.create(nil).ID
	for range 3 { // the admission, and two tries
		if err := w.work(t.Context(), w.due()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	var said []string
	for _, e := range w.job(id).Events {
		if e.Type == "warning" {
			said = append(said, e.Message)
		}
	}
	if want := []string{"a" + strings.Repeat("é", 999) + "..."}; !slices.Equal(said, want) {
		t.Errorf("got %q", said)
	}
}

// TestMissingInputs deletes what a job needs before it runs.
func TestMissingInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(nil)
	w.dropFile(f.TrainingFile)
	w.settle()
	if got := w.job(f.ID); got.Status != "error" || got.ErrorMessage != "The training file "+f.TrainingFile+" has been deleted" {
		t.Errorf("got %s: %s", got.Status, got.ErrorMessage)
	}
	g := w.create(nil)
	w.setModel("model-base-1", func(m *resource.Model) { m.Revision = "another" })
	w.settle()
	if got := w.job(g.ID); got.Status != "error" || !strings.Contains(got.ErrorMessage, "has been replaced") {
		t.Errorf("got %s: %s", got.Status, got.ErrorMessage)
	}
	w.clean()
}
