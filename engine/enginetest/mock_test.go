package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
)

func TestMockKeepsTheContract(t *testing.T) {
	enginetest.CheckGenerator(t, &enginetest.Mock{})
	enginetest.CheckGenerator(t, &enginetest.Mock{Slots: 2, Queue: 1})
}

func TestMockSaysItsScript(t *testing.T) {
	m := &enginetest.Mock{Tokens: []string{"Hel", "lo ", "wor", "ld"}}
	tests := []struct {
		name   string
		req    engine.GenerateRequest
		text   string
		tokens int
		finish engine.FinishReason
	}{
		{"to its end", engine.GenerateRequest{}, "Hello world", 4, engine.FinishStop},
		{"cut by max_tokens", engine.GenerateRequest{MaxTokens: 2}, "Hello ", 2, engine.FinishLength},
		{"exactly max_tokens", engine.GenerateRequest{MaxTokens: 4}, "Hello world", 4, engine.FinishStop},
		{"stop inside a token", engine.GenerateRequest{Stop: []string{"o w"}}, "Hell", 3, engine.FinishStop},
		{"the earliest stop wins", engine.GenerateRequest{Stop: []string{"wor", "l"}}, "He", 1, engine.FinishStop},
		{"stop at once", engine.GenerateRequest{Stop: []string{"H"}}, "", 1, engine.FinishStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := enginetest.Collect(t.Context(), t, m, &tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if a.Text[0] != tt.text || len(a.Tokens[0]) != tt.tokens || a.Finish[0] != tt.finish {
				t.Errorf("got %q, %d tokens, %s; want %q, %d, %s", a.Text[0], len(a.Tokens[0]), a.Finish[0], tt.text, tt.tokens, tt.finish)
			}
		})
	}
}

func TestMockSeedsDiffer(t *testing.T) {
	m := &enginetest.Mock{}
	a, err := enginetest.Collect(t.Context(), t, m, &engine.GenerateRequest{N: 2, Seed: 5, MaxTokens: 10})
	if err != nil {
		t.Fatal(err)
	}
	if a.Text[0] == a.Text[1] {
		t.Errorf("two choices with different seeds say the same: %q", a.Text[0])
	}
}

func TestMockKnobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken file")
		m := &enginetest.Mock{LoadDelay: time.Minute, LoadErr: broken, StepDelay: time.Second, FailAfter: 5}
		start := time.Now()
		if err := m.Load(t.Context()); !errors.Is(err, broken) || time.Since(start) != time.Minute {
			t.Errorf("Load: %v after %v, want %v after a minute", err, time.Since(start), broken)
		}
		start = time.Now()
		_, err := enginetest.Collect(t.Context(), t, m, &engine.GenerateRequest{MaxTokens: 50})
		if err == nil || !strings.Contains(err.Error(), "5 tokens") || time.Since(start) != 5*time.Second {
			t.Errorf("Generate: %v after %v, want a failure after 5 s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Load(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Load with a deadline: %v", err)
		}
	})
}

func TestMockQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &enginetest.Mock{Slots: 1, Queue: 1, StepDelay: time.Second}
		results := make(chan error, 3)
		for range 3 {
			go func() {
				results <- m.Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 3}, func(*engine.Event) error { return nil })
			}()
		}
		if err := <-results; !errors.Is(err, engine.ErrOverloaded) {
			t.Errorf("the third request: %v, want ErrOverloaded", err)
		}
		start := time.Now()
		if err := errors.Join(<-results, <-results); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("two requests through one slot took %v, want 6 s", took)
		}
	})
}

func TestMockTooLong(t *testing.T) {
	m := &enginetest.Mock{Info: engine.ModelInfo{ContextLength: 64}}
	tests := []struct {
		name   string
		req    engine.GenerateRequest
		param  string
		tokens int
	}{
		{"messages", engine.GenerateRequest{Messages: rawMessages(strings.Repeat("a ", 70))}, "messages", 0},
		{"max_tokens", engine.GenerateRequest{Prompt: "a b", MaxTokens: 63}, "max_tokens", 0},
		{"max_tokens lowered", engine.GenerateRequest{Prompt: "a b", MaxTokens: 63, TruncateToContext: true}, "", 62},
		{"never below one token", engine.GenerateRequest{Prompt: strings.Repeat("a ", 64), TruncateToContext: true}, "prompt", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := enginetest.Collect(t.Context(), t, m, &tt.req)
			bad := new(engine.RequestError)
			if tt.param == "" {
				if err != nil || len(a.Tokens[0]) != tt.tokens {
					t.Errorf("got %d tokens, %v; want %d", len(a.Tokens[0]), err, tt.tokens)
				}
			} else if !errors.As(err, &bad) || bad.Param != tt.param || bad.Code != engine.CodeContextLength {
				t.Errorf("got %v, want a context error for %s", err, tt.param)
			}
		})
	}
}

func TestMockEchoesMessages(t *testing.T) {
	none := 0
	a, err := enginetest.Collect(t.Context(), t, &enginetest.Mock{}, &engine.GenerateRequest{
		Messages: rawMessages(`{"role":"user"}`), Echo: true, Logprobs: &none, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Prompt.Text, "{\"role\":\"user\"}\n"; got != want {
		t.Errorf("echo %q, want %q", got, want)
	}
	if !reflect.DeepEqual(a.Tokens[0][0].Bytes, []byte(a.Tokens[0][0].Text)) || a.Tokens[0][0].Top != nil {
		t.Errorf("token %+v, want its bytes and no alternatives", a.Tokens[0][0])
	}
}

func TestMockCrash(t *testing.T) {
	if os.Getenv("MOCK_CRASH") != "" {
		m := &enginetest.Mock{Crash: 2}
		_ = m.Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 9}, func(*engine.Event) error { return nil })
		t.Fatal("still alive")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMockCrash$")
	cmd.Env = append(os.Environ(), "MOCK_CRASH=1")
	err := cmd.Run()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the crashing process ended with %v, want exit status 3", err)
	}
}

func rawMessages(raw ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, r := range raw {
		out = append(out, json.RawMessage(r))
	}
	return out
}
