package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

// handler is a server in this process.
type handler struct{ http.Handler }

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// appliance answers about one job, whose steps go on with every question.
type appliance struct {
	t       *testing.T
	asked   int
	ends    string // the last status
	problem string
	created *api.FineTuneRequest
	uploads int
}

const steps = 40 // of the job

func (a *appliance) client() *client {
	mux := http.NewServeMux()
	reply := func(path string, v func(r *http.Request) any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewEncoder(w).Encode(v(r)); err != nil {
				a.t.Error(err)
			}
		})
	}
	reply("GET /v1/fine-tunes/ft-1", func(*http.Request) any { return a.next() })
	reply("GET /v1/fine-tunes/ft-1/events", func(*http.Request) any { return api.FineTuneEventList{Data: a.events()} })
	reply("GET /v1/fine-tunes/ft-1/metrics", func(r *http.Request) any {
		var from int
		if _, err := fmt.Sscan(r.FormValue("global_step_from"), &from); err != nil {
			a.t.Error(err)
		}
		return api.FineTuneMetrics{Metrics: a.rows(from)}
	})
	reply("POST /v1/fine-tunes", func(r *http.Request) any {
		a.created = &api.FineTuneRequest{}
		if err := json.NewDecoder(r.Body).Decode(a.created); err != nil {
			a.t.Error(err)
		}
		return api.FineTune{ID: "ft-1", Status: "pending", ModelOutputName: "out"}
	})
	reply("POST /v1/files", func(r *http.Request) any {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			a.t.Error(err)
		}
		a.uploads++
		return api.File{ID: fmt.Sprintf("file-%d", a.uploads), Filename: "data.jsonl", ProcessingStatus: "COMPLETED",
			ValidationReport: &api.FileReport{Valid: true, NLines: 2, DatasetFormat: "general"}}
	})
	reply("GET /v1/fine-tunes/ft-1/download-tokenized-dataset", func(*http.Request) any {
		return api.TokenizedDataset{URL: "http://athanor/v1/archive?signature=x"}
	})
	mux.HandleFunc("GET /v1/archive", func(w http.ResponseWriter, _ *http.Request) { download(w, "rows.tar.zst", "rows") })
	mux.HandleFunc("GET /v1/finetune/download", func(w http.ResponseWriter, r *http.Request) {
		download(w, "../weights.tar.zst", "weights of "+r.FormValue("ft_id")+r.FormValue("checkpoint")+r.FormValue("checkpoint_step"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":{"message":"no `+r.URL.Path+`","type":"t","param":null,"code":null}}`)
	})
	return &client{http: &http.Client{Transport: handler{mux}}, every: time.Nanosecond}
}

func download(w http.ResponseWriter, name, content string) {
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	io.WriteString(w, content)
}

// next is the job, seven steps on.
func (a *appliance) next() *api.FineTune {
	a.asked++
	j := &api.FineTune{ID: "ft-1", Status: "running", Model: "base", ModelOutputName: "out",
		Progress: api.FineTuneProgress{EstimateAvailable: true, SecondsRemaining: 75}, FineTuneDetails: &api.FineTuneDetails{Step: a.step(), TotalSteps: steps}}
	if a.step() == steps {
		j.Status, j.ErrorMessage = a.ends, a.problem
	}
	return j
}

func (a *appliance) step() int { return min(steps, 7*(a.asked-1)) }

func (a *appliance) events() (list []api.FineTuneEvent) {
	level := "warning"
	list = append(list, api.FineTuneEvent{CreatedAt: "2026-01-01T00:00:00.000Z", Type: "job_pending", Message: "Job \x1b[31mcreated"})
	if a.step() >= 20 {
		list = append(list, api.FineTuneEvent{CreatedAt: "2026-01-01T00:00:20.000Z", Type: "warning", Level: &level, Message: "careful"})
	}
	return list
}

func (a *appliance) rows(from int) (rows []map[string]float64) {
	for step := max(1, from); step <= a.step(); step++ {
		rows = append(rows, map[string]float64{"train/global_step": float64(step), "train/loss": 4 / float64(step), "train/learning_rate": 1e-5})
		if step%10 == 0 {
			rows = append(rows, map[string]float64{"eval/global_step": float64(step), "eval/loss": 1 + float64((step-30)*(step-30))/100})
		}
	}
	return rows
}

// TestWatchPlain checks what a file or a pipe gets: every event and evaluation
// once, and a line for each tenth.
func TestWatchPlain(t *testing.T) {
	a := &appliance{t: t, ends: "completed"}
	var out bytes.Buffer
	if err := a.client().watch(t.Context(), &out, "ft-1"); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for want, times := range map[string]int{"job_pending": 1, "WARNING careful": 1, "eval 10 ": 1, "eval 20 ": 1, "eval 30 ": 1, "eval 40 ": 1, "100%  step 40 ": 1,
		" 10%  step 4 ": 1, "completed. Speak to it with: athanor chat --model out": 1, "\x1b": 0} {
		if got := strings.Count(text, want); got != times {
			t.Errorf("%q is there %d times, want %d", want, got, times)
		}
	}
	if got := strings.Count(text, "%  step "); got != 10 {
		t.Errorf("%d lines of progress in %s", got, text)
	}
}

func TestWatchEnds(t *testing.T) {
	tests := []struct{ status, problem, want string }{
		{"cancelled", "", "cancelled"}, {"error", "no memory", "the job failed: no memory"}, {"error", "", "events ft-1"},
	}
	for _, tt := range tests {
		a := &appliance{t: t, ends: tt.status, problem: tt.problem}
		if err := a.client().watch(t.Context(), io.Discard, "ft-1"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.status, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &appliance{t: t}
	if err := a.client().watch(ctx, io.Discard, "ft-1"); err == nil || !strings.Contains(err.Error(), "stopped watching, not the job") {
		t.Errorf("interrupted: got %v", err)
	}
	if err := a.client().watch(t.Context(), io.Discard, "ft-2"); err == nil || !strings.Contains(err.Error(), "no /v1/fine-tunes/ft-2") {
		t.Errorf("an unknown job: got %v", err)
	}
}

// TestWatchPicture checks what a terminal gets: the last picture has the bar, the
// curve and the best evaluation, and every one replaces the one before.
func TestWatchPicture(t *testing.T) {
	a := &appliance{t: t, ends: "completed"}
	var out bytes.Buffer
	w := &watching{client: a.client(), id: "ft-1", out: &out, terminal: true}
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pictures := strings.Split(out.String(), "\x1b[J")
	if len(pictures) != a.asked {
		t.Errorf("%d pictures of %d answers", len(pictures), a.asked)
	}
	last := pictures[len(pictures)-1]
	for _, want := range []string{"ft-1  completed\nbase -> out\n", "[##############################] 40 of 40 steps, about 1m15s left", "training loss", "┤", "eval 30  loss 1  (best)", "careful"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last picture lacks %q:\n%s", want, last)
		}
	}
	for line := range strings.SplitSeq(last, "\n") {
		if n := len([]rune(line)); n > screenWidth {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
}

func TestEventsFollow(t *testing.T) {
	for _, follow := range []bool{false, true} {
		a := &appliance{t: t, ends: "completed"}
		var out bytes.Buffer
		if err := a.client().printEvents(t.Context(), &out, "ft-1", follow); err != nil {
			t.Fatal(err)
		}
		want := 1
		if follow {
			want = 2
		}
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("follow %t: %d lines in %s", follow, got, out.String())
		}
	}
}

// create parses args and starts a job with them.
func create(t *testing.T, a *appliance, args ...string) (string, error) {
	t.Helper()
	var n newJob
	var out bytes.Buffer
	cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error { return a.client().create(cmd, &n) }, SilenceUsage: true, SilenceErrors: true}
	n.register(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCreate(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data.jsonl")
	key := filepath.Join(t.TempDir(), "key")
	for name, content := range map[string]string{data: "{\"text\":\"a\"}\n", key: " secret\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &appliance{t: t, ends: "completed"}
	out, err := create(t, a, "--training-file", data, "--validation-file", "file-abc", "--model", "base", "--n-epochs", "3", "--batch-size", "max", "--lora-r", "8",
		"--train-on-inputs", "auto", "--packing=false", "--random-seed", "0", "--lr-scheduler", "cosine", "--min-lr-ratio", "0.1", "--tracker-key-file", key, "--wait")
	if err != nil {
		t.Fatal(err)
	}
	r := a.created
	switch {
	case r.TrainingFile != "file-1" || *r.ValidationFile != "file-abc" || r.Model != "base":
		t.Errorf("files and model: %+v", r)
	case *r.NEpochs != 3 || !r.BatchSize.Max || *r.LoRAR != 8 || *r.Packing || *r.RandomSeed != 0:
		t.Errorf("numbers: %+v", r)
	case r.TrainingMethod.Method != "sft" || *r.TrainingMethod.TrainOnInputs != "auto" || r.LRScheduler.Type != "cosine" || *r.LRScheduler.Args.MinLRRatio != 0.1:
		t.Errorf("methods: %+v", r)
	case *r.TrackerAPIKey != "secret" || strings.Contains(out, "secret"):
		t.Errorf("the key: %+v, %s", r.NamedTwice, out)
	case r.NEvals != nil || r.LearningRate != nil || r.TrainingType != nil || r.LoRAAlpha != nil || r.HubAPIToken != nil || r.EarlyStoppingEnabled != nil:
		t.Errorf("what was not given is sent: %+v", r)
	}
	for _, want := range []string{"uploaded file-1", "created ft-1: the result will be called out", "100%"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--model", "m"}, "training-file"},
		{[]string{"--training-file", "file-1"}, "athanor models list"},
		{[]string{"--training-file", "nowhere.jsonl", "--model", "m"}, "give a path, or the id"},
		{[]string{"--training-file", "file-1", "--model", "m", "--validation-file", "nowhere"}, "validation file"},
		{[]string{"--training-file", "file-1", "--model", "m", "--batch-size", "big"}, "batch-size"},
		{[]string{"--training-file", "file-1", "--model", "m", "--type", "half"}, "lora or full"},
		{[]string{"--training-file", "file-1", "--model", "m", "--train-on-inputs", "maybe"}, "train-on-inputs"},
		{[]string{"--training-file", "file-1", "--model", "m", "--min-lr-ratio", "0.5"}, "lr-scheduler"},
		{[]string{"--training-file", "file-1", "--model", "m", "--hf-token-file", "nowhere"}, "hf-token-file"},
		{[]string{"--training-file", "file-1", "--model", "m", "--hf-token-file", "-", "--tracker-key-file", "-"}, "standard input"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			a := &appliance{t: t}
			if _, err := create(t, a, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) || a.created != nil {
				t.Errorf("got %v, want %q; created %v", err, tt.want, a.created)
			}
		})
	}
}

func TestSave(t *testing.T) {
	t.Chdir(t.TempDir())
	c := (&appliance{t: t}).client()
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	get := func(to string, f func() (*http.Response, error)) error {
		resp, err := f()
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return save(cmd, resp, to)
	}
	weights := func() (*http.Response, error) { return c.weights(t.Context(), "ft-1", "adapter", 10) }
	if err := get("", weights); err != nil {
		t.Fatal(err)
	}
	if err := get("rows", func() (*http.Response, error) { return c.tokenizedDataset(t.Context(), "ft-1") }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"weights.tar.zst": "weights of ft-1adapter10", "rows": "rows"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if err := get("", weights); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second time: %v", err)
	}
	short := &http.Response{Body: io.NopCloser(strings.NewReader("half")), ContentLength: 8, Header: http.Header{}}
	if err := save(cmd, short, "short"); err == nil || !strings.Contains(err.Error(), "4 of 8 bytes") {
		t.Errorf("a download that was cut: %v", err)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestShowPreview(t *testing.T) {
	var out bytes.Buffer
	p := &api.FineTunePreview{Model: "m", DatasetFormat: "instruction", MaxSeqLength: 16, Rows: []api.FineTunePreviewRow{{
		Tokens: []string{"ask", "\n", "ans", "wer", "\x1b[2J"}, TrainedSpans: [][2]int{{2, 4}}, NumTokens: 5, NumTrainedTokens: 2, Truncated: true}}}
	showPreview(&out, p, marksFor(&out))
	if want := "m, instruction format, at most 16 tokens\n\nsample 1: 5 tokens, 2 learnt, cut\nask\n⟦answer⟧\uFFFD[2J\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestShowLineage(t *testing.T) {
	l := &api.FineTuneLineage{Model: "out", Job: "ft-1", Verified: true, Chain: []api.LineageLink{{Kind: "dataset", Role: "training", Name: "file-1", Hash: "abc", State: "verified"}}}
	var out bytes.Buffer
	if err := showLineage(&out, l); err != nil || !strings.Contains(out.String(), "every link is verified") {
		t.Errorf("got %v, %s", err, out.String())
	}
	l.Verified = false
	l.Quantized = &api.LineageExport{Prompts: 8, Positions: 600, MaxLogit: 0.5, MeanKL: 0.06, TopMatches: 0.9, Warning: "it differs"}
	l.Export = &api.LineageExport{Warning: "not compared"}
	l.Chain = append(l.Chain, api.LineageLink{Kind: "base", Name: "m", State: "changed", Reason: "another content"})
	out.Reset()
	if err := showLineage(&out, l); err == nil || err.Error() != "1 of 2 links are not verified" || !strings.Contains(out.String(), "changed: another content") {
		t.Errorf("got %v, %s", err, out.String())
	}
	const want = "warning: not compared\n\nas it is served against float32, on 8 prompts: largest difference of a logit 0.5, mean divergence 0.06 nats, same first choice 90.0%\nwarning: it differs\n"
	if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "merged") {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}

func TestShowJob(t *testing.T) {
	rank, alpha, modules := 8, 16, "q_proj"
	j := &api.FineTune{ID: "ft-1", Status: "queued", TrainingType: &api.TrainingType{Type: "Lora", LoRAR: &rank, LoRAAlpha: &alpha, LoRATrainableModules: &modules},
		FineTuneDetails: &api.FineTuneDetails{QueueDepth: 2}}
	var out bytes.Buffer
	if err := showJob(&out, j); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Lora, rank 8, alpha 16, q_proj", "jobs before it"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q: %s", want, out.String())
		}
	}
	if got := progressLine(j); got != "2 jobs come before this one" {
		t.Errorf("got %q", got)
	}
}
