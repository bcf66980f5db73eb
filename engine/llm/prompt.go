package llm

import (
	"encoding/json"
	"errors"
	"fmt"

	"athanor/engine"
	"athanor/engine/prompt"
	"athanor/engine/token"
)

// encode turns the request's messages or prompt into tokens and the text that
// they were made from.
//
// Chat prompts come from the template, which writes its own special tokens;
// text of users can never become one. A plain prompt is the caller's own: the
// tokenizer adds what the model expects, and special tokens are recognised.
func (m *Model) encode(spec *engine.GenerateRequest) ([]int32, string, error) {
	if spec.Messages == nil {
		if err := m.hopeless("prompt", len(spec.Prompt)); err != nil {
			return nil, "", err
		}
		return m.tokenizer.Encode(spec.Prompt, token.EncodeOptions{AddSpecial: true, ParseSpecial: true}), spec.Prompt, nil
	}
	if m.template == nil {
		return nil, "", &engine.RequestError{Param: "model", Code: engine.CodeTemplate,
			Message: "the model has no chat template; use completions with a prompt"}
	}
	rendered, err := m.render(spec.Messages, spec.TemplateKwargs)
	if err != nil {
		return nil, "", err
	}
	size := 0
	for _, s := range rendered.Segments {
		size += len(s.Text)
	}
	if err := m.hopeless("messages", size); err != nil {
		return nil, "", err
	}
	segments := make([]token.Segment, len(rendered.Segments))
	for i, s := range rendered.Segments {
		segments[i] = token.Segment{Text: s.Text, Trusted: s.Trusted}
	}
	return m.tokenizer.EncodeSegments(segments, false), rendered.String(), nil
}

// answerStream decodes an answer. One to a plain prompt goes on in the middle of
// a text: decoders that drop the space before the first word of a text must have
// seen a word, or "Once upon" and " a" would become "Once upona".
func (m *Model) answerStream(r *request) *token.Stream {
	if r.spec.Messages != nil {
		return m.tokenizer.NewStream(true)
	}
	for _, id := range r.prompt[:min(len(r.prompt), maxPrimers)] {
		s, twin := m.tokenizer.NewStream(true), m.tokenizer.NewStream(true)
		twin.Push(id)
		if s.Push(id) != "" && twin.Flush() == "" { // a word, and nothing of it left for the answer
			return s
		}
	}
	return m.tokenizer.NewStream(true)
}

// maxPrimers is how many tokens of a prompt are tried: the first are often
// special ones, which have no text.
const maxPrimers = 16

// encodable is how much text is encoded in any case to count its tokens.
const encodable = 1 << 20

// hopeless refuses a text that cannot fit the context even if the model's
// longest token filled it twice (a tokenizer may drop some characters). Encoding
// megabytes takes seconds, and the answer would be the same.
func (m *Model) hopeless(param string, size int) error {
	if size <= encodable || size/2 <= m.longest*m.info.ContextLength {
		return nil
	}
	return &engine.RequestError{Param: param, Code: engine.CodeContextLength,
		Message: fmt.Sprintf("the prompt has %d bytes, more than %d tokens, but the model's context is %d tokens",
			size, size/2/m.longest, m.info.ContextLength)}
}

func (m *Model) render(messages []json.RawMessage, kwargs map[string]json.RawMessage) (prompt.Rendered, error) {
	in := prompt.Input{AddGenerationPrompt: true, Kwargs: kwargs, BOS: m.bosText, EOS: m.eosText, Now: m.now()}
	for i, raw := range messages {
		msg, err := prompt.NewMessage(raw)
		if err != nil {
			return prompt.Rendered{}, &engine.RequestError{Param: fmt.Sprintf("messages.%d", i), Message: err.Error()}
		}
		in.Messages = append(in.Messages, msg)
	}
	rendered, err := m.template.Render(in)
	if err != nil {
		return rendered, templateError(err)
	}
	return rendered, nil
}

// templateError says whose fault a failed rendering is: always the request's,
// for a template that fails on everything is refused with all requests.
func templateError(err error) error {
	var input *prompt.InputError
	var refused *prompt.TemplateError
	switch {
	case errors.As(err, &input):
		return &engine.RequestError{Param: input.Param, Code: engine.CodeTemplate, Message: input.Error()}
	case errors.As(err, &refused):
		return &engine.RequestError{Param: "messages", Code: engine.CodeTemplate,
			Message: "the model's chat template refuses these messages: " + refused.Error()}
	}
	return &engine.RequestError{Param: "messages", Code: engine.CodeTemplate,
		Message: "the model's chat template fails on these messages: " + err.Error()}
}
