package enginetest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"athanor/engine"
)

// Answer is one Generate call put together from its events.
type Answer struct {
	Prompt *engine.PromptEvent
	Text   []string              // per choice
	Tokens [][]engine.Token      // per choice
	Finish []engine.FinishReason // per choice
	Usage  *engine.Usage
	Events int
}

// Collect runs req, checks the order of its events against the promise of
// engine.Generator and returns what was said. A broken promise fails t; the
// error is Generate's own.
func Collect(ctx context.Context, t testing.TB, gen engine.Generator, req *engine.GenerateRequest) (*Answer, error) {
	t.Helper()
	n := max(req.N, 1)
	a := &Answer{Text: make([]string, n), Tokens: make([][]engine.Token, n), Finish: make([]engine.FinishReason, n)}
	err := gen.Generate(ctx, req, func(e *engine.Event) error {
		t.Helper()
		a.add(t, e)
		return nil
	})
	if err != nil {
		return a, err
	}
	if a.Usage == nil {
		t.Errorf("the last event has no usage")
		return a, nil
	}
	total := 0
	for i, finish := range a.Finish {
		if finish == "" {
			t.Errorf("choice %d has no finish reason", i)
		}
		if finish == engine.FinishLength && req.MaxTokens > 0 && len(a.Tokens[i]) != req.MaxTokens && !req.TruncateToContext {
			t.Errorf("choice %d ended by length with %d tokens, want %d", i, len(a.Tokens[i]), req.MaxTokens)
		}
		if req.MaxTokens > 0 && len(a.Tokens[i]) > req.MaxTokens {
			t.Errorf("choice %d has %d tokens, more than max_tokens %d", i, len(a.Tokens[i]), req.MaxTokens)
		}
		total += len(a.Tokens[i])
	}
	if a.Usage.CompletionTokens != total {
		t.Errorf("usage has %d completion tokens, the events have %d", a.Usage.CompletionTokens, total)
	}
	if a.Usage.PromptTokens != a.Prompt.Tokens {
		t.Errorf("usage has %d prompt tokens, the prompt event has %d", a.Usage.PromptTokens, a.Prompt.Tokens)
	}
	return a, nil
}

func (a *Answer) add(t testing.TB, e *engine.Event) {
	t.Helper()
	a.Events++
	if first := a.Events == 1; first != (e.Prompt != nil) {
		t.Errorf("event %d: has a prompt: %v, want %v", a.Events, e.Prompt != nil, first)
	}
	if a.Usage != nil {
		t.Errorf("event %d comes after the usage", a.Events)
	}
	if e.Prompt != nil {
		a.Prompt = e.Prompt
	}
	if e.Usage != nil {
		a.Usage = e.Usage
	}
	if e.Choice < 0 || e.Choice >= len(a.Finish) {
		t.Errorf("event %d: choice %d of %d", a.Events, e.Choice, len(a.Finish))
		return
	}
	if a.Finish[e.Choice] != "" && (e.Text != "" || len(e.Tokens) > 0 || e.Finish != "") {
		t.Errorf("event %d: choice %d goes on after its finish", a.Events, e.Choice)
	}
	if !utf8.ValidString(e.Text) {
		t.Errorf("event %d: text %q is not whole UTF-8", a.Events, e.Text)
	}
	a.Text[e.Choice] += e.Text
	a.Tokens[e.Choice] = append(a.Tokens[e.Choice], e.Tokens...)
	if e.Finish != "" {
		a.Finish[e.Choice] = e.Finish
	}
}

// CheckGenerator runs gen against every promise of engine.Generator. It asks
// for short texts only; gen must have a context of at least 64 tokens.
func CheckGenerator(t *testing.T, gen engine.Generator) {
	t.Helper()
	c := contract{gen: gen}
	t.Run("model", c.model)
	t.Run("greedy", c.greedy)
	t.Run("choices", c.choices)
	t.Run("seed", c.seed)
	t.Run("stop", c.stop)
	t.Run("echo and logprobs", c.logprobs)
	t.Run("cancelled before", c.cancelledBefore)
	t.Run("cancelled in the middle", c.cancelled)
	t.Run("emit fails", c.emitFails)
	t.Run("context too long", c.tooLong)
	t.Run("slots are freed", c.slots)
}

type contract struct{ gen engine.Generator }

// prompt is a request every language model can serve.
func prompt(tokens int) *engine.GenerateRequest {
	zero := 0.0
	return &engine.GenerateRequest{Prompt: "Once upon a time", MaxTokens: tokens, Seed: 7, Sampling: engine.Sampling{Temperature: &zero}}
}

func (c contract) must(t *testing.T, req *engine.GenerateRequest) *Answer {
	t.Helper()
	a, err := Collect(t.Context(), t, c.gen, req)
	if err != nil {
		t.Fatalf("Generate: %v", err)
	}
	return a
}

func (c contract) model(t *testing.T) {
	m := c.gen.Model()
	if m.Architecture == "" || m.Quantization == "" || m.ContextLength < 64 || m.Vocabulary <= 0 || m.Slots <= 0 {
		t.Errorf("the description is incomplete: %+v", m)
	}
}

func (c contract) greedy(t *testing.T) {
	first, second := c.must(t, prompt(8)), c.must(t, prompt(8))
	if first.Text[0] == "" || first.Prompt.Tokens <= 0 {
		t.Errorf("text %q after a prompt of %d tokens", first.Text[0], first.Prompt.Tokens)
	}
	if first.Prompt.Text != "" {
		t.Errorf("the prompt %q is reported though echo is off", first.Prompt.Text)
	}
	if !reflect.DeepEqual(first.Text, second.Text) {
		t.Errorf("greedy twice: %q and %q", first.Text, second.Text)
	}
	for _, tok := range first.Tokens[0] {
		if tok.Logprob != nil || tok.Top != nil {
			t.Errorf("token %q has log-probabilities nobody asked for", tok.Text)
		}
	}
}

func (c contract) choices(t *testing.T) {
	req := prompt(6)
	req.N = 3
	a := c.must(t, req)
	for i, text := range a.Text {
		if text != a.Text[0] {
			t.Errorf("greedy choice %d is %q, choice 0 is %q", i, text, a.Text[0])
		}
	}
}

func (c contract) seed(t *testing.T) {
	one := 1.0
	req := prompt(12)
	req.Sampling.Temperature, req.N = &one, 2
	first, second := c.must(t, req), c.must(t, req)
	if !reflect.DeepEqual(first.Text, second.Text) {
		t.Errorf("seed %d twice: %q and %q", req.Seed, first.Text, second.Text)
	}
}

func (c contract) stop(t *testing.T) {
	whole := c.must(t, prompt(10)).Text[0]
	runes := []rune(whole)
	if len(runes) < 6 {
		t.Skipf("the model says only %q", whole)
	}
	stop := string(runes[len(runes)/2 : len(runes)/2+2])
	req := prompt(10)
	req.Stop = []string{"\x00never", stop}
	a := c.must(t, req)
	want, _, _ := strings.Cut(whole, stop)
	if a.Text[0] != want || a.Finish[0] != engine.FinishStop {
		t.Errorf("with stop %q: %q ended by %q, want %q ended by stop", stop, a.Text[0], a.Finish[0], want)
	}
}

func (c contract) logprobs(t *testing.T) {
	req, top := prompt(4), 2
	req.Echo, req.Logprobs = true, &top
	a := c.must(t, req)
	if !strings.Contains(a.Prompt.Text, req.Prompt) || len(a.Prompt.Echo) != a.Prompt.Tokens {
		t.Fatalf("echo %q with %d of %d tokens", a.Prompt.Text, len(a.Prompt.Echo), a.Prompt.Tokens)
	}
	if a.Prompt.Echo[0].Logprob != nil {
		t.Errorf("the first token of the prompt has a log-probability")
	}
	for _, tok := range append(a.Prompt.Echo[1:], a.Tokens[0]...) {
		if tok.Logprob == nil || *tok.Logprob > 0 || len(tok.Top) != top {
			t.Errorf("token %q: logprob %v and %d alternatives, want at most 0 and %d", tok.Text, tok.Logprob, len(tok.Top), top)
			continue
		}
		if tok.Top[0].Logprob < tok.Top[1].Logprob {
			t.Errorf("token %q: alternatives out of order", tok.Text)
		}
	}
}

func (c contract) cancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.gen.Generate(ctx, prompt(4), func(*engine.Event) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want context.Canceled", err)
	}
}

// promptly bounds how long a stopped request may take to return; one step of
// a slow model on a busy machine fits.
const promptly = 5 * time.Second

func (c contract) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at time.Time
	err := c.gen.Generate(ctx, prompt(c.long()), func(e *engine.Event) error {
		if len(e.Tokens) > 0 && at.IsZero() {
			at = time.Now()
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle: %v, want context.Canceled", err)
	}
	if took := time.Since(at); took > promptly {
		t.Errorf("it took %v to stop", took)
	}
}

func (c contract) emitFails(t *testing.T) {
	full, calls := errors.New("the reader is full"), 0
	err := c.gen.Generate(t.Context(), prompt(c.long()), func(e *engine.Event) error {
		if calls++; len(e.Tokens) > 0 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) {
		t.Errorf("emit failed, Generate returned %v", err)
	}
	after := calls
	c.must(t, prompt(2))
	if calls != after {
		t.Errorf("emit was called %d times after it failed", calls-after)
	}
}

// long is a number of tokens that takes a while but fits into the context.
func (c contract) long() int { return c.gen.Model().ContextLength / 2 }

func (c contract) tooLong(t *testing.T) {
	req := prompt(1)
	req.Prompt = strings.Repeat(" word", c.gen.Model().ContextLength+1)
	err := c.gen.Generate(t.Context(), req, func(*engine.Event) error { return nil })
	if bad := new(engine.RequestError); !errors.As(err, &bad) || bad.Code != engine.CodeContextLength || bad.Param == "" {
		t.Errorf("a prompt longer than the context: %v, want a RequestError with code %s", err, engine.CodeContextLength)
	}
}

func (c contract) slots(t *testing.T) {
	gone := errors.New("gone")
	for range min(c.gen.Model().Slots, 64) + 1 {
		if err := c.gen.Generate(t.Context(), prompt(c.long()), func(*engine.Event) error { return gone }); !errors.Is(err, gone) {
			t.Fatalf("Generate: %v, want %v", err, gone)
		}
	}
	c.must(t, prompt(2))
}
