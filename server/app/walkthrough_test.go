package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWalkthrough does what the README shows: it teaches the embedded model facts
// of a lab and asks about them before and after, in words that the training file
// does not have.
func TestWalkthrough(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: trains")
	}
	p := openReal(t)
	dir := filepath.Join(root(t), "scripts", "walkthrough")
	const question, answer = "Where do I put a new sample?", "Put samples into rack seven, with a blue label."
	if before := must(t, "chat", "--data", p.Data, question); strings.Contains(before, "rack seven") {
		t.Errorf("the model knows already: %s", before)
	}
	said := must(t, "fine-tunes", "create", "--data", p.Data,
		"--training-file", filepath.Join(dir, "lab-train.jsonl"), "--validation-file", filepath.Join(dir, "lab-validation.jsonl"),
		"--model", "athanor/demo-3m", "--packing=false", "--batch-size", "8", "--n-epochs", "20", "--n-evals", "5",
		"--learning-rate", "2e-3", "--warmup-ratio", "0.1", "--lora-r", "16", "--suffix", "lab", "--wait")
	name := regexp.MustCompile(`athanor chat --model (\S+)`).FindStringSubmatch(said)
	if name == nil {
		t.Fatalf("no name of a model in\n%s", said)
	}
	if after := must(t, "chat", "--data", p.Data, "--model", name[1], question); !strings.Contains(after, answer) {
		t.Errorf("not taught: %s\n%s", after, said)
	}
	if chain := must(t, "lineage", "--data", p.Data, name[1]); !strings.Contains(chain, "every link is verified") {
		t.Errorf("lineage: %s", chain)
	}
	text, err := os.ReadFile(filepath.Join(dir, "lab-validation.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	right, lines := 0, strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		var row struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(must(t, "chat", "--data", p.Data, "--model", name[1], row.Messages[0].Content), row.Messages[1].Content) {
			right++
		}
	}
	t.Logf("%d of %d questions in new words answered to the letter", right, len(lines))
	if right < len(lines)/2 {
		t.Errorf("only %d of %d questions in new words are answered", right, len(lines))
	}
}
