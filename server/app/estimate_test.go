package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/demo"
	"athanor/engine/train/data"
	"athanor/server/app"
	"athanor/server/config"
	"athanor/server/finetunes"
)

func demoDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, demo.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pairs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"input":{"messages":[{"role":"user","content":"number %d"}]},"preferred_output":[{"role":"assistant","content":"Yes%s"}],"non_preferred_output":[{"role":"assistant","content":"No"}]}`+"\n", i, strings.Repeat(" and on", i%7))
	}
	return b.String()
}

// countData counts a dataset for the embedded model as files check does.
func countData(t *testing.T, content string, preference bool) *data.Counts {
	t.Helper()
	e, err := data.NewEncoder(demo.FS(), data.EncodeOptions{Preference: preference})
	if err != nil {
		t.Fatal(err)
	}
	src := data.Source{Type: "jsonl", Content: strings.NewReader(content), Size: int64(len(content))}
	c, err := data.Count(t.Context(), e, src, "training", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTokensOfAFile: what estimates of a price are made from.
func TestTokensOfAFile(t *testing.T) {
	t.Parallel()
	dir := demoDir(t)
	count := func(content string, lines int64, opt finetunes.PreviewOptions) (int64, error) {
		opt.Type = "jsonl"
		return app.Previewer().Tokens(t.Context(), dir, strings.NewReader(content), lines, opt)
	}
	one := countData(t, `{"text":"a"}`, false).Tokens
	short, long := `{"text":"a"}`+"\n", `{"text":"a b c d e f g h i j k l m n"}`+"\n"
	p := pairs(40)
	for _, tt := range []struct {
		name, content string
		lines         int64
		opt           finetunes.PreviewOptions
		want          int64
	}{
		{"both answers of pairs", p, 40, finetunes.PreviewOptions{Preference: true}, countData(t, p, true).Tokens},
		{"small files to their end", short + long, 2, finetunes.PreviewOptions{}, countData(t, short+long, false).Tokens},
		{"cut samples", long, 1, finetunes.PreviewOptions{MaxSeqLength: 4}, 4},
		{"large files by their beginning", strings.Repeat(short, 20000) + strings.Repeat(long, 1000), 21000, finetunes.PreviewOptions{}, 21000 * one},
	} {
		if got, err := count(tt.content, tt.lines, tt.opt); err != nil || got != tt.want {
			t.Errorf("%s: got %d, %v, want %d", tt.name, got, err, tt.want)
		}
	}
	var wrong *engine.DataError
	if _, err := count(p, 40, finetunes.PreviewOptions{}); !errors.As(err, &wrong) || wrong.Line != 1 {
		t.Errorf("pairs for another method: %v", err)
	}
}

// TestWorkOfAJob: what a job will do, by its settings.
func TestWorkOfAJob(t *testing.T) {
	t.Parallel()
	train, eval := countData(t, trainingData(100), false), countData(t, trainingData(10), false)
	dpo := countData(t, pairs(100), true)
	for _, tt := range []struct {
		name        string
		job         app.TrainingJob
		batch       int
		steps, eval int64
	}{
		{"chosen", app.TrainingJob{Train: train, Epochs: 2, Rank: 8}, 12, 18, 0},
		{"given", app.TrainingJob{Train: train, Epochs: 2, Rank: 8, BatchSize: 7}, 7, 30, 0},
		{"packed", app.TrainingJob{Train: train, Epochs: 2, Rank: 8, Packing: true, RowLength: 1 << 20}, 1, 6, 0}, // rows of 2,048 tokens at most
		{"evaluated", app.TrainingJob{Train: train, Validation: eval, Epochs: 1, Evals: 3, BatchSize: 10}, 10, 10, 3 * eval.Tokens},
		{"pairs", app.TrainingJob{Train: dpo, Epochs: 1, Rank: 8, Packing: true, BatchSize: 4}, 4, 25, 0},
	} {
		tt.job.Model = demo.FS()
		w, err := tt.job.Work()
		if err != nil {
			t.Fatal(err)
		}
		if w.BatchSize != tt.batch || w.Steps != tt.steps || w.TrainTokens != int64(tt.job.Epochs)*tt.job.Train.Tokens || w.EvalTokens != tt.eval {
			t.Errorf("%s: got %+v", tt.name, w)
		}
		if fast, slow := w.Time(1e12), w.Time(1e9); fast <= 0 || slow < 5*fast || slow > 24*time.Hour {
			t.Errorf("%s: takes %v and %v", tt.name, fast, slow)
		}
	}
	if _, err := (&app.TrainingJob{Model: os.DirFS(t.TempDir()), Train: train, Epochs: 1}).Work(); err == nil {
		t.Error("a job without a model")
	}
}

// TestSpeedLeavesNoDataDirectory: measuring is no reason to make one.
func TestSpeedLeavesNoDataDirectory(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Data = filepath.Join(t.TempDir(), "data")
	c.ONNXRuntime = t.TempDir()
	if _, err := app.TrainingSpeed(t.Context(), c); !errors.Is(err, app.ErrNoRuntime) {
		t.Errorf("without a library: %v", err)
	}
	c.ONNXRuntime = library(t)
	if speed, err := app.TrainingSpeed(t.Context(), c); err != nil || speed < 1e8 {
		t.Errorf("got %g, %v", speed, err)
	}
	if _, err := os.Stat(c.Data); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

var timeForm = regexp.MustCompile(`(?m)^time +(less than|about) .* on this machine for --n-epochs 3 \(LoRA of rank 64\)$`)

// TestFilesCheckByName lints a dataset for an imported model by its name, without a
// server and beside one.
func TestFilesCheckByName(t *testing.T) {
	t.Parallel()
	source := filepath.Join(root(t), "..", "shared", "models", "stories260K")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("no model to import: %v", err)
	}
	dir, data := library(t), dataDir(t)
	must(t, "models", "import", source, "--data", data, "--onnxruntime", dir, "--name", "stories/small")
	file := filepath.Join(t.TempDir(), "stories.jsonl")
	if err := os.WriteFile(file, bytes.Repeat([]byte(`{"text":"Once upon a time there was a dog."}`+"\n"), 30), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"files", "check", file, "--model", "stories/small", "--n-epochs", "3", "--show", "1", "--data", data, "--onnxruntime", dir}
	check := func() string {
		out := must(t, args...)
		for _, want := range []string{"for stories/small", "samples            30", "⟦ Once", "price"} {
			if !strings.Contains(out, want) {
				t.Errorf("got %s\nwithout %q", out, want)
			}
		}
		if !timeForm.MatchString(out) {
			t.Errorf("no time in %s", out)
		}
		return out
	}
	check()
	serve(t, data, nil, "--onnxruntime", dir)
	check()
	for _, missing := range []string{"stories/none", "../stories"} {
		_, errs, code := run(t, nil, "files", "check", file, "--data", data, "--model", missing)
		if code != 1 || !strings.Contains(errs, "nor a model of "+data) || !strings.Contains(errs, "Unable to access model "+missing) {
			t.Errorf("%s: exit %d, %s", missing, code, errs)
		}
	}
}
