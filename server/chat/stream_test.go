package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/server/api"
)

// TestChatStream checks that each chunk has what clients of either kind read:
// role in every delta, the finish reason once, usage on the last chunk with a
// choice and, when asked for, alone on one more.
func TestChatStream(t *testing.T) {
	var got []string
	send := func(v any) error {
		data, err := json.Marshal(v)
		got = append(got, string(data))
		return err
	}
	request := &api.ChatRequest{GenerationParams: api.GenerationParams{Model: "m", StreamOptions: &api.StreamOptions{IncludeUsage: true}}}
	s := &chatStream{request: request, id: "x", created: 5, tail: tail[api.ChatChunk]{send: send}}
	events := []*engine.Event{
		{Prompt: &engine.PromptEvent{Tokens: 3}},
		{Text: "He", Tokens: []engine.Token{{ID: 7, Text: "He"}}},
		{Tokens: []engine.Token{{ID: 8}}}, // half a character: nothing to show
		{Choice: 1, Finish: engine.FinishStop},
		{Text: "y", Finish: engine.FinishLength, Tokens: []engine.Token{{ID: 9, Text: "y"}}},
		{Usage: &engine.Usage{PromptTokens: 3, CompletionTokens: 4}},
	}
	for _, ev := range events {
		if err := s.add(ev); err != nil {
			t.Fatal(err)
		}
	}
	head := `{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":`
	want := []string{
		head + `[{"index":0,"delta":{"role":"assistant","content":"He","token_id":7},"finish_reason":null,"logprobs":null}],"usage":null}`,
		head + `[{"index":1,"delta":{"role":"assistant","content":""},"finish_reason":"stop","logprobs":null}],"usage":null}`,
		head + `[{"index":0,"delta":{"role":"assistant","content":"y","token_id":9},"finish_reason":"length","logprobs":null}],` +
			`"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`,
		head + `[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestChatStreamWithoutLogprobs checks that "logprobs": false is the same as its
// absence: no chunk for a token that shows nothing, no log-probabilities.
func TestChatStreamWithoutLogprobs(t *testing.T) {
	var sent []*api.ChatChunk
	send := func(v any) error { sent = append(sent, v.(*api.ChatChunk)); return nil }
	request := &api.ChatRequest{GenerationParams: api.GenerationParams{Logprobs: &api.Logprobs{OpenAI: true, Off: true}}}
	s := &chatStream{request: request, tail: tail[api.ChatChunk]{send: send}}
	lp := -0.5
	for _, ev := range []*engine.Event{
		{Tokens: []engine.Token{{ID: 1, Logprob: &lp}}},
		{Text: "a", Tokens: []engine.Token{{ID: 2, Logprob: &lp}}},
		{Finish: engine.FinishStop},
		{Usage: &engine.Usage{}},
	} {
		if err := s.add(ev); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) != 2 || sent[0].Choices[0].Delta.Content != "a" || sent[0].Choices[0].Logprobs != nil {
		t.Errorf("got %d chunks, the first %+v", len(sent), sent[0])
	}
}

func TestLogprobsBlock(t *testing.T) {
	lp, low := -0.5, -2.0
	b := block([]engine.Token{
		{ID: 1, Text: "<s>", Bytes: []byte("<s>")},
		{ID: 2, Text: "a", Bytes: []byte("a"), Logprob: &lp, Top: []engine.TopLogprob{{ID: 2, Text: "a", Logprob: lp}, {ID: 3, Text: "b", Logprob: low}}},
	})
	if len(b.Tokens) != 2 || len(b.TokenLogprobs) != 2 || len(b.TopLogprobs) != 2 || len(b.Content) != 2 {
		t.Fatalf("the lists are not parallel: %+v", b)
	}
	if b.TokenLogprobs[0] != nil || *b.TokenLogprobs[1] != lp {
		t.Errorf("token_logprobs: got %v", b.TokenLogprobs)
	}
	if b.TopLogprobs[1]["b"] != low || len(b.TopLogprobs[0]) != 0 {
		t.Errorf("top_logprobs: got %v", b.TopLogprobs)
	}
	if got := b.Content[1].TopLogprobs; len(got) != 2 || got[1].Token != "b" {
		t.Errorf("content: got %+v", got)
	}
}
