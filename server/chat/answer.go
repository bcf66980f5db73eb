package chat

import (
	"strings"

	"athanor/engine"
	"athanor/server/api"
)

// answer collects the events of a generation that is not streamed.
type answer struct {
	prompt  []api.PromptPart
	choices []collected
	usage   *api.Usage
}

type collected struct {
	text   strings.Builder
	tokens []engine.Token
	finish string
}

func newAnswer(n int) *answer {
	return &answer{prompt: []api.PromptPart{}, choices: make([]collected, n)}
}

// add takes one event; it never fails.
func (a *answer) add(ev *engine.Event) error {
	if ev.Prompt != nil {
		a.prompt = echo(ev.Prompt)
		return nil
	}
	if ev.Usage != nil {
		a.usage = usage(ev.Usage)
		return nil
	}
	c := &a.choices[ev.Choice]
	c.text.WriteString(ev.Text)
	c.tokens = append(c.tokens, ev.Tokens...)
	if ev.Finish != "" {
		c.finish = string(ev.Finish)
	}
	return nil
}

// logprobs renders the tokens of a choice when they were asked for.
func (c *collected) logprobs(asked bool) *api.LogprobsBlock {
	if !asked {
		return nil
	}
	return block(c.tokens)
}

// echo is the prompt as the answer shows it: empty unless it was asked for.
func echo(p *engine.PromptEvent) []api.PromptPart {
	if p.Text == "" {
		return []api.PromptPart{}
	}
	return []api.PromptPart{{Text: p.Text, Logprobs: block(p.Echo)}}
}

func usage(u *engine.Usage) *api.Usage {
	return &api.Usage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.PromptTokens + u.CompletionTokens}
}

// seed is the seed of one choice, shown only when the caller gave one.
func seed(given *int64, choice int) *int64 {
	if given == nil {
		return nil
	}
	s := *given + int64(choice)
	return &s
}
