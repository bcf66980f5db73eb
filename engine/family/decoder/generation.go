package decoder

import "io/fs"

const generationFile = "generation_config.json"

// GenerationConfig holds the sampling defaults of a model's own
// generation_config.json; nil where the file says nothing.
type GenerationConfig struct {
	DoSample          *bool
	Temperature       *float64
	TopP              *float64
	TopK              *int
	MinP              *float64
	RepetitionPenalty *float64
}

// Generation reads generation_config.json; a model without one has no
// defaults.
func Generation(fsys fs.FS) (GenerationConfig, error) {
	c, err := optional(fsys, generationFile)
	if err != nil {
		return GenerationConfig{}, err
	}
	var g GenerationConfig
	if c.Has("do_sample") {
		g.DoSample = new(c.BoolOr("do_sample", false))
	}
	if c.Has("top_k") {
		g.TopK = new(c.IntOr("top_k", -1, maxVocabulary, 0))
	}
	for _, f := range []struct {
		field string
		value **float64
		most  float64
	}{
		{"temperature", &g.Temperature, 1000}, {"top_p", &g.TopP, 1}, {"min_p", &g.MinP, 1}, {"repetition_penalty", &g.RepetitionPenalty, 1000},
	} {
		if c.Has(f.field) {
			*f.value = new(c.FloatOr(f.field, 0, f.most, 0))
		}
	}
	if c.Err() != nil {
		return GenerationConfig{}, c.Err()
	}
	return g, nil
}
