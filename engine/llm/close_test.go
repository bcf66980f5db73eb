package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/demo"
	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/llm"
	"athanor/engine/onnx"
)

// gatedRuntime is a runtime whose steps a test can stop and fail.
type gatedRuntime struct {
	compute.Runtime
	step func(ctx context.Context, rows, positions int) error // before each run, with its B and S
}

func (g *gatedRuntime) Compile(m *onnx.Model, opt compute.Options) (compute.Program, error) {
	p, err := g.Runtime.Compile(m, opt)
	return &gatedProgram{p, g}, err
}

type gatedProgram struct {
	compute.Program
	g *gatedRuntime
}

func (p *gatedProgram) Run(ctx context.Context, in, out []compute.Buffer) error {
	if p.g.step != nil {
		if err := p.g.step(ctx, in[0].Shape()[0], in[0].Shape()[1]); err != nil {
			return err
		}
	}
	return p.Program.Run(ctx, in, out)
}

// loadGated loads the embedded model with few rows on a gated runtime.
func loadGated(t *testing.T, slots int, step func(ctx context.Context, rows, positions int) error) *llm.Model {
	t.Helper()
	rt := &gatedRuntime{Runtime: openRuntime(t)}
	m, err := llm.Load(t.Context(), rt, llm.Options{
		Name: "gated", Dir: demoDir(t), Quantization: "none", CacheDir: filepath.Join(loaded.dir, "cache", "demo"), Slots: slots, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	rt.step = step
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// endless is a request that goes on to the end of the context.
func endless(t *testing.T) *engine.GenerateRequest {
	r := greedy("Once upon a time", 0) // more than one token: a step of one is decoding
	r.Sampling.LogitBias = noEnd(t)
	return r
}

// noEnd is a logit_bias under which the embedded model never ends a text.
func noEnd(t *testing.T) map[int32]float64 {
	t.Helper()
	fam, err := family.Open(demo.FS())
	if err != nil {
		t.Fatal(err)
	}
	ban := map[int32]float64{}
	for _, id := range fam.Decoder().EOS {
		ban[id] = -100
	}
	if len(ban) == 0 {
		t.Fatal("the embedded model has no end")
	}
	return ban
}

// TestCloseWhileBusy closes a model with one request in a step, one that
// decodes and one that waits: each ends with ErrUnavailable, as do later ones.
func TestCloseWhileBusy(t *testing.T) {
	var steps atomic.Int32
	inStep := make(chan struct{})
	m := loadGated(t, 1, func(ctx context.Context, _, _ int) error {
		if steps.Add(1) == 3 {
			close(inStep)
		}
		if steps.Load() >= 3 {
			<-ctx.Done() // only closing ends this step
			return ctx.Err()
		}
		return nil
	})
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- m.Generate(t.Context(), endless(t), func(*engine.Event) error { return nil }) }()
	}
	<-inStep
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, context.Canceled) {
			t.Errorf("a request at the close: %v, want ErrUnavailable", err)
		}
	}
	if err := m.Generate(t.Context(), endless(t), func(*engine.Event) error { return nil }); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("a request after the close: %v, want ErrUnavailable", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
}

// TestFailedStepEndsOnlyItsRequests fails one prompt and then one decode step:
// who was in it gets the error, and the next request is served.
func TestFailedStepEndsOnlyItsRequests(t *testing.T) {
	boom := errors.New("boom")
	var failPrompt, failDecode atomic.Bool
	m := loadGated(t, 2, func(_ context.Context, _, positions int) error {
		if positions > 1 && failPrompt.Swap(false) || positions == 1 && failDecode.Swap(false) {
			return boom
		}
		return nil
	})
	want := say(t, m, greedy("Once upon a time", 6))
	failPrompt.Store(true)
	if err := m.Generate(t.Context(), greedy("Once upon a time", 6), func(*engine.Event) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("a failed prompt: %v", err)
	}
	failDecode.Store(true)
	two := greedy("Once upon a time", 6)
	two.N = 2 // both choices are in the step, or the second still waits
	if err := m.Generate(t.Context(), two, func(*engine.Event) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("a failed decode step: %v", err)
	}
	if got := say(t, m, greedy("Once upon a time", 6)); got != want {
		t.Errorf("after failures %q, before %q", got, want)
	}
}

// TestChoicesShareTheirPrompt counts what is read of a prompt with several
// choices: while one of them holds a row, the prompt is read once. Each choice
// is what a request of its own with its seed gets.
func TestChoicesShareTheirPrompt(t *testing.T) {
	var read atomic.Int32
	m := loadGated(t, 3, func(_ context.Context, _, positions int) error {
		if positions > 1 {
			read.Add(int32(positions))
		}
		return nil
	})
	warm := 1.0
	req := func(n int, seed uint64) *engine.GenerateRequest {
		return &engine.GenerateRequest{
			Prompt: strings.Repeat("Once upon a time there was a cat. ", 5), MaxTokens: 30, N: n, Seed: seed,
			Sampling: engine.Sampling{Temperature: &warm, LogitBias: noEnd(t)},
		}
	}
	a, err := enginetest.Collect(t.Context(), t, m, req(3, 7))
	if err != nil {
		t.Fatal(err)
	}
	if int(read.Load()) != a.Prompt.Tokens {
		t.Errorf("%d positions were read for a prompt of %d tokens", read.Load(), a.Prompt.Tokens)
	}
	for i, text := range a.Text {
		if want := say(t, m, req(1, 7+uint64(i))); text != want {
			t.Errorf("choice %d is %q, alone it is %q", i, text, want)
		}
	}
	if a.Text[0] == a.Text[1] || a.Text[1] == a.Text[2] {
		t.Errorf("choices do not differ: %q", a.Text)
	}
	// More choices than rows: the last ones may have to read again.
	if a, err = enginetest.Collect(t.Context(), t, m, req(8, 7)); err != nil {
		t.Fatal(err)
	}
	if want := say(t, m, req(1, 14)); a.Text[7] != want {
		t.Errorf("choice 7 is %q, alone it is %q", a.Text[7], want)
	}
}

// TestCancelWhileReading leaves a long prompt in the middle, beside an answer
// that must not notice.
func TestCancelWhileReading(t *testing.T) {
	long := strings.Repeat("The cat sat on the mat. ", 60)
	var leave atomic.Pointer[func()]
	m := loadGated(t, 2, func(_ context.Context, _, positions int) error {
		if f := leave.Load(); f != nil && positions > 100 {
			(*f)()
		}
		return nil
	})
	want := say(t, m, greedy("Once upon a time", 40))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	f := func() { cancel(); <-left } // the step ends after the request
	leave.Store(&f)
	started, wait := neighbour(t, m, want)
	<-started
	err := m.Generate(ctx, greedy(long, 0), func(*engine.Event) error { return nil })
	leave.Store(nil)
	close(left)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	wait()
	if got := say(t, m, greedy("Once upon a time", 40)); got != want {
		t.Errorf("afterwards %q, before %q", got, want)
	}
}

// TestCancelWhileDecoding frees the first row in the middle of an answer, so
// that its neighbour's has to move.
func TestCancelWhileDecoding(t *testing.T) {
	var armed atomic.Bool
	var leave atomic.Pointer[func()]
	arrived := make(chan struct{})
	m := loadGated(t, 2, func(_ context.Context, rows, positions int) error {
		switch f := leave.Load(); {
		case f == nil || positions > 1:
		case rows == 2 && armed.Swap(false):
			(*f)()
		case rows == 1 && armed.Load():
			<-arrived // not further before the neighbour comes
		}
		return nil
	})
	want := say(t, m, greedy("Once upon a time", 40))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	f := func() { cancel(); <-left }
	leave.Store(&f)
	armed.Store(true)
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		err := starter{m, sync.OnceFunc(func() { close(begun) })}.Generate(ctx, endless(t), func(*engine.Event) error { return nil })
		close(left)
		ended <- err
	}()
	<-begun
	_, wait := neighbour(t, m, want)
	close(arrived)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	wait()
}

// TestCancelWhileWaiting leaves the queue while the only row is taken.
func TestCancelWhileWaiting(t *testing.T) {
	left := make(chan struct{})
	m := loadGated(t, 1, func(_ context.Context, _, positions int) error {
		if positions == 1 {
			<-left
		}
		return nil
	})
	hold, release := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- starter{m, sync.OnceFunc(func() { close(begun) })}.Generate(hold, endless(t), func(*engine.Event) error { return nil })
	}()
	<-begun
	ctx, leave := context.WithCancel(t.Context())
	leave()
	err := m.Generate(ctx, greedy("Once", 1), func(*engine.Event) error { t.Error("it was served"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(left)
	release()
	<-ended
	if got := say(t, m, greedy("Once", 3)); got == "" {
		t.Error("no answer afterwards")
	}
}

// neighbour runs a request that must get want, whatever happens beside it.
func neighbour(t *testing.T, m *llm.Model, want string) (started <-chan struct{}, wait func()) {
	begun := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		a, err := enginetest.Collect(t.Context(), t, starter{m, sync.OnceFunc(func() { close(begun) })}, greedy("Once upon a time", 40))
		if err != nil || a.Text[0] != want {
			t.Errorf("its neighbour said %q, %v, want %q", a.Text[0], err, want)
		}
	})
	return begun, wg.Wait
}

// starter calls begun at the first event of a request.
type starter struct {
	engine.Generator
	begun func()
}

func (s starter) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	return s.Generator.Generate(ctx, req, func(ev *engine.Event) error { s.begun(); return emit(ev) })
}

// TestAnswerContinuesThePrompt gives a model the decoder of Llama 2, which drops
// the space before the first word of a text: an answer to a plain prompt is not
// the first.
func TestAnswerContinuesThePrompt(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(sharedModel(t, "stories260K"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tokenizer.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	file["decoder"] = []byte(`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
		{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`)
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := llm.Load(t.Context(), openRuntime(t), llm.Options{Dir: dir, Quantization: "none", CacheDir: t.TempDir(), Slots: 1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := say(t, m, greedy("One day, a dog named Max", 5)); !strings.HasPrefix(got, " went") {
		t.Errorf("the prompt goes on with %q, want the space before the word", got)
	}
}
