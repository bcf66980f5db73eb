package llm

import (
	"athanor/engine/family"
	"athanor/engine/sample"
)

// defaults are the sampling parameters of a request that gives none: those of
// the model's generation_config.json, where do_sample false means greedy, else
// neutral ones.
func defaults(g family.GenerationConfig) sample.Params {
	p := sample.Defaults()
	override(&p.RepetitionPenalty, g.RepetitionPenalty) // counts in greedy search too
	if g.DoSample != nil && !*g.DoSample {
		p.Temperature = 0
		return p
	}
	override(&p.Temperature, g.Temperature)
	override(&p.TopP, g.TopP)
	override(&p.TopK, g.TopK)
	override(&p.MinP, g.MinP)
	return p
}
