package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ChatRequest is the body of POST /chat/completions. Fields that change the
// answer and are not honoured are declared so that they can be refused by name.
type ChatRequest struct {
	GenerationParams
	Messages            []ChatMessage              `json:"messages"`
	MaxCompletionTokens *int                       `json:"max_completion_tokens"` // alias of max_tokens
	TopLogprobs         *int                       `json:"top_logprobs"`          // OpenAI's companion of a boolean logprobs
	ContextBehavior     *string                    `json:"context_length_exceeded_behavior"`
	ChatTemplateKwargs  map[string]json.RawMessage `json:"chat_template_kwargs"`
	ResponseFormat      *ResponseFormat            `json:"response_format"`

	Tools            []json.RawMessage `json:"tools"`
	ToolChoice       json.RawMessage   `json:"tool_choice"`
	Functions        []json.RawMessage `json:"functions"`
	FunctionCall     json.RawMessage   `json:"function_call"`
	Reasoning        json.RawMessage   `json:"reasoning"`
	ReasoningEffort  *string           `json:"reasoning_effort"`
	Modalities       []string          `json:"modalities"`
	Audio            json.RawMessage   `json:"audio"`
	Prediction       json.RawMessage   `json:"prediction"`
	WebSearchOptions json.RawMessage   `json:"web_search_options"`
	Verbosity        *string           `json:"verbosity"`
}

// ResponseFormat asks for a form of the answer; only text is honoured.
type ResponseFormat struct {
	Type string `json:"type"`
}

// ChatMessage is one message of the conversation.
type ChatMessage struct {
	Role             string            `json:"role"`
	Content          *Content          `json:"content"`
	Name             string            `json:"name"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
	ToolCallID       string            `json:"tool_call_id"`
	FunctionCall     json.RawMessage   `json:"function_call"`
	Reasoning        *string           `json:"reasoning"`
	ReasoningContent *string           `json:"reasoning_content"`
}

// Content is the text of a message, given as a string or as text parts.
type Content struct {
	Text string
	// Unsupported is the type of the first part that is not text, at index Part.
	Unsupported string
	Part        int
}

// MaxMessages bounds a conversation.
const MaxMessages = 10000

// UnmarshalJSON accepts a string or a list of parts.
func (c *Content) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &c.Text) == nil {
		return nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("must be a string or a list of parts")
	}
	var text strings.Builder
	for i, p := range parts {
		if p.Type != "text" {
			c.Unsupported, c.Part = p.Type, i
			return nil
		}
		if p.Text == nil {
			return fmt.Errorf("part %d has no text", i)
		}
		text.WriteString(*p.Text)
	}
	c.Text = text.String()
	return nil
}

var chatRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// Validate checks the request and refuses by name what is not honoured.
func (r *ChatRequest) Validate() error {
	if r.MaxCompletionTokens != nil {
		if r.MaxTokens != nil && *r.MaxTokens != *r.MaxCompletionTokens {
			return Invalid("max_completion_tokens", "max_tokens and max_completion_tokens differ; give one")
		}
		if *r.MaxCompletionTokens < 1 {
			return Invalid("max_completion_tokens", "max_completion_tokens must be at least 1, got %d", *r.MaxCompletionTokens)
		}
		r.MaxTokens = r.MaxCompletionTokens
	}
	if err := r.GenerationParams.validate(); err != nil {
		return err
	}
	if err := r.validateLogprobs(); err != nil {
		return err
	}
	if b := r.ContextBehavior; b != nil && *b != "error" && *b != "truncate" {
		return Invalid("context_length_exceeded_behavior", `context_length_exceeded_behavior must be "error" or "truncate", got %q`, *b)
	}
	if err := r.refuse(); err != nil {
		return err
	}
	return r.validateMessages()
}

func (r *ChatRequest) validateLogprobs() error {
	l := r.Logprobs
	if r.TopLogprobs != nil {
		if l == nil || !l.OpenAI || l.Off {
			return Invalid("top_logprobs", "top_logprobs needs logprobs to be true")
		}
		l.Count = *r.TopLogprobs
		if l.Count < 0 || l.Count > MaxLogprobs {
			return Invalid("top_logprobs", "top_logprobs must be between 0 and %d, got %d", MaxLogprobs, l.Count)
		}
	}
	return validateLogprobs(l)
}

func validateLogprobs(l *Logprobs) error {
	if l != nil && (l.Count < 0 || l.Count > MaxLogprobs) {
		return Invalid("logprobs", "logprobs must be between 0 and %d, got %d", MaxLogprobs, l.Count)
	}
	return nil
}

// refuse names the first parameter that would change the answer and that this
// server does not honour.
func (r *ChatRequest) refuse() error {
	given := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
	neutral := func(raw json.RawMessage) bool {
		return !given(raw) || string(raw) == `"auto"` || string(raw) == `"none"`
	}
	refused := []struct {
		name string
		bad  bool
	}{
		{"tools", len(r.Tools) > 0},
		{"tool_choice", !neutral(r.ToolChoice)},
		{"functions", len(r.Functions) > 0},
		{"function_call", !neutral(r.FunctionCall)},
		{"response_format", r.ResponseFormat != nil && r.ResponseFormat.Type != "text"},
		{"reasoning", given(r.Reasoning)},
		{"reasoning_effort", r.ReasoningEffort != nil},
		{"modalities", slices.ContainsFunc(r.Modalities, func(m string) bool { return m != "text" })},
		{"audio", given(r.Audio)},
		{"prediction", given(r.Prediction)},
		{"web_search_options", given(r.WebSearchOptions)},
		{"verbosity", r.Verbosity != nil},
	}
	for _, p := range refused {
		if p.bad {
			return Unsupported(p.name)
		}
	}
	return nil
}

func (r *ChatRequest) validateMessages() error {
	if len(r.Messages) == 0 {
		return Invalid("messages", "messages must have at least one message")
	}
	if len(r.Messages) > MaxMessages {
		return Invalid("messages", "messages takes at most %d messages, got %d", MaxMessages, len(r.Messages))
	}
	for i := range r.Messages {
		if err := r.Messages[i].validate(fmt.Sprintf("messages.%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (m *ChatMessage) validate(at string) error {
	if !slices.Contains(chatRoles, m.Role) {
		return Invalid(at+".role", "role must be one of %s, got %q", strings.Join(chatRoles, ", "), m.Role)
	}
	if len(m.FunctionCall) > 0 && string(m.FunctionCall) != "null" {
		return Unsupported(at + ".function_call")
	}
	if m.Content == nil {
		if m.Role == "assistant" && len(m.ToolCalls) > 0 {
			return nil
		}
		return Invalid(at+".content", "content is required")
	}
	if m.Content.Unsupported != "" {
		return Unsupported(fmt.Sprintf("%s.content.%d.%s", at, m.Content.Part, m.Content.Unsupported))
	}
	return nil
}

// ChatCompletion is the answer to a chat request that does not stream.
type ChatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"` // Unix seconds
	Model   string       `json:"model"`
	Prompt  []PromptPart `json:"prompt"`
	Choices []ChatChoice `json:"choices"`
	Usage   *Usage       `json:"usage"`
}

// ChatChoice is one answer.
type ChatChoice struct {
	Index        int            `json:"index"`
	FinishReason string         `json:"finish_reason"`
	Message      AnswerMessage  `json:"message"`
	Logprobs     *LogprobsBlock `json:"logprobs"`
	Seed         *int64         `json:"seed,omitempty"`
}

// AnswerMessage is the assistant's message.
type AnswerMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatChunk is one event of a chat stream.
type ChatChunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Prompt  []PromptPart  `json:"prompt,omitempty"` // with echo, first chunk
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage"`
}

// ChunkChoice is one choice's part of a chunk. Logprobs is the number of the
// chunk's token, or OpenAI's object when the request asked in that form.
type ChunkChoice struct {
	Index        int     `json:"index"`
	Delta        Delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
	Logprobs     any     `json:"logprobs"`
	Seed         *int64  `json:"seed,omitempty"`
}

// Delta is new text.
type Delta struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	TokenID *int32 `json:"token_id,omitempty"`
}
