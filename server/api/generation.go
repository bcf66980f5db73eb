package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// GenerationParams are the parameters that chat and text completions share.
type GenerationParams struct {
	Model             string             `json:"model"`
	MaxTokens         *int               `json:"max_tokens"`
	Stop              StringList         `json:"stop"`
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	N                 *int               `json:"n"`
	Stream            *bool              `json:"stream"`
	StreamOptions     *StreamOptions     `json:"stream_options"`
	Logprobs          *Logprobs          `json:"logprobs"`
	Echo              *bool              `json:"echo"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`
	SafetyModel       *string            `json:"safety_model"`
}

// StreamOptions is the OpenAI option object of a stream.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Limits of generation parameters.
const (
	MaxChoices     = 128
	MaxLogprobs    = 20
	MaxStops       = 16
	MaxStopBytes   = 1024
	MaxLogitBiases = 4096
)

// Streaming reports whether a stream was asked for.
func (p *GenerationParams) Streaming() bool { return p.Stream != nil && *p.Stream }

// validate checks the shared parameters.
func (p *GenerationParams) validate() error {
	if p.Model == "" {
		return Invalid("model", "model is required")
	}
	if p.SafetyModel != nil && *p.SafetyModel != "" {
		return ModelNotFound(*p.SafetyModel).WithParam("safety_model")
	}
	if p.StreamOptions != nil && !p.Streaming() {
		return Invalid("stream_options", "stream_options needs stream to be true")
	}
	if err := p.validateCounts(); err != nil {
		return err
	}
	return p.validateSampling()
}

func (p *GenerationParams) validateCounts() error {
	if p.MaxTokens != nil && *p.MaxTokens < 1 {
		return Invalid("max_tokens", "max_tokens must be at least 1, got %d", *p.MaxTokens)
	}
	if p.N != nil && (*p.N < 1 || *p.N > MaxChoices) {
		return Invalid("n", "n must be between 1 and %d, got %d", MaxChoices, *p.N)
	}
	if len(p.Stop) > MaxStops {
		return Invalid("stop", "stop takes at most %d strings, got %d", MaxStops, len(p.Stop))
	}
	for i, s := range p.Stop {
		if s == "" || len(s) > MaxStopBytes {
			return Invalid(fmt.Sprintf("stop.%d", i), "a stop string must have 1 to %d bytes, got %d", MaxStopBytes, len(s))
		}
	}
	if len(p.LogitBias) > MaxLogitBiases {
		return Invalid("logit_bias", "logit_bias takes at most %d tokens, got %d", MaxLogitBiases, len(p.LogitBias))
	}
	return nil
}

func (p *GenerationParams) validateSampling() error {
	ranges := []struct {
		name     string
		value    *float64
		min, max float64
	}{
		{"temperature", p.Temperature, 0, 2},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"repetition_penalty", p.RepetitionPenalty, 0, 10},
		{"presence_penalty", p.PresencePenalty, -2, 2},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2},
	}
	for _, r := range ranges {
		if r.value != nil && !(*r.value >= r.min && *r.value <= r.max) {
			return Invalid(r.name, "%s must be between %g and %g, got %g", r.name, r.min, r.max, *r.value)
		}
	}
	if p.TopP != nil && *p.TopP == 0 {
		return Invalid("top_p", "top_p must be above 0")
	}
	if p.RepetitionPenalty != nil && *p.RepetitionPenalty == 0 {
		return Invalid("repetition_penalty", "repetition_penalty must be above 0")
	}
	if p.TopK != nil && (*p.TopK < -1 || *p.TopK > math.MaxInt32) {
		return Invalid("top_k", "top_k must be -1 or 0 (off), or at least 1, got %d", *p.TopK)
	}
	for id, bias := range p.LogitBias {
		if n, err := strconv.ParseInt(id, 10, 32); err != nil || n < 0 || strconv.FormatInt(n, 10) != id { // "05" and "5" would be one token
			return Invalid("logit_bias", "logit_bias keys are token ids, got %q", id)
		}
		if !(bias >= -100 && bias <= 100) {
			return Invalid("logit_bias."+id, "a logit bias must be between -100 and 100, got %g", bias)
		}
	}
	return nil
}

// StringList is a list of strings that may also be given as one string.
type StringList []string

// UnmarshalJSON accepts null, a string or a list of strings.
func (l *StringList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		if string(data) != "null" {
			*l = StringList{one}
		}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return fmt.Errorf("must be a string or a list of strings")
	}
	*l = many
	return nil
}

// Logprobs is the number of alternatives (0 to 20), or a boolean as OpenAI has it.
type Logprobs struct {
	Count  int
	Off    bool // false was given
	OpenAI bool // a boolean was given
}

// Wanted reports whether log-probabilities were asked for; l may be nil.
func (l *Logprobs) Wanted() bool { return l != nil && !l.Off }

// UnmarshalJSON accepts an integer or a boolean.
func (l *Logprobs) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true", "false":
		l.OpenAI, l.Off = true, string(data) == "false"
		return nil
	}
	if err := json.Unmarshal(data, &l.Count); err != nil {
		return fmt.Errorf("must be an integer from 0 to %d, or a boolean", MaxLogprobs)
	}
	return nil
}

// ModelNotFound is the 404 for a model that the caller cannot reach.
func ModelNotFound(name string) *Error {
	return New(404, TypeInvalidRequest, "model_not_found", "Unable to access model %s. It does not exist or this key may not use it.", name).WithParam("model")
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// PromptPart is an echoed prompt.
type PromptPart struct {
	Text     string         `json:"text"`
	Logprobs *LogprobsBlock `json:"logprobs,omitempty"`
}

// LogprobsBlock carries log-probabilities in both shapes that clients read:
// parallel lists, and one object per token under content.
type LogprobsBlock struct {
	Tokens        []string             `json:"tokens"`
	TokenIDs      []int32              `json:"token_ids"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs,omitempty"`
	Content       []TokenLogprob       `json:"content"`
}

// TokenLogprob is one token in OpenAI's shape.
type TokenLogprob struct {
	Token       string         `json:"token"`
	Logprob     *float64       `json:"logprob"`
	Bytes       []int          `json:"bytes"`
	TopLogprobs []TokenLogprob `json:"top_logprobs,omitempty"`
}
