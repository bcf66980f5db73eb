package api

import (
	"encoding/json"
	"fmt"
)

// CompletionRequest is the body of POST /completions.
type CompletionRequest struct {
	GenerationParams
	Prompt *Prompt         `json:"prompt"`
	BestOf *int            `json:"best_of"`
	Suffix *string         `json:"suffix"`
	Format json.RawMessage `json:"response_format"`
}

// Prompt is one prompt: a string, or a list that holds one string.
type Prompt struct{ Text string }

// UnmarshalJSON accepts a string or a list of one string.
func (p *Prompt) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &p.Text) == nil {
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil || len(many) != 1 {
		return fmt.Errorf("must be one string")
	}
	p.Text = many[0]
	return nil
}

// Validate checks the request and refuses by name what is not honoured.
func (r *CompletionRequest) Validate() error {
	if err := r.GenerationParams.validate(); err != nil {
		return err
	}
	if err := validateLogprobs(r.Logprobs); err != nil {
		return err
	}
	switch {
	case r.Prompt == nil:
		return Invalid("prompt", "prompt is required")
	case r.BestOf != nil && *r.BestOf != 1:
		return Unsupported("best_of")
	case r.Suffix != nil && *r.Suffix != "":
		return Unsupported("suffix")
	case len(r.Format) > 0 && string(r.Format) != "null":
		return Unsupported("response_format")
	}
	return nil
}

// Completion is the answer to a completion request that does not stream.
type Completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Prompt  []PromptPart       `json:"prompt"`
	Choices []CompletionChoice `json:"choices"`
	Usage   *Usage             `json:"usage"`
}

// CompletionChoice is one continuation.
type CompletionChoice struct {
	Index        int            `json:"index"`
	Text         string         `json:"text"`
	FinishReason string         `json:"finish_reason"`
	Logprobs     *LogprobsBlock `json:"logprobs,omitempty"`
	Seed         *int64         `json:"seed,omitempty"`
}

// CompletionChunk is one event of a completion stream.
type CompletionChunk struct {
	ID           string                  `json:"id"`
	Object       string                  `json:"object"`
	Created      int64                   `json:"created"`
	Model        string                  `json:"model"`
	Prompt       []PromptPart            `json:"prompt,omitempty"`
	Token        *CompletionToken        `json:"token"`
	Choices      []CompletionChunkChoice `json:"choices"`
	Usage        *Usage                  `json:"usage"`
	Seed         *int64                  `json:"seed,omitempty"`
	FinishReason *string                 `json:"finish_reason"`
}

// CompletionToken is the newest token of a chunk; Special marks the chunk that
// has none.
type CompletionToken struct {
	ID      int32   `json:"id"`
	Text    string  `json:"text"`
	Logprob float64 `json:"logprob"`
	Special bool    `json:"special"`
}

// CompletionChunkChoice is one choice's part of a chunk.
type CompletionChunkChoice struct {
	Index        int            `json:"index"`
	Text         string         `json:"text"`
	Delta        Delta          `json:"delta"`
	FinishReason *string        `json:"finish_reason"`
	Logprobs     *LogprobsBlock `json:"logprobs"`
}
