package sample

// Params are the sampling parameters of one sequence.
type Params struct {
	Temperature       float64           // below 1e-5 takes the likeliest token
	TopP              float64           // mass kept, 1 is off
	TopK              int               // tokens kept, 0 is off
	MinP              float64           // least probability relative to the likeliest token's, 0 is off
	RepetitionPenalty float64           // 0 or 1 is off; divides positive and multiplies negative logits of tokens seen, prompt included
	PresencePenalty   float64           // subtracted from tokens generated before
	FrequencyPenalty  float64           // subtracted once per time that a token was generated
	LogitBias         map[int32]float64 // added
	Seed              uint64
}

// Defaults are neutral: the model's own distribution.
func Defaults() Params {
	return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
}
