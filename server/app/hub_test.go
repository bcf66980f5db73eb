package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/config"
	"athanor/server/egress"
	"athanor/server/finetunes"
	"athanor/server/jobs"
)

func gate(t *testing.T, list ...string) *egress.Gate {
	t.Helper()
	g, err := egress.New(list, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestHubIsGated checks that the hub is out of reach until its host is listed, and
// that this can be told before a job is made.
func TestHubIsGated(t *testing.T) {
	cfg := config.Default()
	closed := newModelHub(cfg, gate(t))
	for _, err := range []error{
		closed.Allowed(),
		func() error { _, err := closed.Fetch(t.Context(), "a/b", "main", "", t.TempDir(), 1); return err }(),
	} {
		if _, denied := errors.AsType[*egress.Denied](err); !denied || !strings.Contains(err.Error(), "--allow-egress huggingface.co") {
			t.Errorf("got %v", err)
		}
	}
	if err := newModelHub(cfg, gate(t, "huggingface.co")).Allowed(); err != nil {
		t.Error(err)
	}
	if _, err := closed.Push(t.Context(), "a/b", "", t.TempDir(), "m"); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("push without a token: %v", err)
	}
}

func TestHubFile(t *testing.T) {
	tests := []struct {
		name string
		want bool
	}{
		{"config.json", true}, {"model-00001-of-00002.safetensors", true}, {"chat_template.jinja", true}, {"LICENSE", true},
		{"pytorch_model.bin", false}, {"onnx/model.onnx", false}, {"sub/config.json", false}, {"consolidated.safetensors", false},
	}
	for _, tt := range tests {
		if got := hubFile(tt.name); got != tt.want {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
}

// TestTrackerSession checks how a run ends at the tracker: with the job, or not at
// all when this process stops first.
func TestTrackerSession(t *testing.T) {
	tests := []struct {
		name string
		end  func(s finetunes.TrackerSession, stop context.CancelCauseFunc)
		want string
	}{
		{"completed", func(s finetunes.TrackerSession, _ context.CancelCauseFunc) { s.Finish(true) }, "exit 0"},
		{"failed, and the context at once", func(s finetunes.TrackerSession, stop context.CancelCauseFunc) { s.Finish(false); stop(nil) }, "exit 1"},
		{"cancelled", func(s finetunes.TrackerSession, stop context.CancelCauseFunc) {
			stop(jobs.ErrCancelled)
			s.Finish(false)
		}, "exit 1"},
		{"stopped", func(_ finetunes.TrackerSession, stop context.CancelCauseFunc) { stop(jobs.ErrStopping) }, "open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex // protects ended
			ended := "open"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in struct {
					Complete bool
					ExitCode int
				}
				if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if in.Complete {
					ended = "exit " + string(rune('0'+in.ExitCode))
				}
				io.WriteString(w, `{"data":{"upsertBucket":{"bucket":{"project":{"name":"p","entity":{"name":"e"}}},"inserted":true}}}`)
			}))
			defer server.Close()
			tr := newTrackers(gate(t, "127.0.0.1"))
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			started := make(chan string, 1)
			s := tr.Start(ctx, finetunes.TrackerRun{ID: "ft-1", APIKey: "k", BaseURL: server.URL, Project: "p", Started: func(url string) { started <- url }})
			s.Log(1, time.Unix(1, 0), map[string]float64{"train/loss": 1})
			if got := <-started; got != server.URL+"/e/p/runs/ft-1" {
				t.Errorf("the page is %s", got)
			}
			tt.end(s, stop)
			tr.wait(t.Context())
			if ended != tt.want {
				t.Errorf("the tracker has %s, want %s", ended, tt.want)
			}
		})
	}
}

// TestTrackerIsCutOff has a tracker that does not answer when the time to shut down
// is over: neither a job that has ended nor one that was cancelled holds the process.
func TestTrackerIsCutOff(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	tr := newTrackers(gate(t, "127.0.0.1"))
	done, over := context.WithCancelCause(t.Context())
	defer over(nil)
	run := finetunes.TrackerRun{ID: "ft-1", APIKey: "k", BaseURL: server.URL, Project: "p", Failed: func(string) {}}
	tr.Start(t.Context(), run).Finish(true)
	tr.Start(done, run)
	over(jobs.ErrCancelled) // and Finish is not called
	ended := make(chan struct{})
	go func() { defer close(ended); tr.wait(done) }()
	select {
	case <-ended:
	case <-time.After(trackerFinish - 5*time.Second):
		t.Error("the trackers are waited for")
	}
}
