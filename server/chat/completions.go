package chat

import (
	"context"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/rest"
)

// Complete answers POST /completions.
func (s *Service) Complete(ctx context.Context, r *api.CompletionRequest, events *rest.Events) (*api.Completion, error) {
	req := generation(&r.GenerationParams)
	req.Prompt = r.Prompt.Text
	id, created := s.kit.NewID("cmpl"), s.kit.Now().Unix()
	if r.Streaming() {
		stream := &completionStream{request: r, id: id, created: created, asked: req.Logprobs != nil, tail: tail[api.CompletionChunk]{send: events.Send}}
		if !stream.asked { // every chunk's token has a log-probability, as its form requires
			req.Logprobs = new(int)
		}
		return nil, s.run(ctx, r.Model, req, stream.add)
	}
	a := newAnswer(req.N)
	if err := s.run(ctx, r.Model, req, a.add); err != nil {
		return nil, err
	}
	out := &api.Completion{ID: id, Object: "text.completion", Created: created, Model: r.Model, Prompt: a.prompt, Usage: a.usage}
	for i := range a.choices {
		c := &a.choices[i]
		out.Choices = append(out.Choices, api.CompletionChoice{
			Index: i, Text: c.text.String(), FinishReason: c.finish, Logprobs: c.logprobs(req.Logprobs != nil), Seed: seed(r.Seed, i),
		})
	}
	return out, nil
}

// completionStream turns events into chunks.
type completionStream struct {
	request *api.CompletionRequest
	id      string
	created int64
	asked   bool // for log-probabilities beyond the token's own
	prompt  []api.PromptPart
	tail    tail[api.CompletionChunk]
}

func (s *completionStream) add(ev *engine.Event) error {
	switch {
	case ev.Prompt != nil:
		s.prompt = echo(ev.Prompt)
		if !s.asked && len(s.prompt) > 0 {
			s.prompt[0].Logprobs = nil
		}
		return nil
	case ev.Usage != nil:
		return s.end(usage(ev.Usage))
	}
	if ev.Finish == "" && ev.Text == "" && !s.asked {
		return nil
	}
	chunk := s.chunk(ev)
	if ev.Finish != "" {
		why := string(ev.Finish)
		chunk.FinishReason, chunk.Choices[0].FinishReason = &why, &why
		return s.tail.hold(chunk)
	}
	return s.tail.pass(chunk)
}

func (s *completionStream) chunk(ev *engine.Event) *api.CompletionChunk {
	c := &api.CompletionChunk{
		ID: s.id, Object: "completion.chunk", Created: s.created, Model: s.request.Model, Prompt: s.prompt,
		Choices: []api.CompletionChunkChoice{{Index: ev.Choice, Text: ev.Text, Delta: api.Delta{Role: "assistant", Content: ev.Text}}},
		Token:   &api.CompletionToken{Text: ev.Text}, Seed: seed(s.request.Seed, ev.Choice),
	}
	s.prompt = nil
	if n := len(ev.Tokens); n > 0 {
		newest := ev.Tokens[n-1]
		c.Token.ID, c.Token.Logprob = newest.ID, value(newest.Logprob)
		if s.asked {
			c.Choices[0].Logprobs = block(ev.Tokens)
		}
	}
	return c
}

func (s *completionStream) end(u *api.Usage) error {
	return s.tail.end(func(c *api.CompletionChunk) { c.Usage = u }, s.request.StreamOptions, func() *api.CompletionChunk {
		return &api.CompletionChunk{
			ID: s.id, Object: "completion.chunk", Created: s.created, Model: s.request.Model,
			Choices: []api.CompletionChunkChoice{}, Token: &api.CompletionToken{Special: true},
		}
	})
}
