package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"athanor/engine/prompt/jinja"
)

// Input is what a template renders.
type Input struct {
	Messages []Message
	// Tools are JSON objects, given to the template with their order of keys;
	// nil where the request offers none.
	Tools               []json.RawMessage
	AddGenerationPrompt bool
	// Kwargs are further variables, from chat_template_kwargs. They can't
	// replace messages, tools or add_generation_prompt.
	Kwargs   map[string]json.RawMessage
	BOS, EOS string    // texts of the tokens, "" where the model has none
	Now      time.Time // for strftime_now
}

// Message is one chat message: a JSON object that keeps its order of keys. Make
// it with NewMessage. It is immutable and may be shared.
type Message struct {
	dict *jinja.Dict
	size int
}

// NewMessage reads a message from JSON. Fields that are not known are kept: the
// template decides what they mean.
func NewMessage(raw json.RawMessage) (Message, error) {
	v, err := jinja.DecodeJSON(raw)
	if err != nil {
		return Message{}, fmt.Errorf("message: %w", err)
	}
	dict, ok := v.(*jinja.Dict)
	if !ok {
		return Message{}, fmt.Errorf("message: expected a JSON object")
	}
	return Message{dict, len(raw)}, nil
}

// InputError names the part of an Input that can't be used.
type InputError struct {
	Param string // "tools[2]", "chat_template_kwargs.thinking", ...
	Err   error
}

func (e *InputError) Error() string { return e.Param + ": " + e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

// Rendered is a prompt in order, as segments of alternating provenance.
type Rendered struct {
	Segments []Segment
	// Generated are the ranges of bytes of the whole text that the template marks
	// as what the model says, with {% generation %} blocks, in order; nil where it
	// has none, or has them in places that cannot be told.
	Generated [][2]int
}

// Segment is a stretch of a prompt. Trusted text comes from the template and may
// hold special tokens; other text comes from the request and must not be able to
// make one, whatever it looks like.
type Segment struct {
	Text    string
	Trusted bool
}

// String returns the text of the whole prompt.
func (r Rendered) String() string {
	var b strings.Builder
	for _, s := range r.Segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Render renders a conversation. Errors are *InputError for JSON that can't be
// read, *TemplateError where the template refuses the conversation,
// *RuntimeError where it fails on it and *LimitError where it does too much.
func (t *Template) Render(in Input) (Rendered, error) {
	vars, size, err := in.vars()
	if err != nil {
		return Rendered{}, err
	}
	template := t.plain
	if t.tools != nil && in.Tools != nil {
		template = t.tools
	}
	var out Rendered
	opts := jinja.Options{Now: in.Now, Limits: jinja.DefaultLimits(len(in.Messages)+len(in.Tools), size)}
	opts.Generation = func(from, to int) { out.Generated = append(out.Generated, [2]int{from, to}) }
	text, err := template.Render(vars, opts)
	if failed := (*RuntimeError)(nil); in.Tools == nil && errors.As(err, &failed) {
		// transformers says None for tools that are not there. Templates made
		// for a server that leaves them out fail on that; meet those too.
		delete(vars, "tools")
		delete(vars, "documents")
		out.Generated = nil
		if again, err2 := template.Render(vars, opts); err2 == nil {
			text, err = again, nil
		}
	}
	if err != nil {
		return Rendered{}, err
	}
	for s, trusted := range text.Spans {
		out.Segments = append(out.Segments, Segment{s, trusted})
	}
	if slices.Contains(out.Generated, [2]int{-1, -1}) {
		out.Generated = nil
	}
	return out, nil
}

// vars makes the variables that transformers gives to a template; size is that
// of the JSON.
func (in *Input) vars() (vars map[string]jinja.Value, size int, err error) {
	messages := &jinja.List{}
	for i, m := range in.Messages {
		if m.dict == nil {
			return nil, 0, &InputError{fmt.Sprintf("messages[%d]", i), fmt.Errorf("not made by NewMessage")}
		}
		messages.Items = append(messages.Items, m.dict)
		size += m.size
	}
	var tools jinja.Value
	if in.Tools != nil {
		list := &jinja.List{}
		for i, raw := range in.Tools {
			v, err := jinja.DecodeJSON(raw)
			if err != nil {
				return nil, 0, &InputError{fmt.Sprintf("tools[%d]", i), err}
			}
			list.Items = append(list.Items, v)
			size += len(raw)
		}
		tools = list
	}
	vars = map[string]jinja.Value{
		"bos_token": jinja.Trusted(in.BOS),
		"eos_token": jinja.Trusted(in.EOS),
		"documents": nil,
	}
	for name, raw := range in.Kwargs {
		param := "chat_template_kwargs." + name
		if name == "messages" || name == "tools" || name == "add_generation_prompt" {
			return nil, 0, &InputError{param, fmt.Errorf("is set by the request itself")}
		}
		v, err := jinja.DecodeJSON(raw)
		if err != nil {
			return nil, 0, &InputError{param, err}
		}
		vars[name] = v
		size += len(raw)
	}
	vars["messages"] = messages
	vars["tools"] = tools
	vars["add_generation_prompt"] = in.AddGenerationPrompt
	return vars, size, nil
}
