package api_test

import (
	"encoding/json"
	"errors"
	"testing"

	"athanor/server/api"
)

type validator interface{ Validate() error }

// TestRefusals checks that each bad or unsupported parameter is a 400 that
// names it.
func TestRefusals(t *testing.T) {
	chat := func(extra string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hi"}]` + extra + `}`
	}
	tests := []struct{ name, body, param string }{
		{"fine", chat(``), ""},
		{"text parts", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`, ""},
		{"neutral tool fields", chat(`,"tool_choice":"auto","tools":[],"function_call":null,"response_format":{"type":"text"}`), ""},
		{"no model", `{"messages":[{"role":"user","content":"hi"}]}`, "model"},
		{"no messages", `{"model":"m","messages":[]}`, "messages"},
		{"role", `{"model":"m","messages":[{"role":"king","content":"hi"}]}`, "messages.0.role"},
		{"no content", `{"model":"m","messages":[{"role":"user"}]}`, "messages.0.content"},
		{"image", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages.0.content.0.image_url"},
		{"negative max_tokens", chat(`,"max_tokens":-1`), "max_tokens"},
		{"max_completion_tokens", chat(`,"max_completion_tokens":0`), "max_completion_tokens"},
		{"both limits", chat(`,"max_tokens":3,"max_completion_tokens":4`), "max_completion_tokens"},
		{"n", chat(`,"n":129`), "n"},
		{"temperature", chat(`,"temperature":2.5`), "temperature"},
		{"top_p", chat(`,"top_p":0`), "top_p"},
		{"top_k", chat(`,"top_k":-2`), "top_k"},
		{"min_p", chat(`,"min_p":1.5`), "min_p"},
		{"repetition_penalty", chat(`,"repetition_penalty":0`), "repetition_penalty"},
		{"presence_penalty", chat(`,"presence_penalty":-3`), "presence_penalty"},
		{"frequency_penalty", chat(`,"frequency_penalty":3`), "frequency_penalty"},
		{"empty stop", chat(`,"stop":["a",""]`), "stop.1"},
		{"logit_bias key", chat(`,"logit_bias":{"word":1}`), "logit_bias"},
		{"logit_bias twice", chat(`,"logit_bias":{"5":1,"05":2}`), "logit_bias"},
		{"logit_bias value", chat(`,"logit_bias":{"5":101}`), "logit_bias.5"},
		{"logprobs", chat(`,"logprobs":21`), "logprobs"},
		{"top_logprobs alone", chat(`,"top_logprobs":2`), "top_logprobs"},
		{"top_logprobs", chat(`,"logprobs":true,"top_logprobs":40`), "top_logprobs"},
		{"stream_options", chat(`,"stream_options":{"include_usage":true}`), "stream_options"},
		{"safety_model", chat(`,"safety_model":"guard"`), "safety_model"},
		{"context behaviour", chat(`,"context_length_exceeded_behavior":"cut"`), "context_length_exceeded_behavior"},
		{"tools", chat(`,"tools":[{"type":"function"}]`), "tools"},
		{"tool_choice", chat(`,"tool_choice":"required"`), "tool_choice"},
		{"functions", chat(`,"functions":[{"name":"f"}]`), "functions"},
		{"response_format", chat(`,"response_format":{"type":"json_object"}`), "response_format"},
		{"reasoning", chat(`,"reasoning":{"enabled":true}`), "reasoning"},
		{"reasoning_effort", chat(`,"reasoning_effort":"low"`), "reasoning_effort"},
		{"modalities", chat(`,"modalities":["text","audio"]`), "modalities"},
		{"prediction", chat(`,"prediction":{"type":"content"}`), "prediction"},
		{"web_search_options", chat(`,"web_search_options":{}`), "web_search_options"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkParam(t, tt.body, new(api.ChatRequest), tt.param) })
	}
	completions := []struct{ name, body, param string }{
		{"fine", `{"model":"m","prompt":["one"]}`, ""},
		{"no prompt", `{"model":"m"}`, "prompt"},
		{"best_of", `{"model":"m","prompt":"a","best_of":2}`, "best_of"},
		{"suffix", `{"model":"m","prompt":"a","suffix":"b"}`, "suffix"},
		{"response_format", `{"model":"m","prompt":"a","response_format":{"type":"regex"}}`, "response_format"},
	}
	for _, tt := range completions {
		t.Run("completion "+tt.name, func(t *testing.T) { checkParam(t, tt.body, new(api.CompletionRequest), tt.param) })
	}
}

func checkParam(t *testing.T, body string, req validator, want string) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), req); err != nil {
		t.Fatal(err)
	}
	err := req.Validate()
	if want == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Param == nil || *e.Param != want {
		t.Errorf("got %#v, want a refusal of %s", err, want)
	}
	if e != nil && e.Status != 400 && e.Status != 404 {
		t.Errorf("status %d", e.Status)
	}
}

func TestUnions(t *testing.T) {
	var stop api.StringList
	if err := json.Unmarshal([]byte(`"a"`), &stop); err != nil || len(stop) != 1 || stop[0] != "a" {
		t.Errorf("one stop string: %v, %v", stop, err)
	}
	if err := json.Unmarshal([]byte(`5`), &stop); err == nil {
		t.Error("a number is taken for a stop string")
	}
	var l api.Logprobs
	if err := json.Unmarshal([]byte(`true`), &l); err != nil || !l.OpenAI || l.Off {
		t.Errorf("boolean logprobs: %+v, %v", l, err)
	}
	if err := json.Unmarshal([]byte(`"x"`), &l); err == nil {
		t.Error("a string is taken for logprobs")
	}
	var c api.Content
	if err := json.Unmarshal([]byte(`[{"type":"text"}]`), &c); err == nil {
		t.Error("a text part without text is accepted")
	}
	two, err := json.Marshal(api.Models{Data: []api.Model{}})
	if err != nil || string(two) != "[]" {
		t.Errorf("bare list: %s, %v", two, err)
	}
}
