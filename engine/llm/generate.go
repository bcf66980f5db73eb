package llm

import (
	"context"
	"fmt"

	"athanor/engine"
	"athanor/engine/sample"
)

// maxWaiting bounds the sequences that wait for a row; more is ErrOverloaded.
const maxWaiting = 512

// Model implements engine.Generator on a compiled decoder.
var _ engine.Generator = (*Model)(nil)

// Model describes the loaded model.
func (m *Model) Model() engine.ModelInfo { return m.info }

// Generate implements engine.Generator.
func (m *Model) Generate(ctx context.Context, spec *engine.GenerateRequest, emit func(*engine.Event) error) error {
	r, err := m.newRequest(spec)
	if err != nil {
		return err
	}
	sequences := m.sequences(r)
	if err := m.enqueue(sequences); err != nil {
		return err
	}
	defer m.cancel(r)
	for {
		events, done, err := r.out.take()
		for _, ev := range events {
			if err := emit(ev); err != nil {
				return err
			}
		}
		if done {
			return err
		}
		select {
		case <-r.out.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// newRequest encodes the prompt and checks what only the model can check.
func (m *Model) newRequest(spec *engine.GenerateRequest) (*request, error) {
	if spec.Adapter != nil && !m.info.Adapters {
		return nil, errNoAdapters
	}
	prompt, text, err := m.encode(spec)
	if err != nil {
		return nil, err
	}
	if len(prompt) == 0 {
		return nil, &engine.RequestError{Param: "prompt", Message: "the prompt is empty"}
	}
	limit, err := m.limit(spec, len(prompt))
	if err != nil {
		return nil, err
	}
	for _, id := range prompt {
		if rows := m.batch.decoder.Vocabulary; int(id) >= rows { // the embedding's bounds are not checked below
			return nil, &engine.RequestError{Param: promptParam(spec),
				Message: fmt.Sprintf("the prompt holds token %d, but the model's tokens are 0 to %d", id, rows-1)}
		}
	}
	for id := range spec.Sampling.LogitBias {
		if id < 0 || int(id) >= m.vocabulary {
			return nil, &engine.RequestError{Param: "logit_bias",
				Message: fmt.Sprintf("logit_bias names token %d, but the model's tokens are 0 to %d", id, m.vocabulary-1)}
		}
	}
	n := max(spec.N, 1)
	return &request{spec: spec, prompt: prompt, text: text, limit: limit, out: newOutbox(), open: n}, nil
}

// limit is the number of tokens that each choice may have.
func (m *Model) limit(spec *engine.GenerateRequest, prompt int) (int, error) {
	room := m.info.ContextLength - prompt
	if room < 1 {
		return 0, &engine.RequestError{Param: promptParam(spec), Code: engine.CodeContextLength,
			Message: fmt.Sprintf("the prompt has %d tokens, but the model's context is %d tokens", prompt, m.info.ContextLength)}
	}
	if spec.MaxTokens == 0 {
		return room, nil
	}
	if spec.MaxTokens > room && !spec.TruncateToContext {
		return 0, &engine.RequestError{Param: "max_tokens", Code: engine.CodeContextLength,
			Message: fmt.Sprintf("the prompt has %d tokens and max_tokens asks for %d more, but the model's context is %d tokens",
				prompt, spec.MaxTokens, m.info.ContextLength)}
	}
	return min(spec.MaxTokens, room), nil
}

// promptParam is the field that the prompt came from.
func promptParam(spec *engine.GenerateRequest) string {
	if spec.Messages == nil {
		return "prompt"
	}
	return "messages"
}

func (m *Model) sequences(r *request) []*sequence {
	list := make([]*sequence, r.open)
	for i := range list {
		list[i] = &sequence{
			request: r, choice: i,
			sampler: sample.New(m.params(r.spec, i), m.vocabulary, r.prompt),
			stream:  m.answerStream(r),
			stops:   sample.NewStops(r.spec.Stop),
		}
	}
	return list
}

// params resolves the sampling parameters: the request's, else the model's own
// defaults, else neutral ones.
func (m *Model) params(spec *engine.GenerateRequest, choice int) sample.Params {
	p := m.defaults
	s := spec.Sampling
	override(&p.Temperature, s.Temperature)
	override(&p.TopP, s.TopP)
	override(&p.TopK, s.TopK)
	override(&p.MinP, s.MinP)
	override(&p.RepetitionPenalty, s.RepetitionPenalty)
	p.TopK = max(p.TopK, 0)
	p.PresencePenalty, p.FrequencyPenalty = s.PresencePenalty, s.FrequencyPenalty
	p.LogitBias = s.LogitBias
	p.Seed = spec.Seed + uint64(choice)
	return p
}

func override[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func (m *Model) enqueue(sequences []*sequence) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return engine.ErrUnavailable
	}
	if len(m.waiting)+len(sequences) > maxWaiting {
		return engine.ErrOverloaded
	}
	m.waiting = append(m.waiting, sequences...)
	m.signal()
	return nil
}

// cancel makes the loop drop what is left of r.
func (m *Model) cancel(r *request) {
	r.cancelled.Store(true)
	m.signal()
}

func (m *Model) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
