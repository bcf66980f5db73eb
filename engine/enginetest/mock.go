package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"athanor/engine"
)

// Mock is an engine.Generator that says prescribed or seeded words at a
// prescribed pace and fails on command. The same request always gets the same
// answer. The zero value is ready; set the fields before the first call.
type Mock struct {
	Info engine.ModelInfo // zero fields get plain defaults

	LoadDelay time.Duration // Load takes this long
	LoadErr   error         // and then ends with this
	StepDelay time.Duration // before each step; one step gives every choice a token

	// Tokens is what each choice says before it stops. Nil means words drawn
	// from the seed, as many as MaxTokens allows (16 when it is 0).
	Tokens []string
	// FailAfter makes a request end with FailErr after this many tokens over
	// all choices; 0 is off.
	FailAfter int
	FailErr   error
	// Crash ends the whole process with exit status 3 after this many tokens
	// of one request; 0 is off.
	Crash int

	Slots int // requests served at the same time, 0 means no limit
	Queue int // requests that may wait for a slot; more get engine.ErrOverloaded

	once  sync.Once
	slots chan struct{} // holds one value per request being served
	line  chan struct{} // holds one value per request being served or waiting
}

var _ engine.Generator = (*Mock)(nil)

const (
	mockContext = 4096
	mockTokens  = 16 // tokens without a limit and without a script
)

// mockWords are what a Mock without a script says.
var mockWords = strings.Fields(`amber brook cedar dawn ember fern grove harbor iris juniper
	kelp lantern meadow nectar orchard pebble quartz river saffron thistle umber violet willow yarrow`)

// Load waits LoadDelay and returns LoadErr, or the error of ctx.
func (m *Mock) Load(ctx context.Context) error {
	if err := pause(ctx, m.LoadDelay); err != nil {
		return err
	}
	return m.LoadErr
}

// Model describes the mock.
func (m *Mock) Model() engine.ModelInfo {
	info := m.Info
	if info.Name == "" {
		info.Name = "mock"
	}
	if info.Architecture == "" {
		info.Architecture = "MockForCausalLM"
	}
	if info.Quantization == "" {
		info.Quantization = "none"
	}
	if info.ContextLength == 0 {
		info.ContextLength = mockContext
	}
	if info.Vocabulary == 0 {
		info.Vocabulary = 1000
	}
	if info.Parameters == 0 {
		info.Parameters = 1
	}
	if info.Slots == 0 {
		info.Slots = max(m.Slots, 1)
	}
	info.Chat = true
	return info
}

// Generate implements engine.Generator.
func (m *Mock) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	run, err := m.plan(req)
	if err != nil {
		return err
	}
	leave, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return run.play(ctx, emit)
}

// enter takes a slot, waiting in line when all are taken.
func (m *Mock) enter(ctx context.Context) (leave func(), err error) {
	if m.Slots <= 0 {
		return func() {}, nil
	}
	m.once.Do(func() {
		m.slots = make(chan struct{}, m.Slots)
		m.line = make(chan struct{}, m.Slots+m.Queue)
	})
	select {
	case m.line <- struct{}{}:
	default:
		return nil, engine.ErrOverloaded
	}
	select {
	case m.slots <- struct{}{}:
		return func() { <-m.slots; <-m.line }, nil
	case <-ctx.Done():
		<-m.line
		return nil, ctx.Err()
	}
}

// mockRun is one request worked out in advance: what each choice will say.
type mockRun struct {
	mock     *Mock
	prompt   *engine.PromptEvent
	choices  []mockChoice
	logprobs int // alternatives per token, -1 for no log-probabilities
}

type mockChoice struct {
	tokens []string // as sampled
	text   []string // what is left of each after stop strings
	finish engine.FinishReason
}

func (m *Mock) plan(req *engine.GenerateRequest) (*mockRun, error) {
	param, prompt := "prompt", req.Prompt
	if req.Messages != nil {
		param, prompt = "messages", flatten(req.Messages)
	}
	pieces := pieces(prompt)
	limit, err := m.limit(param, len(pieces), req)
	if err != nil {
		return nil, err
	}
	run := &mockRun{mock: m, prompt: &engine.PromptEvent{Tokens: len(pieces)}, logprobs: -1}
	if req.Logprobs != nil {
		run.logprobs = *req.Logprobs
	}
	if req.Echo {
		run.prompt.Text = prompt
		for i, p := range pieces {
			if run.logprobs >= 0 {
				tok := mockToken(p, run.logprobs)
				if i == 0 {
					tok.Logprob, tok.Top = nil, nil
				}
				run.prompt.Echo = append(run.prompt.Echo, tok)
			}
		}
	}
	for i := range max(req.N, 1) {
		run.choices = append(run.choices, m.choice(req, uint64(i), limit))
	}
	return run, nil
}

// limit is how many tokens a choice may have, 0 for no limit of the request's.
func (m *Mock) limit(param string, prompt int, req *engine.GenerateRequest) (int, error) {
	window := m.Model().ContextLength
	room, limit := window-prompt, req.MaxTokens
	if room >= max(limit, 1) {
		return limit, nil
	}
	if room >= 1 && req.TruncateToContext {
		return room, nil
	}
	if room >= 1 {
		param = "max_tokens"
	}
	return 0, &engine.RequestError{
		Param:   param,
		Code:    engine.CodeContextLength,
		Message: fmt.Sprintf("the prompt has %d tokens and max_tokens is %d, but the context has %d", prompt, limit, window),
	}
}

func (m *Mock) choice(req *engine.GenerateRequest, index uint64, limit int) mockChoice {
	said := m.Tokens
	if said == nil {
		said = seededWords(seedOf(req, index), max(limit, 0))
	}
	c := mockChoice{finish: engine.FinishStop}
	if limit > 0 && (len(said) > limit || m.Tokens == nil) {
		said, c.finish = said[:limit], engine.FinishLength
	}
	whole := strings.Join(said, "")
	cut, sampled := len(whole), len(whole) // bytes shown, bytes sampled
	for _, stop := range req.Stop {
		if at := strings.Index(whole, stop); stop != "" && at >= 0 && at < cut {
			cut, sampled, c.finish = at, at+len(stop), engine.FinishStop
		}
	}
	for at, i := 0, 0; i < len(said) && at < sampled; i++ {
		c.tokens = append(c.tokens, said[i])
		c.text = append(c.text, said[i][:max(0, min(len(said[i]), cut-at))])
		at += len(said[i])
	}
	return c
}

// seedOf is the same for all choices of a greedy request.
func seedOf(req *engine.GenerateRequest, index uint64) uint64 {
	if t := req.Sampling.Temperature; t != nil && *t == 0 {
		return 0
	}
	return req.Seed + index
}

func seededWords(seed uint64, n int) []string {
	if n == 0 {
		n = mockTokens
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	words := make([]string, n)
	for i := range words {
		words[i] = " " + mockWords[rng.IntN(len(mockWords))]
	}
	return words
}

func (r *mockRun) play(ctx context.Context, emit func(*engine.Event) error) error {
	if err := emit(&engine.Event{Prompt: r.prompt}); err != nil {
		return err
	}
	total, open := 0, len(r.choices)
	for step := 0; open > 0; step++ {
		if err := pause(ctx, r.mock.StepDelay); err != nil {
			return err
		}
		for i := range r.choices {
			if step >= max(len(r.choices[i].tokens), 1) {
				continue
			}
			e := r.event(i, step)
			if err := emit(e); err != nil {
				return err
			}
			if e.Finish != "" {
				open--
			}
			total += len(e.Tokens)
			if err := r.mock.trouble(total); err != nil {
				return err
			}
		}
	}
	return emit(&engine.Event{Usage: &engine.Usage{PromptTokens: r.prompt.Tokens, CompletionTokens: total}})
}

// event is what choice i says at a step; a choice without tokens only finishes.
func (r *mockRun) event(i, step int) *engine.Event {
	c := &r.choices[i]
	e := &engine.Event{Choice: i}
	if step < len(c.tokens) {
		e.Text = c.text[step]
		e.Tokens = []engine.Token{mockToken(c.tokens[step], r.logprobs)}
	}
	if step+1 >= len(c.tokens) {
		e.Finish = c.finish
	}
	return e
}

// trouble ends the request or the process when a knob says so.
func (m *Mock) trouble(tokens int) error {
	if m.Crash > 0 && tokens >= m.Crash {
		os.Exit(3)
	}
	if m.FailAfter > 0 && tokens >= m.FailAfter {
		if m.FailErr != nil {
			return m.FailErr
		}
		return fmt.Errorf("mock: failed after %d tokens", tokens)
	}
	return nil
}

// mockToken gives text an id and, when alternatives >= 0, log-probabilities.
func mockToken(text string, alternatives int) engine.Token {
	id := int32(0)
	for _, b := range []byte(text) {
		id = (id*31 + int32(b)) % 997
	}
	tok := engine.Token{ID: id, Text: strings.ToValidUTF8(text, string(utf8.RuneError))}
	if alternatives < 0 {
		return tok
	}
	lp := -0.125 * float64(1+id%4)
	tok.Bytes, tok.Logprob = []byte(text), &lp
	for i := range alternatives {
		alt := engine.TopLogprob{ID: id, Text: tok.Text, Bytes: tok.Bytes, Logprob: lp}
		if i > 0 {
			alt.ID, alt.Text = int32(1000+i), mockWords[i%len(mockWords)]
			alt.Bytes, alt.Logprob = []byte(alt.Text), lp-float64(i)
		}
		tok.Top = append(tok.Top, alt)
	}
	return tok
}

// pieces cuts text before each space, so that the pieces join to the text.
func pieces(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexByte(text[1:], ' ') + 1
		if n == 0 {
			n = len(text)
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

func flatten(messages []json.RawMessage) string {
	var b strings.Builder
	for _, m := range messages {
		b.Write(m)
		b.WriteByte('\n')
	}
	return b.String()
}

// pause waits d or until ctx ends, and reports the end of ctx either way.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
