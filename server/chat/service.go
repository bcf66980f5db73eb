package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/kit"
)

// Models gives access to loaded language models.
type Models interface {
	// Generator loads the model of that name, as the caller in ctx sees it, and
	// keeps it loaded until release is called.
	Generator(ctx context.Context, model string) (g engine.Generator, release func(), err error)
}

// Meter is told about finished generations; it must not block.
type Meter interface {
	Generated(ctx context.Context, model string, usage engine.Usage, firstToken time.Duration)
}

// Service answers chat and text completions. Safe for concurrent use.
type Service struct {
	kit    kit.Kit
	models Models
	meter  Meter
}

// New makes a Service.
func New(k kit.Kit, models Models, meter Meter) *Service {
	return &Service{kit: k, models: models, meter: meter}
}

// run generates req on model and hands every event to emit. The meter is told
// at the end.
func (s *Service) run(ctx context.Context, model string, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	start := s.kit.Now()
	g, release, err := s.models.Generator(ctx, model)
	if err != nil {
		return err
	}
	defer release()
	var first time.Duration
	var usage engine.Usage
	err = g.Generate(ctx, req, func(ev *engine.Event) error {
		if first == 0 && ev.Prompt == nil {
			first = s.kit.Now().Sub(start)
		}
		if ev.Prompt != nil {
			usage.PromptTokens = ev.Prompt.Tokens
		}
		usage.CompletionTokens += len(ev.Tokens)
		if ev.Usage != nil {
			usage = *ev.Usage
		}
		return emit(ev)
	})
	if usage.PromptTokens > 0 {
		s.meter.Generated(ctx, model, usage, first)
	}
	return err
}

// generation translates the shared parameters. The engine is always given
// a seed: one is drawn here when the caller gave none.
func generation(p *api.GenerationParams) *engine.GenerateRequest {
	req := &engine.GenerateRequest{
		Stop: p.Stop,
		Sampling: engine.Sampling{
			Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, MinP: p.MinP, RepetitionPenalty: p.RepetitionPenalty,
			PresencePenalty: value(p.PresencePenalty), FrequencyPenalty: value(p.FrequencyPenalty),
		},
		MaxTokens: value(p.MaxTokens), N: max(value(p.N), 1), Echo: value(p.Echo),
	}
	if p.Logprobs.Wanted() {
		req.Logprobs = &p.Logprobs.Count
	}
	for id, bias := range p.LogitBias {
		if req.Sampling.LogitBias == nil {
			req.Sampling.LogitBias = map[int32]float64{}
		}
		n, _ := strconv.ParseInt(id, 10, 32) // checked by Validate
		req.Sampling.LogitBias[int32(n)] = bias
	}
	if p.Seed != nil {
		req.Seed = uint64(*p.Seed)
	} else {
		req.Seed = rand.Uint64() >> 11 // exact in a JSON number
	}
	return req
}

// chatGeneration translates a chat request; messages become ordered JSON for
// the model's template.
func chatGeneration(r *api.ChatRequest) (*engine.GenerateRequest, error) {
	req := generation(&r.GenerationParams)
	req.TemplateKwargs = r.ChatTemplateKwargs
	req.TruncateToContext = r.ContextBehavior != nil && *r.ContextBehavior == "truncate"
	for i := range r.Messages {
		raw, err := json.Marshal(wireMessage(&r.Messages[i]))
		if err != nil {
			return nil, fmt.Errorf("encode message %d: %w", i, err)
		}
		req.Messages = append(req.Messages, raw)
	}
	return req, nil
}

// templateMessage is a message as chat templates expect it, in their order.
type templateMessage struct {
	Role             string            `json:"role"`
	Content          *string           `json:"content"`
	Name             string            `json:"name,omitempty"`
	ReasoningContent *string           `json:"reasoning_content,omitempty"`
	ToolCalls        []json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
}

func wireMessage(m *api.ChatMessage) templateMessage {
	out := templateMessage{Role: m.Role, Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ReasoningContent: m.ReasoningContent}
	if m.Reasoning != nil {
		out.ReasoningContent = m.Reasoning
	}
	if m.Role == "developer" {
		out.Role = "system"
	}
	if m.Content != nil {
		out.Content = &m.Content.Text
	}
	return out
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
