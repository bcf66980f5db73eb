package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/server/app"
	"athanor/server/config"
	"athanor/server/servertest"
)

// sentence is what the scripted engine says.
var sentence = []string{"Athanor", " is", " a", " furnace", "."}

// engines are the stand-ins of the transcripts that do not use the scripted
// one, by <tag>/<name> of the file.
var engines = map[string]engine.Generator{
	"chat/choices":              &enginetest.Mock{}, // draws words from the seed
	"chat/stream_breaks":        &enginetest.Mock{Tokens: sentence, FailAfter: 3, FailErr: engine.ErrUnavailable},
	"chat/stream_fails":         &enginetest.Mock{Tokens: sentence, FailAfter: 2},
	"chat/overloaded":           broken{engine.ErrOverloaded},
	"chat/unavailable":          broken{engine.ErrUnavailable},
	"chat/unicode":              &enginetest.Mock{Tokens: []string{"naïve", " 猫", " \U0001f525", "\u2028\"\\<&>"}},
	"completions/choices":       &enginetest.Mock{},
	"completions/stream_breaks": &enginetest.Mock{Tokens: sentence, FailAfter: 3, FailErr: engine.ErrUnavailable},
	"completions/overloaded":    broken{engine.ErrOverloaded},
	"completions/unavailable":   broken{engine.ErrUnavailable},
}

// broken is a Generator whose every request fails before its first event.
type broken struct{ err error }

var _ engine.Generator = broken{}

func (broken) Model() engine.ModelInfo { return new(enginetest.Mock).Model() }

func (b broken) Generate(context.Context, *engine.GenerateRequest, func(*engine.Event) error) error {
	return b.err
}

// with puts g in place of the workers.
func with(g engine.Generator) setting {
	return func(_ *config.Config, opt *app.Options) { opt.Generator = g }
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	servertest.Transcripts(t, "testdata", func(t *testing.T) servertest.World {
		g := engines[strings.TrimPrefix(t.Name(), "TestTranscripts/")]
		if g == nil {
			g = &enginetest.Mock{Tokens: sentence}
		}
		a := open(t, with(g))
		addOther(t, a)
		return servertest.World{Do: a.do, Clock: a.Clock, Vars: map[string]string{"KEY": a.Admin, "MODEL": app.DemoModel}}
	})
}

// TestHeaders checks what transcripts do not show: every response has an id of
// its own, which the log has too, and a stream tells proxies to let it through.
func TestHeaders(t *testing.T) {
	t.Parallel()
	a := open(t, with(&enginetest.Mock{Tokens: sentence, FailAfter: 3}))
	const chat = `{"model":"athanor/demo-3m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	requests := []struct {
		name, method, path, key, body string
		status                        int
		reset                         string // x-ratelimit-reset
	}{
		{"list", "GET", "/v1/models", a.Admin, "", 200, ""},
		{"no key", "GET", "/v1/models", "", "", 401, ""},
		{"no route", "GET", "/v1/nothing", a.Admin, "", 404, ""},
		{"no version", "GET", "/models", a.Admin, "", 404, ""},
		{"other method", "PUT", "/v1/models", a.Admin, "", 405, ""},
		{"probe", "GET", "/healthz", "", "", 200, ""},
		{"stream that fails", "POST", "/v1/chat/completions", a.Admin, chat, 200, "0"},
		{"inference without a key", "POST", "/v2/chat/completions", "", chat, 401, "0"},
		{"inference with a bad body", "POST", "/v1/completions", a.Admin, "{", 400, "0"},
		{"inference without a model", "POST", "/v1/completions", a.Admin, `{"model":"x","prompt":"y"}`, 404, "0"},
	}
	ids := map[string]bool{}
	for _, r := range requests {
		req, err := http.NewRequestWithContext(t.Context(), r.method, a.Base+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		if r.key != "" {
			req.Header.Set("Authorization", "Bearer "+r.key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		id := resp.Header.Get("X-Request-Id")
		if !strings.HasPrefix(id, "req-") || ids[id] {
			t.Errorf("%s: x-request-id is %q", r.name, id)
		}
		ids[id] = true
		if got := resp.Header.Get("X-Ratelimit-Reset"); resp.StatusCode != r.status || got != r.reset {
			t.Errorf("%s: got %d with x-ratelimit-reset %q, want %d with %q", r.name, resp.StatusCode, got, r.status, r.reset)
		}
		stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
		if stream && (resp.Header.Get("Cache-Control") != "no-cache" || resp.Header.Get("X-Accel-Buffering") != "no") {
			t.Errorf("%s: a proxy may hold the stream back: %v", r.name, resp.Header)
		}
	}
}
