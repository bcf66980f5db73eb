package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func dataFile(t *testing.T, name, content string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func conversations(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"number %d"},{"role":"assistant","content":"Yes%s"}]}`+"\n", i, strings.Repeat(" and on", i))
	}
	return b.String()
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	good := dataFile(t, "a.jsonl", conversations(0, 20)+conversations(0, 2))
	other := dataFile(t, "b.jsonl", conversations(19, 23))
	text := dataFile(t, "c.jsonl", `{"text":"a"}`)
	pairs := dataFile(t, "d.jsonl", `{"input":{"messages":[{"role":"user","content":"a"}]},"preferred_output":[{"role":"assistant","content":"b"}],"non_preferred_output":[{"role":"assistant","content":"c"}]}`)
	bad := dataFile(t, "e.jsonl", conversations(0, 1)+"{}\nx\n")
	tests := []struct {
		name, args string
		want       []string
		err        string
	}{
		{"rules", good, []string{"format            conversation", "lines             22", "exact duplicates  2"}, ""},
		{"errors", bad, []string{"Line 2: the line must contain", "Line 3: the line is not valid JSON"}, "is not a valid fine-tune file"},
		{"few errors", bad + " --errors 1", []string{"Line 2", "... and 1 more lines with errors"}, "is not a valid"},
		{"validation", good + " --validation " + other, []string{"lines that are in the training file too: 1 of 4"}, ""},
		{"bad validation", good + " --validation " + bad, []string{"Line 2"}, "is not a valid"},
		{"other format", good + " --validation " + text, nil, "has the conversation format"},
		{"model", good + " --model athanor/demo-3m --show 1 --max-seq-length 40 --batch-size 4 --packing=false --n-epochs 3", []string{
			"samples           22", "cut at 40 tokens  8 samples", "⟦Yes<|im_end|>⟧", "steps of one epoch  6 with batches of 4, ", "job                 18 steps, ", "price               0.00 (no price is configured)"}, ""},
		{"packed", good + " --model athanor/demo-3m", []string{"steps of one epoch, packed  1 with batches of 1, "}, ""},
		{"no library", good + " --model athanor/demo-3m --onnxruntime " + filepath.Dir(good), []string{"time                        unknown: ONNX Runtime was not found"}, ""},
		{"batches that are chosen", good + " --model athanor/demo-3m --packing=false", []string{"steps of one epoch  11 with batches of 2, "}, ""},
		{"inputs", good + " --model athanor/demo-3m --show 1 --train-on-inputs", []string{"<|im_start|>⟦user\nnumber 0<|im_end|>"}, ""},
		{"preference", pairs + " --model athanor/demo-3m", []string{"chosen 1: ", "⟦b<|im_end|>⟧", "rejected 2: ", "⟦c<|im_end|>⟧"}, ""},
		{"model and validation", good + " --validation " + other + " --model athanor/demo-3m --show 0", []string{"b.jsonl for athanor/demo-3m\nsamples             4"}, ""},
		{"all prompt", good + " --model athanor/demo-3m --max-seq-length 4", []string{"left out         22 more samples", "samples          0"}, "leaves nothing to train on"},
		{"unknown model", good + " --model nobody", nil, "model: nobody is neither a directory nor athanor/demo-3m, and there are no other models"},
		{"no model", good + " --show 3", nil, "show: needs --model"},
		{"no model for the length", good + " --max-seq-length 30", nil, "max-seq-length: needs --model"},
		{"purpose", good + " --model athanor/demo-3m --purpose eval", nil, "only for the purpose fine-tune"},
		{"no errors", good + " --errors 0", nil, "errors: must be at least 1"},
		{"show", good + " --model athanor/demo-3m --show -1", nil, "show: must be between"},
		{"batch", good + " --model athanor/demo-3m --batch-size 0", nil, "batch-size: must be a whole number from 1 on or max"},
		{"epochs", good + " --model athanor/demo-3m --n-epochs 0", nil, "n-epochs: must be between 1 and 1000"},
		{"evaluations", good + " --model athanor/demo-3m --n-evals 1001", nil, "n-evals: must be between 0 and 1000"},
		{"evaluations of nothing", good + " --model athanor/demo-3m --n-evals 1", nil, "n-evals: needs --validation"},
		{"longer than the model reads", good + " --model athanor/demo-3m --max-seq-length 1025", nil, "model athanor/demo-3m: max-seq-length must be at most 1024"},
		{"type", good + " --model athanor/demo-3m --type some", nil, "type: must be lora or full"},
		{"rank", good + " --model athanor/demo-3m --lora-r 129", nil, "lora-r: must be between 1 and 128"},
		{"no model for the epochs", good + " --n-epochs 2", nil, "n-epochs: needs --model"},
		{"length", good + " --model athanor/demo-3m --max-seq-length 1", nil, "max-seq-length: must be at least 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, append([]string{"files", "check"}, strings.Fields(tt.args)...)...)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got %s\nwithout %q", out, want)
				}
			}
		})
	}
}

// TestPrintedSamplesCannotSteer: control characters of a dataset do not reach the
// terminal.
func TestPrintedSamplesCannotSteer(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	row := sampleRow{name: "sample", tokens: []string{"a\x1b[31m", "\u202eb", "c\nd"}, spans: [][2]int{{1, 2}}, learnt: 1}
	printRows(&b, []sampleRow{row}, lossMarks{"\x1b[32m", "\x1b[0m"})
	if want := "\nsample 1: 3 tokens, 1 learnt\na\uFFFD[31m\x1b[32m\uFFFDb\x1b[0mc\nd\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// TestAbout: durations as they are printed.
func TestAbout(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "less than 10 s", 12 * time.Second: "about 10 s", 86 * time.Second: "about 90 s", 100 * time.Second: "about 2 min", 89 * time.Minute: "about 89 min",
		100 * time.Minute: "about 2 h", 47 * time.Hour: "about 47 h", 60 * time.Hour: "about 3 days",
	} {
		if got := about(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

// TestHistogram: every sequence is in one bucket.
func TestHistogram(t *testing.T) {
	t.Parallel()
	name := dataFile(t, "a.jsonl", conversations(0, 137))
	out, err := run(t, "files", "check", name, "--model", "athanor/demo-3m", "--show", "0")
	if err != nil {
		t.Fatal(err)
	}
	sum, bars := 0, 0
	for line := range strings.Lines(out) {
		if line = strings.TrimRight(line, "\n"); strings.HasPrefix(line, "  ") {
			n := 0
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n); err != nil {
				t.Fatal(err)
			}
			sum, bars = sum+n, bars+1
		}
	}
	if sum != 137 || bars != 10 {
		t.Errorf("%d sequences in %d buckets:\n%s", sum, bars, out)
	}
}
