package llm

import (
	"slices"
	"strings"
	"sync/atomic"

	"athanor/engine"
	"athanor/engine/sample"
	"athanor/engine/token"
)

// request is one Generate call.
type request struct {
	spec      *engine.GenerateRequest
	prompt    []int32
	text      string // of the prompt, for echo
	limit     int    // tokens of each choice
	out       *outbox
	cancelled atomic.Bool

	// The loop owns the fields below.
	started   bool // the prompt event is out
	echo      []engine.Token
	first     []float32 // logits after the prompt [V], for further choices
	open      int       // choices not finished
	completed int       // tokens generated over all choices
}

// logprobs is the number of alternatives per token, -1 for no log-probabilities.
func (r *request) logprobs() int {
	if r.spec.Logprobs == nil {
		return -1
	}
	return *r.spec.Logprobs
}

// wantsEcho reports whether the prompt's own log-probabilities are wanted.
func (r *request) wantsEcho() bool { return r.spec.Echo && r.spec.Logprobs != nil }

// start emits the prompt event once.
func (r *request) start() {
	if r.started {
		return
	}
	r.started = true
	p := &engine.PromptEvent{Tokens: len(r.prompt), Echo: r.echo}
	if r.spec.Echo {
		p.Text = r.text
	}
	r.out.put(&engine.Event{Prompt: p})
}

// sequence is one choice of a request. Only the loop uses it.
type sequence struct {
	*request
	choice  int
	adapter *place
	read    int   // prompt tokens in the cache
	cached  int   // positions of the row that hold this sequence
	last    int32 // the sampled token that is not in the cache yet
	count   int   // tokens sampled
	sampler *sample.Sampler
	stream  *token.Stream
	stops   *sample.Stops
}

// accept takes a sampled token into the answer and reports whether the choice
// has ended. A token that ends the text is neither reported nor counted.
func (s *sequence) accept(m *Model, c sample.Choice) (ended bool) {
	if slices.Contains(m.eos, c.ID) {
		s.finish(engine.FinishStop, nil, "", false)
		return true
	}
	s.count++
	s.completed++
	s.last = c.ID
	tokens := []engine.Token{m.describe(c, s.logprobs())}
	text, stopped := s.stops.Push(s.stream.Push(c.ID))
	switch {
	case stopped:
		s.finish(engine.FinishStop, tokens, text, true)
	case s.count >= s.limit:
		s.finish(engine.FinishLength, tokens, text, false)
	default:
		s.out.put(&engine.Event{Choice: s.choice, Text: text, Tokens: tokens})
		return false
	}
	return true
}

// finish emits the last event of the choice, with the text that was held back
// unless a stop string cut it, and the usage when it was the last choice.
func (s *sequence) finish(why engine.FinishReason, tokens []engine.Token, text string, cut bool) {
	if !cut {
		tail, stopped := s.stops.Push(s.stream.Flush())
		text += tail
		if stopped {
			why = engine.FinishStop
		} else {
			text += s.stops.Flush()
		}
	}
	s.out.put(&engine.Event{Choice: s.choice, Text: text, Tokens: tokens, Finish: why})
	if s.open--; s.open == 0 {
		s.out.put(&engine.Event{Usage: &engine.Usage{PromptTokens: len(s.prompt), CompletionTokens: s.completed}})
		s.out.finish(nil)
	}
}

// describe renders a sampled token for the caller.
func (m *Model) describe(c sample.Choice, top int) engine.Token {
	t := m.token(c.ID, top >= 0)
	if top < 0 {
		return t
	}
	lp := float64(c.Logprob)
	t.Logprob = &lp
	t.Top = m.alternatives(c.Top)
	return t
}

func (m *Model) alternatives(top []sample.TopLogprob) []engine.TopLogprob {
	var out []engine.TopLogprob
	for _, a := range top {
		b := m.tokenizer.Bytes(a.ID)
		out = append(out, engine.TopLogprob{ID: a.ID, Text: strings.ToValidUTF8(string(b), "\uFFFD"), Bytes: b, Logprob: float64(a.Logprob)})
	}
	return out
}

func (m *Model) token(id int32, exact bool) engine.Token {
	b := m.tokenizer.Bytes(id)
	t := engine.Token{ID: id, Text: strings.ToValidUTF8(string(b), "\uFFFD")}
	if exact {
		t.Bytes = b
	}
	return t
}
