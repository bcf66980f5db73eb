package llm

import (
	"context"
	"math"

	"athanor/engine"
)

// NegativeLogLikelihood sums -ln p over the tokens of texts, each as a prompt of
// its own cut to the context, and counts them; first tokens have no prediction.
func NegativeLogLikelihood(ctx context.Context, g engine.Generator, texts []string) (sum float64, tokens int, err error) {
	for _, text := range texts {
		alternatives := 0
		req := &engine.GenerateRequest{Prompt: text, MaxTokens: 1, Echo: true, Logprobs: &alternatives}
		err := g.Generate(ctx, req, func(ev *engine.Event) error {
			if ev.Prompt == nil {
				return nil
			}
			for _, tok := range ev.Prompt.Echo {
				if tok.Logprob != nil {
					sum -= *tok.Logprob
					tokens++
				}
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return sum, tokens, nil
}

// Perplexity is e to the mean negative log-likelihood.
func Perplexity(sum float64, tokens int) float64 {
	return math.Exp(sum / float64(tokens))
}
