package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"athanor/engine/prompt"
)

// line is a line of a JSONL file. Which fields are there says its format.
type line struct {
	Text         *string          `json:"text"`
	Messages     []jsontext.Value `json:"messages"`
	Prompt       *string          `json:"prompt"`
	Completion   *string          `json:"completion"`
	Input        *lineInput       `json:"input"`
	Preferred    []jsontext.Value `json:"preferred_output"`
	NonPreferred []jsontext.Value `json:"non_preferred_output"`
	Tools        []jsontext.Value `json:"tools"`
	Weight       *float64         `json:"weight"`
}

type lineInput struct {
	Messages []jsontext.Value `json:"messages"`
	Tools    []jsontext.Value `json:"tools"`
}

// Formats of a dataset, as in validation reports.
const (
	FormatText         = "general"
	FormatConversation = "conversation"
	FormatInstruction  = "instruction"
	FormatPreference   = "preference_openai"
	FormatTokens       = "tokenized" // Parquet
)

// maxWeight bounds the weight of a sample, as validation does, so that losses stay
// finite.
const maxWeight = 1e6

// parseLine reads a line. It checks what it needs; the whole rules are those of
// the validation before.
func parseLine(b []byte) (*line, string, error) {
	l := &line{}
	if err := jsonv2.Unmarshal(b, l); err != nil {
		return nil, "", fmt.Errorf("the line is not a valid sample: %w", err)
	}
	if l.Weight != nil && (math.IsNaN(*l.Weight) || *l.Weight < 0 || *l.Weight > maxWeight) {
		return nil, "", fmt.Errorf("`weight` must be between 0 and %g, not %g", maxWeight, *l.Weight)
	}
	switch {
	case l.Text != nil:
		return l, FormatText, nil
	case l.Messages != nil:
		return l, FormatConversation, nil
	case l.Prompt != nil && l.Completion != nil:
		return l, FormatInstruction, nil
	case l.Input != nil && len(l.Preferred) == 1 && len(l.NonPreferred) == 1:
		return l, FormatPreference, nil
	}
	return nil, "", errors.New("the line has the fields of no format")
}

// message is a message of a line.
type message struct {
	Role             string           `json:"role"`
	Content          jsontext.Value   `json:"content"`
	Name             string           `json:"name"`
	Weight           *float64         `json:"weight"`
	ReasoningContent *string          `json:"reasoning_content"`
	Reasoning        *string          `json:"reasoning"`
	ToolCalls        []jsontext.Value `json:"tool_calls"`
	ToolCallID       string           `json:"tool_call_id"`
}

// wireMessage is a message as templates get it in serving, in that order.
type wireMessage struct {
	Role             string           `json:"role"`
	Content          *string          `json:"content"`
	Name             string           `json:"name,omitempty"`
	ReasoningContent *string          `json:"reasoning_content,omitempty"`
	ToolCalls        []jsontext.Value `json:"tool_calls,omitempty"`
	ToolCallID       string           `json:"tool_call_id,omitempty"`
}

// turn is a message ready to be rendered.
type turn struct {
	role   string
	weight float64 // 1 where the message has none
	// The arguments of tool calls as an object, as most templates take them, and
	// as they stand, which is text; the same without tool calls.
	object, text prompt.Message
}

// readTurns reads the messages of a conversation; place names them in errors.
func readTurns(list []jsontext.Value, place string) ([]turn, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("`%s` must hold at least one message", place)
	}
	turns := make([]turn, len(list))
	for i, raw := range list {
		var err error
		if turns[i], err = readTurn(raw); err != nil {
			return nil, fmt.Errorf("`%s[%d]`: %w", place, i, err)
		}
	}
	return turns, nil
}

func readTurn(raw jsontext.Value) (turn, error) {
	var m message
	if err := jsonv2.Unmarshal(raw, &m); err != nil {
		return turn{}, err
	}
	t := turn{role: m.Role, weight: 1}
	switch m.Role {
	case "system", "user", "assistant", "tool":
	default:
		return t, fmt.Errorf("the role %.40q is not known", m.Role)
	}
	if m.Weight != nil {
		if t.weight = *m.Weight; !(t.weight >= 0 && t.weight <= 1) {
			return t, fmt.Errorf("`weight` must be between 0 and 1, not %g", t.weight)
		}
	}
	content, err := contentText(m.Content)
	if err != nil {
		return t, err
	}
	w := wireMessage{Role: m.Role, Content: content, Name: m.Name, ReasoningContent: m.ReasoningContent, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID}
	if m.Reasoning != nil {
		w.ReasoningContent = m.Reasoning
	}
	if t.text, err = newMessage(&w); err != nil {
		return t, err
	}
	t.object = t.text
	if len(m.ToolCalls) > 0 {
		if w.ToolCalls, err = parseArguments(m.ToolCalls); err == nil {
			t.object, err = newMessage(&w)
		}
	}
	return t, err
}

func newMessage(w *wireMessage) (prompt.Message, error) {
	raw, err := jsonv2.Marshal(w)
	if err != nil {
		return prompt.Message{}, err
	}
	return prompt.NewMessage(json.RawMessage(raw))
}

// contentText joins the parts of a content as serving does.
func contentText(raw jsontext.Value) (*string, error) {
	var s string
	switch raw.Kind() {
	case 0, 'n':
		return nil, nil
	case '"':
		err := jsonv2.Unmarshal(raw, &s)
		return &s, err
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := jsonv2.Unmarshal(raw, &parts); err != nil {
		return nil, errors.New("`content` must be a string or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return nil, fmt.Errorf("`content` has a part of the type %.40q: only text can be trained on", p.Type)
		}
		b.WriteString(*p.Text)
	}
	s = b.String()
	return &s, nil
}

// parseArguments turns the arguments of tool calls that are text with a JSON
// object into that object.
func parseArguments(calls []jsontext.Value) ([]jsontext.Value, error) {
	out := make([]jsontext.Value, len(calls))
	for i, raw := range calls {
		var call map[string]jsontext.Value
		if err := jsonv2.Unmarshal(raw, &call); err != nil {
			return nil, fmt.Errorf("`tool_calls[%d]`: %w", i, err)
		}
		out[i] = raw
		var function map[string]jsontext.Value
		var text string
		if jsonv2.Unmarshal(call["function"], &function) != nil || jsonv2.Unmarshal(function["arguments"], &text) != nil {
			continue
		}
		if args := jsontext.Value(text); args.Kind() == '{' && args.IsValid() {
			function["arguments"] = args
			changed, err := jsonv2.Marshal(function, jsonv2.Deterministic(true))
			if err != nil {
				return nil, err
			}
			call["function"] = changed
			if out[i], err = jsonv2.Marshal(call, jsonv2.Deterministic(true)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
