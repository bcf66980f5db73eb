package tracker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"athanor/server/egress"
)

const (
	maxAnswer = 8 << 20
	maxReason = 300
	stepKey   = "trainer/global_step"
)

// refusal is an answer that is not a success, or a connection that is not allowed.
type refusal struct {
	status int
	reason string
}

func (e *refusal) Error() string {
	if e.status == 0 {
		return e.reason
	}
	text := fmt.Sprintf("it answered %d %s", e.status, http.StatusText(e.status))
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

// temporary reports whether the same request may succeed later.
func (e *refusal) temporary() bool {
	return e.status >= 500 || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout || e.status == http.StatusConflict
}

// session is the state of one connection to the tracker; it belongs to the
// goroutine of its run.
type session struct {
	cfg     Config
	limits  Limits
	start   time.Time // of the run: of its first row
	entity  string
	project string

	next    int             // the number of the next line
	summary map[string]any  // the last value of each metric
	last    int             // the step of the last line when the run was taken up, -1 = none
	seen    map[string]bool // the metrics that the lines of that step have
}

const upsertRun = `mutation UpsertBucket($name: String, $project: String, $entity: String, $displayName: String, $config: JSONString) {
  upsertBucket(input: {name: $name, modelName: $project, entityName: $entity, displayName: $displayName, config: $config}) {
    bucket { id name displayName project { name entity { name } } }
    inserted
  }
}`

const resumeRun = `query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    bucket(name: $name, missingOk: true) { id name historyLineCount historyTail summaryMetrics }
  }
}`

// connect makes the run, or takes up the one of the same id.
func (s *session) connect(ctx context.Context) error {
	settings := map[string]any{}
	for k, v := range s.cfg.Settings {
		settings[k] = map[string]any{"value": v}
	}
	config, err := json.Marshal(settings)
	if err != nil {
		return &refusal{reason: "the settings of the job cannot be written as JSON"}
	}
	vars := map[string]any{"name": s.cfg.RunID, "project": s.cfg.Project, "config": string(config)}
	if s.cfg.Entity != "" {
		vars["entity"] = s.cfg.Entity
	}
	if s.cfg.Name != "" {
		vars["displayName"] = s.cfg.Name
	}
	var out struct {
		UpsertBucket *struct {
			Bucket struct {
				Project struct {
					Name   string
					Entity struct{ Name string }
				}
			}
			Inserted bool
		}
	}
	if err := s.query(ctx, upsertRun, vars, &out); err != nil {
		return err
	}
	if out.UpsertBucket == nil {
		return &refusal{reason: "it did not make the run"}
	}
	p := out.UpsertBucket.Bucket.Project
	if s.entity, s.project = p.Entity.Name, p.Name; s.entity == "" || s.project == "" {
		return &refusal{reason: "it did not say where the run is"}
	}
	s.summary, s.last, s.seen, s.next = map[string]any{}, -1, map[string]bool{}, 0
	if out.UpsertBucket.Inserted {
		return nil
	}
	return s.resume(ctx)
}

// resume learns what the tracker has of the run.
func (s *session) resume(ctx context.Context) error {
	var out struct {
		Model *struct {
			Bucket *struct {
				HistoryLineCount int
				HistoryTail      *string // JSON: a list of lines
				SummaryMetrics   *string // JSON
			}
		}
	}
	if err := s.query(ctx, resumeRun, map[string]any{"name": s.cfg.RunID, "project": s.project, "entity": s.entity}, &out); err != nil {
		return err
	}
	if out.Model == nil || out.Model.Bucket == nil {
		return nil
	}
	b := out.Model.Bucket
	s.next = max(0, b.HistoryLineCount)
	if b.SummaryMetrics != nil && json.Unmarshal([]byte(*b.SummaryMetrics), &s.summary) != nil || s.summary == nil {
		s.summary = map[string]any{} // a summary of another writer is replaced
	}
	var tail []string
	if b.HistoryTail != nil && json.Unmarshal([]byte(*b.HistoryTail), &tail) != nil {
		tail = nil
	}
	for _, line := range tail {
		var metrics map[string]any
		if json.Unmarshal([]byte(line), &metrics) != nil {
			continue
		}
		if at, ok := metrics["_timestamp"].(float64); ok {
			since, _ := metrics["_runtime"].(float64)
			s.start = time.UnixMilli(int64((at - since) * 1000))
		}
		step, ok := metrics[stepKey].(float64)
		if !ok || int(step) < s.last {
			continue
		}
		if int(step) > s.last {
			s.last, s.seen = int(step), map[string]bool{}
		}
		for k := range metrics {
			s.seen[k] = true
		}
	}
	return nil
}

// known reports whether a resumed run has the row already.
func (s *session) known(r row) bool {
	if r.step != s.last {
		return r.step < s.last
	}
	for k := range r.metrics {
		if !s.seen[k] {
			return false
		}
	}
	return true
}

// lines makes history lines of rows, from the next one on.
func (s *session) lines(rows []row) []string {
	lines := []string{}
	for _, r := range rows {
		if len(r.metrics) == 0 || s.known(r) {
			continue
		}
		if s.start.IsZero() {
			s.start = r.at
		}
		line := map[string]any{"_step": s.next + len(lines), "_timestamp": float64(r.at.UnixMilli()) / 1000,
			"_runtime": r.at.Sub(s.start).Seconds(), stepKey: r.step}
		for k, v := range r.metrics {
			line[k] = finite(v)
		}
		for k, v := range line {
			s.summary[k] = v
		}
		data, err := json.Marshal(line)
		if err != nil {
			continue // numbers and their names only: cannot happen
		}
		lines = append(lines, string(data))
	}
	return lines
}

// finite writes the numbers that JSON lacks as the tracker does.
func finite(v float64) any {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return v
}

// chunk is a piece of a file of the run.
type chunk struct {
	Offset  int      `json:"offset"`
	Content []string `json:"content"`
}

// send sends lines with their place and the summary; without lines it is a sign of
// life.
func (s *session) send(ctx context.Context, lines []string) error {
	body := map[string]any{"dropped": 0, "uploaded": []string{}}
	if len(lines) > 0 {
		summary, err := json.Marshal(s.summary)
		if err != nil {
			return &refusal{reason: "the summary cannot be written as JSON"}
		}
		body["files"] = map[string]chunk{
			"wandb-history.jsonl": {s.next, lines},
			"wandb-summary.json":  {0, []string{string(summary)}},
		}
	}
	return s.stream(ctx, body)
}

// sent moves on behind lines that have arrived.
func (s *session) sent(lines []string) { s.next += len(lines) }

// complete ends the run.
func (s *session) complete(ctx context.Context, exitCode int) error {
	return s.stream(ctx, map[string]any{"complete": true, "exitcode": exitCode, "dropped": 0, "uploaded": []string{}})
}

func (s *session) stream(ctx context.Context, body any) error {
	return s.post(ctx, s.cfg.BaseURL+"/files/"+s.path("")+"/file_stream", body, nil)
}

// path is where the run is: entity/project/[between/]run.
func (s *session) path(between string) string {
	parts := []string{url.PathEscape(s.entity), url.PathEscape(s.project), between, url.PathEscape(s.cfg.RunID)}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
}

// page is the run for people. The public service has its pages on another host.
func (s *session) page() string {
	base := s.cfg.BaseURL
	if base == "https://api.wandb.ai" {
		base = "https://wandb.ai"
	}
	return base + "/" + s.path("runs")
}

// query does one GraphQL operation.
func (s *session) query(ctx context.Context, text string, vars map[string]any, out any) error {
	var answer struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := s.post(ctx, s.cfg.BaseURL+"/graphql", map[string]any{"query": text, "variables": vars}, &answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return &refusal{reason: "it refused the run: " + s.clean(answer.Errors[0].Message)}
	}
	if err := json.Unmarshal(answer.Data, out); err != nil {
		return errors.New("its answer cannot be understood")
	}
	return nil
}

// post sends in as JSON and decodes the answer into out, unless that is nil.
func (s *session) post(ctx context.Context, to string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return &refusal{reason: "the request cannot be written as JSON"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(data))
	if err != nil {
		return &refusal{reason: "its URL is wrong"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "athanor")
	req.SetBasicAuth("api", s.cfg.Key)
	resp, err := s.cfg.HTTP.Do(req)
	if denied, found := errors.AsType[*egress.Denied](err); found {
		return &refusal{reason: denied.Error()}
	}
	if err != nil {
		if u, found := errors.AsType[*url.Error](err); found {
			err = u.Err
		}
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode >= 300 {
		var said struct{ Error, Message string }
		_ = json.Unmarshal(body, &said) // no reason is given when it says nothing
		return &refusal{resp.StatusCode, s.clean(said.Error + said.Message)}
	}
	if err != nil {
		return err
	}
	if out != nil && json.Unmarshal(body, out) != nil {
		return errors.New("its answer cannot be understood")
	}
	return nil
}

// clean makes words of the tracker fit for a warning.
func (s *session) clean(text string) string {
	if s.cfg.Key != "" {
		text = strings.ReplaceAll(text, s.cfg.Key, "...")
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
