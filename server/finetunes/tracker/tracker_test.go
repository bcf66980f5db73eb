package tracker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/egress"
	"athanor/server/finetunes/tracker"
)

const key = "secret-api-key"

// server speaks the tracker's protocol and keeps its runs.
type server struct {
	t    *testing.T
	http *httptest.Server

	mu       sync.Mutex // protects fields below
	lines    []string   // of the history, by their place
	summary  map[string]any
	settings map[string]any
	name     string
	made     bool
	complete *int
	requests int
	beats    int
	statuses []int         // answers to the next requests, before they are looked at
	lose     int           // so many file streams are taken and answered with 502
	hang     chan struct{} // not nil: requests wait for it
	beat     chan struct{} // gets a value for each sign of life
}

func newServer(t *testing.T) *server {
	s := &server{t: t, beat: make(chan struct{}, 1000)}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client gave up
	}
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if len(s.statuses) > 0 {
		status := s.statuses[0]
		s.statuses = s.statuses[1:]
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":"no, %s"}`, key)
		return
	}
	if user, pass, _ := r.BasicAuth(); user != "api" || pass != key {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case "/graphql":
		s.graphql(w, body)
	case "/files/team/project/ft-1/file_stream":
		s.stream(w, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *server) graphql(w http.ResponseWriter, body []byte) {
	var in struct {
		Query     string
		Variables map[string]string
	}
	if err := json.Unmarshal(body, &in); err != nil {
		s.t.Error(err)
	}
	if in.Variables["name"] != "ft-1" || in.Variables["project"] != "project" {
		s.t.Errorf("variables %v", in.Variables)
	}
	if strings.HasPrefix(in.Query, "mutation UpsertBucket") {
		if err := json.Unmarshal([]byte(in.Variables["config"]), &s.settings); err != nil {
			s.t.Error(err)
		}
		s.name = in.Variables["displayName"]
		fmt.Fprintf(w, `{"data":{"upsertBucket":{"bucket":{"name":"ft-1","project":{"name":"project","entity":{"name":"team"}}},"inserted":%t}}}`, !s.made)
		s.made = true
		return
	}
	tail, err := json.Marshal(s.lines[max(0, len(s.lines)-2):])
	summary, err2 := json.Marshal(s.summary)
	if err != nil || err2 != nil {
		s.t.Error(err, err2)
	}
	answer := map[string]any{"data": map[string]any{"model": map[string]any{"bucket": map[string]any{
		"historyLineCount": len(s.lines), "historyTail": string(tail), "summaryMetrics": string(summary)}}}}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

func (s *server) stream(w http.ResponseWriter, body []byte) {
	var in struct {
		Files map[string]struct {
			Offset  int
			Content []string
		}
		Complete bool
		ExitCode int
	}
	if err := json.Unmarshal(body, &in); err != nil {
		s.t.Error(err)
	}
	history := in.Files["wandb-history.jsonl"]
	if history.Offset > len(s.lines) {
		s.t.Errorf("a gap: %d lines and the next is %d", len(s.lines), history.Offset)
		return
	}
	if len(history.Content) > 0 {
		s.lines = append(s.lines[:history.Offset], history.Content...)
		if err := json.Unmarshal([]byte(in.Files["wandb-summary.json"].Content[0]), &s.summary); err != nil {
			s.t.Error(err)
		}
	} else if !in.Complete {
		s.beats++
		select {
		case s.beat <- struct{}{}:
		default:
		}
	}
	if s.lose > 0 {
		s.lose--
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if in.Complete {
		s.complete = &in.ExitCode
	}
	io.WriteString(w, `{"exitcode":null,"limits":{}}`)
}

// report starts a run against s; started and warnings collect what it says, and
// may be read after its end.
func (s *server) report(limits tracker.Limits) (r *tracker.Run, started, warnings *[]string) {
	gate, err := egress.New([]string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	web := gate.Client(egress.Options{Purpose: "test"})
	s.t.Cleanup(web.CloseIdleConnections)
	started, warnings = &[]string{}, &[]string{}
	if limits.Retry == 0 {
		limits.Retry = time.Microsecond
	}
	return tracker.Start(tracker.Config{
		BaseURL: s.http.URL + "/", Key: key, Project: "project", RunID: "ft-1", Name: "my run", Settings: map[string]any{"lora_r": 8},
		HTTP: web, Limits: limits,
		Started: func(page string) { *started = append(*started, page) },
		Warn:    func(m string) { *warnings = append(*warnings, m) },
	}), started, warnings
}

// at is when a step ends: a second after the one before.
func at(step int) time.Time { return time.Date(2026, 1, 2, 3, 4, step, 0, time.UTC) }

func train(step int) map[string]float64 {
	return map[string]float64{"train/loss": 1 / float64(step), "train/global_step": float64(step)}
}

// steps are the steps in the history, in order, and a check of the lines' numbers.
func (s *server) steps(t *testing.T) (steps []int) {
	t.Helper()
	first := 0.0
	for i, line := range s.lines {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if step := int(l["trainer/global_step"].(float64)); l["_timestamp"] != float64(at(step).Unix()) || i > 0 && l["_runtime"] != float64(step)-first {
			t.Errorf("line %d: %s", i, line)
		} else if i == 0 {
			first = float64(step)
		}
		if l["_step"] != float64(i) {
			t.Errorf("line %d has _step %v", i, l["_step"])
		}
		steps = append(steps, int(l["trainer/global_step"].(float64)))
	}
	return steps
}

func upTo(from, to int) (list []int) {
	for i := from; i <= to; i++ {
		list = append(list, i)
	}
	return list
}

func TestWholeRun(t *testing.T) {
	tests := []struct {
		name  string
		fault func(*server)
	}{
		{"good", func(*server) {}},
		{"errors before the run is made", func(s *server) { s.statuses = []int{500, 503, 429} }},
		{"answers are lost", func(s *server) { s.lose = 5 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			tt.fault(s)
			r, started, warnings := s.report(tracker.Limits{Batch: 7, Flush: time.Millisecond})
			for step := 1; step <= 100; step++ {
				r.Log(step, at(step), train(step))
			}
			r.Log(100, at(100), map[string]float64{"eval/loss": math.NaN()})
			r.Finish(t.Context(), 0)
			if got, want := s.steps(t), append(upTo(1, 100), 100); !slices.Equal(got, want) {
				t.Errorf("the history has the steps %v", got)
			}
			if s.complete == nil || *s.complete != 0 || len(*warnings) != 0 {
				t.Errorf("complete %v, warnings %q", s.complete, *warnings)
			}
			if want := []string{s.http.URL + "/team/project/runs/ft-1"}; !slices.Equal(*started, want) {
				t.Errorf("started %q, want %q", *started, want)
			}
			if s.summary["eval/loss"] != "NaN" || s.summary["train/loss"] != 0.01 || s.name != "my run" {
				t.Errorf("summary %v, name %q", s.summary, s.name)
			}
			if got := fmt.Sprint(s.settings); got != "map[lora_r:map[value:8]]" {
				t.Errorf("settings %s", got)
			}
		})
	}
}

// TestResume checks that a run that was left goes on in its place, and that what
// the job reports again is there once.
func TestResume(t *testing.T) {
	s := newServer(t)
	r, _, _ := s.report(tracker.Limits{})
	for step := 1; step <= 10; step++ {
		r.Log(step, at(step), train(step))
	}
	r.Leave(t.Context())
	if s.complete != nil || len(s.lines) != 10 {
		t.Fatalf("complete %v after %d lines", s.complete, len(s.lines))
	}
	r, started, _ := s.report(tracker.Limits{})
	for step := 8; step <= 12; step++ {
		r.Log(step, at(step), train(step))
		if step == 10 {
			r.Log(step, at(step), map[string]float64{"eval/loss": 2})
		}
	}
	r.Finish(t.Context(), 1)
	if got, want := s.steps(t), append(upTo(1, 10), 10, 11, 12); !slices.Equal(got, want) {
		t.Errorf("the history has the steps %v, want %v", got, want)
	}
	if len(*started) != 1 || s.complete == nil || *s.complete != 1 || s.summary["train/loss"] != 1.0/12 {
		t.Errorf("started %q, complete %v, summary %v", *started, s.complete, s.summary)
	}
}

// TestBadTrackers checks that a tracker that does not work costs one warning and no
// waiting.
func TestBadTrackers(t *testing.T) {
	tests := []struct {
		name   string
		fault  func(*server)
		limits tracker.Limits
		want   string
	}{
		{"dead", func(s *server) { s.http.Close() }, tracker.Limits{Away: time.Millisecond}, "does not answer"},
		{"slow", func(s *server) { s.hang = make(chan struct{}) }, tracker.Limits{Request: time.Millisecond, Away: 3 * time.Millisecond}, "does not answer"},
		{"always in error", func(s *server) { s.statuses = slices.Repeat([]int{500}, 10000) }, tracker.Limits{Away: 10 * time.Millisecond}, "500"},
		{"wrong key", func(s *server) { s.statuses = []int{401} }, tracker.Limits{}, "401"},
		{"refuses later", func(s *server) { s.statuses = []int{500, 403} }, tracker.Limits{}, "403"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			tt.fault(s)
			r, started, warnings := s.report(tt.limits)
			for step := 1; step <= 1000; step++ {
				r.Log(step, at(step), train(step))
			}
			r.Finish(t.Context(), 0)
			r.Log(1001, at(1001), train(1001)) // harmless
			if len(*warnings) != 1 || !strings.Contains((*warnings)[0], tt.want) || len(*started) != 0 {
				t.Errorf("warnings %q, started %q, want one with %q", *warnings, *started, tt.want)
			}
			if strings.Contains(fmt.Sprint(*warnings), key) {
				t.Errorf("the key is in %q", *warnings)
			}
		})
	}
}

// TestFinishDoesNotWait checks that the context of Finish bounds it while a request
// hangs.
func TestFinishDoesNotWait(t *testing.T) {
	s := newServer(t)
	s.hang = make(chan struct{})
	r, _, warnings := s.report(tracker.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Finish(ctx, 0)
	if len(*warnings) != 1 {
		t.Errorf("warnings %q", *warnings)
	}
}

// TestNotListed checks that a tracker that the owner has not listed is not tried
// again.
func TestNotListed(t *testing.T) {
	gate, err := egress.New(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var warned string
	r := tracker.Start(tracker.Config{BaseURL: "https://tracker.example", Key: key, Project: "p", RunID: "r", HTTP: gate.Client(egress.Options{}), Warn: func(m string) { warned = m }})
	r.Finish(t.Context(), 0)
	if !strings.Contains(warned, "--allow-egress tracker.example") {
		t.Errorf("warned %q", warned)
	}
}

// TestQueue checks that the newest rows stay when the tracker is too slow.
func TestQueue(t *testing.T) {
	s := newServer(t)
	s.mu.Lock() // requests wait
	r, _, warnings := s.report(tracker.Limits{Queue: 10})
	for step := 1; step <= 100; step++ {
		r.Log(step, at(step), train(step))
	}
	s.mu.Unlock()
	r.Finish(t.Context(), 0)
	if got := s.steps(t); !slices.Equal(got, upTo(91, 100)) {
		t.Errorf("the history has the steps %v", got)
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "lacks 90 rows") {
		t.Errorf("warnings %q", *warnings)
	}
}

func TestHeartbeat(t *testing.T) {
	s := newServer(t)
	r, _, _ := s.report(tracker.Limits{Flush: time.Millisecond, Heartbeat: time.Millisecond})
	<-s.beat
	<-s.beat
	r.Finish(t.Context(), 0)
	if len(s.lines) != 0 || s.complete == nil {
		t.Errorf("%d lines, complete %v", len(s.lines), s.complete)
	}
}
