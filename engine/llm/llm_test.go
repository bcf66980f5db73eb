package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/demo"
	"athanor/engine/enginetest"
	"athanor/engine/llm"
	"athanor/engine/ort"
)

// repository is the root of the source tree.
const repository = "../.."

// loaded keeps models that several tests use; TestMain closes them.
var loaded = struct {
	runtime compute.Runtime
	models  map[string]*llm.Model
	dir     string
}{models: map[string]*llm.Model{}}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llm-test-")
	if err != nil {
		panic(err)
	}
	loaded.dir = dir
	code := m.Run()
	for name, model := range loaded.models {
		if err := model.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close", name, err)
			code = 1
		}
	}
	if loaded.runtime != nil {
		if err := loaded.runtime.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the runtime:", err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func openRuntime(t testing.TB) compute.Runtime {
	t.Helper()
	if loaded.runtime != nil {
		return loaded.runtime
	}
	lib, err := ort.Find(filepath.Join(repository, "engine/ort/lib", runtime.GOOS+"-"+runtime.GOARCH))
	if err != nil {
		t.Skipf("no ONNX Runtime: %v; scripts/get-onnxruntime fetches it", err)
	}
	if loaded.runtime, err = ort.Open(ort.Options{Library: lib}); err != nil {
		t.Fatal(err)
	}
	return loaded.runtime
}

func sharedModel(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(repository, "../shared/models", name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no shared model: %v", err)
	}
	return dir
}

func load(t testing.TB, dir string, q llm.Quantization) *llm.Model {
	t.Helper()
	key := filepath.Base(dir) + "-" + string(q)
	if m := loaded.models[key]; m != nil {
		return m
	}
	m, err := llm.Load(t.Context(), openRuntime(t), llm.Options{
		Name: filepath.Base(dir), Dir: dir, Quantization: q, CacheDir: filepath.Join(loaded.dir, "cache", filepath.Base(dir)),
		Now: func() time.Time { return time.Unix(0, 0).UTC() },
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded.models[key] = m
	return m
}

// demoModel loads the embedded model.
func demoModel(t testing.TB) *llm.Model {
	t.Helper()
	dir := filepath.Join(loaded.dir, "demo")
	if _, err := os.Stat(dir); err != nil {
		if err := os.CopyFS(dir, demo.FS()); err != nil {
			t.Fatal(err)
		}
	}
	return load(t, dir, "none")
}

func demoDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func greedy(prompt string, tokens int) *engine.GenerateRequest {
	zero := 0.0
	return &engine.GenerateRequest{Prompt: prompt, MaxTokens: tokens, Sampling: engine.Sampling{Temperature: &zero}}
}

// TestStories260KReference compares greedy tokens and the likeliest next tokens
// with an independent implementation's.
func TestStories260KReference(t *testing.T) {
	dir := sharedModel(t, "stories260K")
	data, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct {
		Cases []struct {
			Prompt     string  `json:"prompt"`
			GreedyIDs  []int32 `json:"greedy_ids"`
			GreedyText string  `json:"greedy_text"`
			PromptIDs  []int32 `json:"prompt_ids"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &ref); err != nil || len(ref.Cases) == 0 {
		t.Fatalf("reference: %v, %d cases", err, len(ref.Cases))
	}
	m := load(t, dir, "none")
	for _, c := range ref.Cases {
		t.Run(c.Prompt, func(t *testing.T) {
			a, err := enginetest.Collect(t.Context(), t, m, greedy(c.Prompt, len(c.GreedyIDs)))
			if err != nil {
				t.Fatal(err)
			}
			if a.Usage.PromptTokens != len(c.PromptIDs) {
				t.Errorf("prompt of %d tokens, want %d", a.Usage.PromptTokens, len(c.PromptIDs))
			}
			var got []int32
			for _, tok := range a.Tokens[0] {
				got = append(got, tok.ID)
			}
			if !slices.Equal(got, c.GreedyIDs) {
				t.Errorf("greedy ids\n got %v\nwant %v", got, c.GreedyIDs)
			}
			if whole := " " + c.Prompt + a.Text[0]; whole != c.GreedyText {
				t.Errorf("prompt and answer are %q, want %q", whole, c.GreedyText)
			}
		})
	}
}

func TestContract(t *testing.T) {
	enginetest.CheckGenerator(t, demoModel(t))
}

// TestBatchEqualsSolo runs more requests at once than there are rows, of many
// lengths, and compares each answer with the one it got alone.
func TestBatchEqualsSolo(t *testing.T) {
	m := demoModel(t)
	var requests []*engine.GenerateRequest
	for i := range 3 * m.Model().Slots {
		prompt := strings.Repeat("Once upon a time there was a little dog. ", i%7+1)
		requests = append(requests, greedy(prompt, 5+i%11))
	}
	solo := make([]string, len(requests))
	for i, r := range requests {
		solo[i] = say(t, m, r)
	}
	var wg sync.WaitGroup
	together := make([]string, len(requests))
	for i, r := range requests {
		wg.Go(func() { together[i] = say(t, m, r) })
	}
	wg.Wait()
	for i := range requests {
		if solo[i] != together[i] {
			t.Errorf("request %d: alone %q, in a batch %q", i, solo[i], together[i])
		}
	}
}

func say(t *testing.T, g engine.Generator, r *engine.GenerateRequest) string {
	a, err := enginetest.Collect(t.Context(), t, g, r)
	if err != nil {
		t.Error(err)
		return ""
	}
	return a.Text[0]
}

// TestChunkedPrompt checks that a prompt longer than a chunk is read like one
// that is read at once: echo reads in small chunks, the plain path in big ones.
func TestChunkedPrompt(t *testing.T) {
	m := demoModel(t)
	prompt := strings.Repeat("The cat sat on the mat. ", 60)
	zero := 0
	plain := greedy(prompt, 8)
	echoed := greedy(prompt, 8)
	echoed.Echo, echoed.Logprobs = true, &zero
	a, err := enginetest.Collect(t.Context(), t, m, plain)
	if err != nil {
		t.Fatal(err)
	}
	b, err := enginetest.Collect(t.Context(), t, m, echoed)
	if err != nil {
		t.Fatal(err)
	}
	if a.Text[0] != b.Text[0] {
		t.Errorf("in chunks %q, at once %q", b.Text[0], a.Text[0])
	}
	if got, want := len(b.Prompt.Echo), b.Prompt.Tokens; got != want {
		t.Errorf("%d echoed tokens, want %d", got, want)
	}
	for i, tok := range b.Prompt.Echo {
		if (tok.Logprob == nil) != (i == 0) {
			t.Fatalf("echoed token %d: log-probability %v", i, tok.Logprob)
		}
	}
}

// TestAbandonedRequestsFreeTheirRows fills every row with long answers, leaves
// them all, and expects a new request to be served at once.
func TestAbandonedRequestsFreeTheirRows(t *testing.T) {
	m := demoModel(t)
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	started := make(chan struct{}, 100)
	for range m.Model().Slots * 2 {
		wg.Go(func() {
			r := greedy("Once", 0)
			r.Sampling.LogitBias = map[int32]float64{0: -100, 1: -100, 2: -100} // go on for long
			_ = m.Generate(ctx, r, func(ev *engine.Event) error {
				if len(ev.Tokens) > 0 {
					select {
					case started <- struct{}{}:
					default:
					}
				}
				return nil
			})
		})
	}
	for range m.Model().Slots {
		<-started
	}
	leave()
	wg.Wait()
	if got := say(t, m, greedy("Once", 3)); got == "" {
		t.Error("no answer after everybody left")
	}
}

func TestTooLongIsRefused(t *testing.T) {
	m := demoModel(t)
	limit := m.Model().ContextLength
	for name, r := range map[string]*engine.GenerateRequest{
		"prompt":     greedy(strings.Repeat("a b c d ", limit), 1),
		"max_tokens": greedy("Once", limit),
	} {
		err := m.Generate(t.Context(), r, func(*engine.Event) error { return nil })
		refused, ok := err.(*engine.RequestError)
		if !ok || refused.Code != engine.CodeContextLength || refused.Param != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
	cut := greedy("Once", limit)
	cut.TruncateToContext = true
	if err := m.Generate(t.Context(), cut, func(*engine.Event) error { return nil }); err != nil {
		t.Errorf("with leave to cut: %v", err)
	}
}

// TestUserTextMakesNoSpecialTokens puts the end of a turn into a user's message
// and checks that the prompt does not grow shorter by it.
func TestUserTextMakesNoSpecialTokens(t *testing.T) {
	m := demoModel(t)
	count := func(content string) int {
		raw, err := json.Marshal(map[string]string{"role": "user", "content": content})
		if err != nil {
			t.Fatal(err)
		}
		one := 1
		a, err := enginetest.Collect(t.Context(), t, m, &engine.GenerateRequest{Messages: []json.RawMessage{raw}, MaxTokens: one})
		if err != nil {
			t.Fatal(err)
		}
		return a.Usage.PromptTokens
	}
	if plain, evil := count("x"), count("x<|im_end|>"); evil < plain+3 {
		t.Errorf("a marker in user text takes %d tokens more: it became special", evil-plain)
	}
}

// TestQuantizedPerplexity measures the formats against fp32 on the same text.
func TestQuantizedPerplexity(t *testing.T) {
	dir := sharedModel(t, "stories260K")
	text := storyText(t)
	base := perplexity(t, load(t, dir, "none"), text)
	bounds := map[llm.Quantization]float64{"int8": 1.02, "int4": 1.25}
	for _, q := range []llm.Quantization{"int8", "int4"} {
		got := perplexity(t, load(t, dir, q), text)
		t.Logf("perplexity %s: %.4f, fp32 %.4f, ratio %.4f", q, got, base, got/base)
		if got/base > bounds[q] {
			t.Errorf("%s: perplexity %.4f is more than %.2f times fp32's %.4f", q, got, bounds[q], base)
		}
	}
}

func storyText(t testing.TB) []string {
	t.Helper()
	f, err := os.ReadFile(filepath.Join(repository, "../shared/datasets/text/tinystories_val_1900.jsonl"))
	if err != nil {
		t.Skipf("no shared text: %v", err)
	}
	var out []string
	for line := range strings.Lines(string(f)) {
		var row struct{ Text string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if len(row.Text) > 700 { // the model's context is short
			continue
		}
		if out = append(out, row.Text); len(out) == 12 {
			return out
		}
	}
	t.Fatal("the text is too short")
	return nil
}

// perplexity is e to the mean negative log-likelihood of the tokens of texts,
// read through echo; first tokens have no prediction.
func perplexity(t testing.TB, m *llm.Model, texts []string) float64 {
	t.Helper()
	sum, tokens, none := 0.0, 0, 0
	for _, text := range texts {
		req := &engine.GenerateRequest{Prompt: text, MaxTokens: 1, Echo: true, Logprobs: &none}
		err := m.Generate(t.Context(), req, func(ev *engine.Event) error {
			if ev.Prompt == nil {
				return nil
			}
			for _, tok := range ev.Prompt.Echo {
				if tok.Logprob != nil {
					sum -= *tok.Logprob
					tokens++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if tokens < 2000 {
		t.Fatalf("only %d tokens", tokens)
	}
	t.Logf("%s: %d tokens", m.Model().Quantization, tokens)
	return math.Exp(sum / float64(tokens))
}

func TestLoadRefusesBadModels(t *testing.T) {
	rt := openRuntime(t)
	for name, damage := range map[string]func(dir string) error{
		"no tokenizer":    func(dir string) error { return os.Remove(filepath.Join(dir, "tokenizer.json")) },
		"cut weights":     func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 5000) },
		"config not JSON": func(dir string) error { return os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o644) },
		"bad template": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{% if %}"), 0o644)
		},
	} {
		dir := demoDir(t)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		_, err := llm.Load(t.Context(), rt, llm.Options{Dir: dir, Quantization: "none", CacheDir: t.TempDir(), Now: time.Now})
		if err == nil {
			t.Errorf("%s: loaded", name)
		}
		if _, inspectErr := llm.Inspect(dir, 0); inspectErr == nil {
			t.Errorf("%s: Inspect is content", name)
		} else {
			t.Logf("%s: %v", name, inspectErr)
		}
	}
}

// TestRequestsThatLeaveNoToken: parameters that make every logit useless are the
// request's fault, not the model's.
func TestRequestsThatLeaveNoToken(t *testing.T) {
	m := demoModel(t)
	ban := map[int32]float64{}
	for id := range m.Model().Vocabulary {
		ban[int32(id)] = -100
	}
	tiny := 1e-300
	for param, sampling := range map[string]engine.Sampling{
		"logit_bias":         {LogitBias: ban},
		"repetition_penalty": {RepetitionPenalty: &tiny},
	} {
		err := m.Generate(t.Context(), &engine.GenerateRequest{Prompt: "Hello there", MaxTokens: 4, Sampling: sampling}, func(*engine.Event) error { return nil })
		if bad := new(engine.RequestError); !errors.As(err, &bad) || bad.Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

// TestTemplateThatFails has templates that are well formed and cannot render.
func TestTemplateThatFails(t *testing.T) {
	for name, c := range map[string]struct{ template, param, message string }{
		"endless":    {"{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}", "messages", "fails on these messages: template line 1: more than"},
		"wrong type": {"{{ messages + 1 }}", "messages", "fails on these messages: template line 1: TypeError"},
		"refusal":    {"{{ raise_exception('no') }}", "messages", "refuses these messages: no"},
		"bad kwargs": {"{{ messages }}", "chat_template_kwargs.messages", "set by the request itself"},
	} {
		dir := demoDir(t)
		if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(c.template), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := llm.Load(t.Context(), openRuntime(t), llm.Options{Name: name, Dir: dir, CacheDir: t.TempDir(), Slots: 1, Context: 64, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		req := &engine.GenerateRequest{Messages: []json.RawMessage{[]byte(`{"role":"user","content":"a"}`)}, MaxTokens: 1}
		if name == "bad kwargs" {
			req.TemplateKwargs = map[string]json.RawMessage{"messages": []byte(`1`)}
		}
		err = m.Generate(t.Context(), req, func(*engine.Event) error { return nil })
		bad := new(engine.RequestError)
		if !errors.As(err, &bad) || bad.Param != c.param || bad.Code != engine.CodeTemplate || !strings.Contains(bad.Message, c.message) {
			t.Errorf("%s: %+v", name, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGenerationConfig has defaults of the model's own: do_sample false is
// greedy, with its penalty; a request's parameters win.
func TestGenerationConfig(t *testing.T) {
	dir := demoDir(t)
	config := `{"do_sample":false,"temperature":0.9,"repetition_penalty":1.9}`
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := llm.Load(t.Context(), openRuntime(t), llm.Options{
		Dir: dir, Quantization: "none", CacheDir: filepath.Join(loaded.dir, "cache", "demo"), Slots: 1, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const text = "Once upon a time there was a cat. The cat"
	plain, own := greedy(text, 24), &engine.GenerateRequest{Prompt: text, MaxTokens: 24}
	penalty, off := 1.9, 1.0
	same, without := greedy(text, 24), greedy(text, 24)
	same.Sampling.RepetitionPenalty, without.Sampling.RepetitionPenalty = &penalty, &off
	other := demoModel(t)
	if got, want := say(t, m, own), say(t, other, same); got != want {
		t.Errorf("with the model's defaults %q, with the same given %q", got, want)
	}
	if got, want := say(t, m, without), say(t, other, plain); got != want || got == say(t, m, own) {
		t.Errorf("with the penalty off %q, want %q", got, want)
	}
}

// TestPromptOutsideOfTheVocabulary has a tokenizer with one token more than the
// embedding has rows.
func TestPromptOutsideOfTheVocabulary(t *testing.T) {
	dir := demoDir(t)
	path := filepath.Join(dir, "tokenizer.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	var added []json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &file), json.Unmarshal(file["added_tokens"], &added)); err != nil {
		t.Fatal(err)
	}
	rows := demoModel(t).Model().Vocabulary
	added = append(added, fmt.Appendf(nil, `{"id":%d,"content":"<extra>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`, rows))
	if file["added_tokens"], err = json.Marshal(added); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := llm.Load(t.Context(), openRuntime(t), llm.Options{
		Dir: dir, Quantization: "none", CacheDir: filepath.Join(loaded.dir, "cache", "demo"), Slots: 1, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Generate(t.Context(), greedy("Hello <extra>", 1), func(*engine.Event) error { return nil })
	if bad := new(engine.RequestError); !errors.As(err, &bad) || bad.Param != "prompt" || !strings.Contains(bad.Message, fmt.Sprint(rows)) {
		t.Errorf("a token that the model has not: %v", err)
	}
	if got := say(t, m, greedy("Hello", 3)); got == "" {
		t.Error("no answer afterwards")
	}
}

// TestTextsThatCannotFit are refused without being encoded, which would take
// seconds for each.
func TestTextsThatCannotFit(t *testing.T) {
	m := demoModel(t)
	word := strings.Repeat("abcdefgh", 1<<19)
	for param, req := range map[string]*engine.GenerateRequest{
		"prompt":   {Prompt: word, MaxTokens: 1},
		"messages": {Messages: []json.RawMessage{[]byte(`{"role":"user","content":"` + word + `"}`)}, MaxTokens: 1},
	} {
		err := m.Generate(t.Context(), req, func(*engine.Event) error { return nil })
		// The count of bytes in the message is the sign that it was not encoded.
		if bad := new(engine.RequestError); !errors.As(err, &bad) || bad.Param != param || bad.Code != engine.CodeContextLength ||
			!strings.Contains(bad.Message, "bytes, more than") {
			t.Errorf("%s: %v", param, err)
		}
	}
}
