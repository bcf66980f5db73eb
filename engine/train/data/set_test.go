package data_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/train/data"
)

// spec writes content into a file and describes it.
func spec(tb testing.TB, content, kind string) data.Spec {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "data."+kind)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	return data.Spec{File: engine.DataFile{Path: name, Type: kind, SHA256: hex.EncodeToString(sum[:])}, Name: "training", ModelDir: demoDir(tb)}
}

func mustTokenize(tb testing.TB, s data.Spec, dir string) *data.Set {
	tb.Helper()
	set, err := data.Tokenize(tb.Context(), s, dir, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = set.Close() })
	return set
}

// lines makes conversations of different lengths.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"number %d"},{"role":"assistant","content":"%s"}]}`+"\n", i, strings.Repeat("word ", i*7%23))
	}
	return b.String()
}

func TestTokenize(t *testing.T) {
	t.Parallel()
	s := spec(t, lines(1000), "jsonl")
	dir := filepath.Join(t.TempDir(), "set")
	var seen []int64
	set, err := data.Tokenize(t.Context(), s, dir, func(done, total int64) { seen = append(seen, done, total) })
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if set.Len() != 1000 || set.Truncated() != 0 || set.Preference() || set.Format() != data.FormatConversation {
		t.Errorf("got %d sequences, %d truncated, format %s", set.Len(), set.Truncated(), set.Format())
	}
	info, _ := os.Stat(s.File.Path)
	if n := len(seen); n < 4 || seen[n-2] != info.Size() || seen[n-1] != info.Size() || !slices.IsSorted(seen[:n/2*2:n]) && seen[0] > seen[n-2] {
		t.Errorf("progress %v of %d bytes", seen, info.Size())
	}
	e, err := data.NewEncoder(os.DirFS(s.ModelDir), data.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens, trained := int64(0), int64(0)
	for i, line := range strings.Split(strings.TrimSpace(lines(1000)), "\n") {
		want, err := e.Line([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		got, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Tokens, want.Samples[0].Tokens) || !slices.Equal(got.Weights, want.Samples[0].Weights) {
			t.Fatalf("sequence %d: got %v, want %v", i, got, want.Samples[0])
		}
		tokens += int64(len(got.Tokens))
		for _, w := range got.Weights {
			if w > 0 {
				trained++
			}
		}
	}
	if set.Tokens() != tokens || set.Trained() != trained || set.WeightSum() != float64(trained) {
		t.Errorf("got %d tokens, %d trained, want %d, %d", set.Tokens(), set.Trained(), tokens, trained)
	}
	if _, err := set.Sample(1000); err == nil {
		t.Error("there is a sequence behind the last")
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "set")
	set := mustTokenize(t, spec(t, lines(120), "jsonl"), dir)
	raw, err := os.ReadFile(filepath.Join(dir, data.SnapshotFile))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(rows) != 100 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		var got struct {
			InputIDs      []int32 `json:"input_ids"`
			AttentionMask []int32 `json:"attention_mask"`
			Labels        []int32 `json:"labels"`
		}
		if err := json.Unmarshal([]byte(row), &got); err != nil {
			t.Fatal(err)
		}
		want, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.InputIDs, want.Tokens) || len(got.AttentionMask) != len(want.Tokens) || slices.Min(got.AttentionMask) != 1 {
			t.Fatalf("row %d: %s", i, row)
		}
		for j, l := range got.Labels {
			if want.Weights[j] == 0 && l != -100 || want.Weights[j] > 0 && l != want.Tokens[j] {
				t.Fatalf("row %d: label %d is %d", i, j, l)
			}
		}
	}
}

// TestReuse: a set is made again exactly when something that decides it differs.
func TestReuse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "set")
	s := spec(t, lines(5), "jsonl")
	made := func(s data.Spec) bool {
		t.Helper()
		mark := filepath.Join(dir, "mark")
		_, before := os.Stat(mark)
		mustTokenize(t, s, dir)
		_, after := os.Stat(mark)
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return before != nil || after != nil
	}
	if !made(s) || made(s) {
		t.Error("the same set is not reused")
	}
	s.TrainOnInputs = "auto"
	if made(s) {
		t.Error("auto is not the same as nothing")
	}
	s.TrainOnInputs = "true"
	if !made(s) {
		t.Error("another mask, and the set is reused")
	}
	s.MaxSeqLength = 20
	if !made(s) {
		t.Error("another length, and the set is reused")
	}
	if err := os.WriteFile(filepath.Join(s.ModelDir, "chat_template.jinja"), []byte("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !made(s) {
		t.Error("another template, and the set is reused")
	}
	for _, damage := range []func(name string) error{os.Remove, func(name string) error { return os.Truncate(name, 4) }} {
		if err := damage(filepath.Join(dir, "tokens.bin")); err != nil {
			t.Fatal(err)
		}
		if !made(s) {
			t.Error("a part of a set is reused")
		}
	}
	if made(s) {
		t.Error("the set that was mended is not reused")
	}
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	s := spec(t, lines(50), "jsonl")
	s.MaxSeqLength = 16
	set := mustTokenize(t, s, filepath.Join(t.TempDir(), "set"))
	full := mustTokenize(t, spec(t, lines(50), "jsonl"), filepath.Join(t.TempDir(), "set"))
	cut := int64(0)
	for i := range set.Len() {
		got, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		want, err := full.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Tokens) > 16 {
			cut++
		}
		if n := min(16, len(want.Tokens)); !slices.Equal(got.Tokens, want.Tokens[:n]) || !slices.Equal(got.Weights, want.Weights[:n]) {
			t.Fatalf("sequence %d: %v", i, got)
		}
	}
	if set.Truncated() != cut || cut == 0 || set.Longest() != 16 {
		t.Errorf("%d truncated, want %d; longest %d", set.Truncated(), cut, set.Longest())
	}
}

func TestBadSamples(t *testing.T) {
	t.Parallel()
	known := models(t)
	const good = `{"text":"a b c"}`
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("a ", 100) + `"},` + answer + `]}`
	tests := []struct {
		name, model, content string
		o                    data.EncodeOptions
		line                 int64
		want                 string
	}{
		{"empty", "none", "", data.EncodeOptions{}, 0, "the file holds no samples"},
		{"no JSON", "none", good + "\nx\n", data.EncodeOptions{}, 2, "Line 2: the line is not a valid sample"},
		{"no format", "none", `{"prompt":"a"}`, data.EncodeOptions{}, 1, "Line 1: the line has the fields of no format"},
		{"two formats", "none", good + "\n" + `{"prompt":"a","completion":"b"}`, data.EncodeOptions{}, 2, "Line 2: the line has the instruction format, the lines before have the general format"},
		{"no template", "none", chat(user, answer), data.EncodeOptions{}, 1, "Line 1: the model has no chat template"},
		{"the template refuses", "gemma", chat(`{"role":"system","content":"s"}`, user, answer), data.EncodeOptions{}, 1, "Line 1: the model's chat template fails on the first 3 messages: System role not supported"},
		{"nothing to learn", "chatml", chat(user, strings.Replace(answer, "}", `,"weight":0}`, 1)), data.EncodeOptions{}, 1, "Line 1: no token of this sample carries loss"},
		{"all prompt", "chatml", long, data.EncodeOptions{MaxSeqLength: 50}, 0, "nothing is left to train on: in all samples the first 50 tokens, which is max_seq_length, are prompt"},
		{"all weights 0", "none", `{"text":"a","weight":0}`, data.EncodeOptions{}, 0, "all samples have the weight 0"},
		{"negative weight", "none", `{"text":"a","weight":-1}`, data.EncodeOptions{}, 1, "Line 1: `weight` must be between"},
		{"unknown role", "chatml", chat(`{"role":"bot","content":"s"}`, answer), data.EncodeOptions{}, 1, "Line 1: `messages[0]`: the role \"bot\" is not known"},
		{"image", "chatml", chat(`{"role":"user","content":[{"type":"image_url"}]}`, answer), data.EncodeOptions{}, 1, "Line 1: `messages[0]`: `content` has a part of the type \"image_url\""},
		{"preference without its method", "chatml", preference("a", "b"), data.EncodeOptions{}, 1, "Line 1: the line has the preference format, which is only"},
		{"preference wanted", "chatml", chat(user, answer), data.EncodeOptions{Preference: true}, 1, "Line 1: preference optimisation needs the preference format"},
		{"a template that rewrites", "rewriting", chat(user, answer, again, last), data.EncodeOptions{}, 1, "Line 1: the model's chat template writes what is before `messages[1]` in another way"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := spec(t, tt.content, "jsonl")
			s.ModelDir = t.TempDir()
			if err := os.CopyFS(s.ModelDir, known[tt.model]); err != nil {
				t.Fatal(err)
			}
			s.MaxSeqLength, s.Preference = tt.o.MaxSeqLength, tt.o.Preference
			dir := filepath.Join(t.TempDir(), "set")
			_, err := data.Tokenize(t.Context(), s, dir, nil)
			var bad *engine.DataError
			if !errors.As(err, &bad) || bad.Line != tt.line || bad.File != "training" || !strings.HasPrefix(bad.Message, tt.want) {
				t.Errorf("got %#v, want line %d: %s", err, tt.line, tt.want)
			}
			for _, name := range []string{dir, dir + ".partial"} {
				if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left behind", name)
				}
			}
		})
	}
}

func preference(chosen, rejected string) string {
	return fmt.Sprintf(`{"input":{"messages":[%s]},"preferred_output":[{"role":"assistant","content":%q}],"non_preferred_output":[{"role":"assistant","content":%q}]}`, again, chosen, rejected)
}

func TestPreference(t *testing.T) {
	t.Parallel()
	s := spec(t, preference("yes", "no, not at all")+"\n"+preference("a", "b")+"\n", "jsonl")
	s.Preference = true
	set := mustTokenize(t, s, filepath.Join(t.TempDir(), "set"))
	if set.Len() != 4 || !set.Preference() {
		t.Fatalf("%d sequences", set.Len())
	}
	for i, want := range []string{
		"<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[yes<|im_end|>]\n",
		"<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[no, not at all<|im_end|>]\n",
	} {
		got, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if s := shown(t, os.DirFS(s.ModelDir), got); s != want {
			t.Errorf("got %q, want %q", s, want)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := spec(t, lines(100), "jsonl")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	cancel(stop)
	if _, err := data.Tokenize(ctx, s, filepath.Join(t.TempDir(), "set"), nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// TestLeftOut: a sample whose answer lies behind the cut is left out and counted.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("a ", 100) + `"},` + answer + `]}`
	s := spec(t, chat(again, answer)+"\n"+long+"\n"+chat(again, last), "jsonl")
	s.MaxSeqLength = 30
	set := mustTokenize(t, s, filepath.Join(t.TempDir(), "set"))
	if set.Len() != 2 || set.Truncated() != 1 || set.LeftOut() != 1 {
		t.Errorf("%d sequences, %d truncated, %d left out", set.Len(), set.Truncated(), set.LeftOut())
	}
	pair := spec(t, preference("a", "b")+"\n"+preference("a", strings.Repeat("b ", 100))+"\n"+strings.Replace(preference("a", "b"), "more", strings.Repeat("a ", 100), 1), "jsonl")
	pair.MaxSeqLength, pair.Preference = 30, true
	pairs := mustTokenize(t, pair, filepath.Join(t.TempDir(), "set"))
	if pairs.Len() != 4 || pairs.Truncated() != 2 || pairs.LeftOut() != 1 {
		t.Errorf("%d sequences, %d truncated, %d left out", pairs.Len(), pairs.Truncated(), pairs.LeftOut())
	}
}
