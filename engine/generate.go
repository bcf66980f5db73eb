package engine

import (
	"context"
	"encoding/json"
)

// Generator produces text from one loaded language model. Its methods are safe
// for concurrent use.
type Generator interface {
	// Model describes the loaded model.
	Model() ModelInfo
	// Generate runs req to its end and reports progress through emit, always
	// from one goroutine at a time. The first event carries Prompt; every
	// choice ends with exactly one event whose Finish is set; the last event
	// carries Usage. An error from emit, or the end of ctx, stops the work and
	// frees its slot at once; Generate then returns that error.
	//
	// Errors before the first token: *RequestError for a request that this
	// model cannot serve, ErrOverloaded, ErrUnavailable.
	Generate(ctx context.Context, req *GenerateRequest, emit func(*Event) error) error
}

// ModelInfo says what a Generator serves.
type ModelInfo struct {
	Name          string `json:"name"`           // as given by the owner of the worker
	Architecture  string `json:"architecture"`   // e.g. "LlamaForCausalLM"
	Quantization  string `json:"quantization"`   // none, int8 or int4
	ContextLength int    `json:"context_length"` // tokens, prompt and answer together
	Vocabulary    int    `json:"vocabulary"`     // tokens
	Parameters    int64  `json:"parameters"`     // count of weights
	Chat          bool   `json:"chat"`           // has a chat template
	Slots         int    `json:"slots"`          // sequences decoded at the same time
	Adapters      bool   `json:"adapters"`       // requests may name adapters
}

// GenerateRequest asks for one or more continuations of one prompt. Exactly
// one of Messages and Prompt is used: Messages when it is non-nil.
type GenerateRequest struct {
	// Messages are chat messages as ordered JSON objects, rendered by the
	// model's own template.
	Messages []json.RawMessage `json:"messages,omitempty"`
	// Prompt is plain text, encoded with the tokenizer's own special tokens.
	Prompt string `json:"prompt,omitempty"`
	// TemplateKwargs are extra variables for the chat template.
	TemplateKwargs map[string]json.RawMessage `json:"template_kwargs,omitempty"`

	// Adapter is applied to the model for this request, nil for the model alone.
	Adapter *Adapter `json:"adapter,omitempty"`

	// MaxTokens bounds each choice; 0 means until a stop or the end of the context.
	MaxTokens int `json:"max_tokens,omitempty"`
	// TruncateToContext lowers MaxTokens to what fits instead of refusing.
	TruncateToContext bool     `json:"truncate_to_context,omitempty"`
	Stop              []string `json:"stop,omitempty"` // never returned in the text
	N                 int      `json:"n,omitempty"`    // choices, 0 means 1
	Echo              bool     `json:"echo,omitempty"` // report the prompt's text, and its logprobs when Logprobs is set
	// Logprobs asks for log-probabilities: nil none, 0 the chosen token's,
	// 1..20 also that many most likely ones.
	Logprobs *int     `json:"logprobs,omitempty"`
	Sampling Sampling `json:"sampling"`
	// Seed makes the result repeatable; choice i uses Seed+i. Always set: the
	// caller draws one when the user gave none.
	Seed uint64 `json:"seed"`
}

// Adapter names a low-rank adapter of the loaded model.
type Adapter struct {
	Key string `json:"key"` // identity of the content; one key, one content
	Dir string `json:"dir"` // PEFT folder that the worker can read
}

// Sampling holds the sampling parameters. Pointers distinguish "not given",
// which falls back to the model's generation_config.json and then to neutral
// values.
type Sampling struct {
	Temperature       *float64          `json:"temperature,omitempty"` // 0 is greedy
	TopP              *float64          `json:"top_p,omitempty"`
	TopK              *int              `json:"top_k,omitempty"` // 0 or -1 is off
	MinP              *float64          `json:"min_p,omitempty"`
	RepetitionPenalty *float64          `json:"repetition_penalty,omitempty"`
	PresencePenalty   float64           `json:"presence_penalty,omitempty"`
	FrequencyPenalty  float64           `json:"frequency_penalty,omitempty"`
	LogitBias         map[int32]float64 `json:"logit_bias,omitempty"`
}

// FinishReason says why a choice ended.
type FinishReason string

// The reasons: a stop string or an end-of-sequence token, or the token limit.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
)

// Event is one piece of progress of a Generate call.
type Event struct {
	Prompt *PromptEvent `json:"prompt,omitempty"` // first event only
	Choice int          `json:"choice"`           // index, 0..N-1
	// Text is final text of the choice, always whole UTF-8. It may be empty
	// while bytes or a possible stop string are held back.
	Text string `json:"text,omitempty"`
	// Tokens are the tokens sampled since the last event of this choice.
	Tokens []Token      `json:"tokens,omitempty"`
	Finish FinishReason `json:"finish,omitempty"`
	Usage  *Usage       `json:"usage,omitempty"` // last event only
}

// PromptEvent describes the encoded prompt.
type PromptEvent struct {
	Tokens int     `json:"tokens"`         // count
	Text   string  `json:"text,omitempty"` // with Echo
	Echo   []Token `json:"echo,omitempty"` // with Echo and Logprobs; the first has no log-probability
}

// Token is one sampled or echoed token.
type Token struct {
	ID      int32        `json:"id"`
	Text    string       `json:"text"`              // the token alone, invalid UTF-8 as U+FFFD
	Bytes   []byte       `json:"bytes,omitempty"`   // exact bytes, with Logprobs
	Logprob *float64     `json:"logprob,omitempty"` // natural log, with Logprobs
	Top     []TopLogprob `json:"top,omitempty"`     // most likely first
}

// TopLogprob is one alternative at a position.
type TopLogprob struct {
	ID      int32   `json:"id"`
	Text    string  `json:"text"`
	Bytes   []byte  `json:"bytes,omitempty"`
	Logprob float64 `json:"logprob"`
}

// Usage counts tokens of one Generate call.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"` // over all choices
	CachedTokens     int `json:"cached_tokens,omitempty"`
}
