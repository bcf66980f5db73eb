package chat

import (
	"context"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/rest"
)

// Chat answers POST /chat/completions.
func (s *Service) Chat(ctx context.Context, r *api.ChatRequest, events *rest.Events) (*api.ChatCompletion, error) {
	req, err := chatGeneration(r)
	if err != nil {
		return nil, err
	}
	id, created := s.kit.NewID("chatcmpl"), s.kit.Now().Unix()
	if r.Streaming() {
		stream := &chatStream{request: r, id: id, created: created, tail: tail[api.ChatChunk]{send: events.Send}}
		return nil, s.run(ctx, r.Model, req, stream.add)
	}
	a := newAnswer(req.N)
	if err := s.run(ctx, r.Model, req, a.add); err != nil {
		return nil, err
	}
	out := &api.ChatCompletion{ID: id, Object: "chat.completion", Created: created, Model: r.Model, Prompt: a.prompt, Usage: a.usage}
	for i := range a.choices {
		c := &a.choices[i]
		out.Choices = append(out.Choices, api.ChatChoice{
			Index: i, FinishReason: c.finish, Message: api.AnswerMessage{Role: "assistant", Content: c.text.String()},
			Logprobs: c.logprobs(req.Logprobs != nil), Seed: seed(r.Seed, i),
		})
	}
	return out, nil
}

// chatStream turns events into chunks.
type chatStream struct {
	request *api.ChatRequest
	id      string
	created int64
	prompt  []api.PromptPart
	tail    tail[api.ChatChunk]
}

func (s *chatStream) add(ev *engine.Event) error {
	switch {
	case ev.Prompt != nil:
		s.prompt = echo(ev.Prompt)
		return nil
	case ev.Usage != nil:
		return s.end(usage(ev.Usage))
	}
	if ev.Finish == "" && ev.Text == "" && !s.request.Logprobs.Wanted() {
		return nil // held-back bytes only
	}
	chunk := s.chunk(api.ChunkChoice{
		Index: ev.Choice, Delta: api.Delta{Role: "assistant", Content: ev.Text}, Seed: seed(s.request.Seed, ev.Choice), Logprobs: s.logprobs(ev.Tokens),
	})
	if n := len(ev.Tokens); n > 0 {
		chunk.Choices[0].Delta.TokenID = &ev.Tokens[n-1].ID
	}
	if ev.Finish != "" {
		why := string(ev.Finish)
		chunk.Choices[0].FinishReason = &why
		return s.tail.hold(chunk)
	}
	return s.tail.pass(chunk)
}

// logprobs is the number of the newest token, or OpenAI's object when the
// request used a boolean.
func (s *chatStream) logprobs(tokens []engine.Token) any {
	l := s.request.Logprobs
	switch {
	case !l.Wanted() || len(tokens) == 0:
		return nil
	case l.OpenAI:
		return block(tokens)
	}
	return tokens[len(tokens)-1].Logprob
}

func (s *chatStream) chunk(choices ...api.ChunkChoice) *api.ChatChunk {
	c := &api.ChatChunk{ID: s.id, Object: "chat.completion.chunk", Created: s.created, Model: s.request.Model, Prompt: s.prompt, Choices: choices}
	if choices == nil {
		c.Choices = []api.ChunkChoice{}
	}
	s.prompt = nil
	return c
}

func (s *chatStream) end(u *api.Usage) error {
	return s.tail.end(func(c *api.ChatChunk) { c.Usage = u }, s.request.StreamOptions, func() *api.ChatChunk { return s.chunk() })
}
