package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"athanor/server/api"
)

type decoded struct {
	Text    string            `json:"text"`
	Number  *float64          `json:"number"`
	Count   uint16            `json:"count"`
	When    time.Time         `json:"when"`
	Labels  map[string]string `json:"labels"`
	Choice  choice            `json:"choice"`
	Raw     json.RawMessage   `json:"raw"`
	Message []struct {
		Role  string `json:"role"`
		Parts partly `json:"parts"`
	} `json:"messages"`
}

// choice reads JSON by itself.
type choice string

func (c *choice) UnmarshalJSON(b []byte) error {
	if string(b) != `"auto"` && string(b) != `"none"` {
		return errors.New(`must be "auto" or "none"`)
	}
	*c = choice(strings.Trim(string(b), `"`))
	return nil
}

// partly reports errors of its own with a path inside itself.
type partly struct{}

func (*partly) UnmarshalJSON([]byte) error { return api.Invalid("1.url", "no url").WithCode("bad_url") }

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ body, param, message string }{
		{`{"count":-1}`, "count", "count must be a non-negative integer, got -1"},
		{`{"count":70000}`, "count", "count is out of range"},
		{`{"count":"7"}`, "count", "count must be a non-negative integer, got a string"},
		{`{"number":[]}`, "number", "number must be a number, got an array"},
		{`{"when":"soon"}`, "when", "when must be an RFC 3339 time"},
		{`{"labels":[1]}`, "labels", "labels must be an object, got an array"},
		{`{"labels":{"a.b":1}}`, "labels.a.b", "labels.a.b must be a string, got a number"},
		{`{"messages":{}}`, "messages", "messages must be an array, got an object"},
		{`{"messages":[{"role":"u"},{"role":[]}]}`, "messages.1.role", "messages.1.role must be a string, got an array"},
		{`{"messages":[{"role":{"a":{}}}]}`, "messages.0.role", "got an object"},
		{`{"choice":"all"}`, "choice", `choice must be "auto" or "none"`},
		{`{"messages":[{"parts":[]}]}`, "messages.0.parts.1.url", "no url"},
		{`{"raw":{"a":1,"a":2}}`, "raw.a", "raw.a is given twice"},
		{`{"text":"\ud800"}`, "text", "not valid JSON at byte"},
		{`{"text":tru}`, "text", "not valid JSON at byte"},
		{`{"text":"a",}`, "", "not valid JSON at byte"},
	}
	for _, tt := range tests {
		err := decode([]byte(tt.body), new(decoded), false)
		var e *api.Error
		if !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("%s: got %v", tt.body, err)
			continue
		}
		param := ""
		if e.Param != nil {
			param = *e.Param
		}
		if param != tt.param || !strings.Contains(e.Message, tt.message) {
			t.Errorf("%s: got %q, param %q", tt.body, e.Message, param)
		}
	}
}

func TestDecodeReads(t *testing.T) {
	t.Parallel()
	var d decoded
	err := decode([]byte(` {"text":"é\n","number":null,"count":7,"choice":"auto","raw":{"x":[1]},"TEXT":"ignored","messages":[]} `), &d, false)
	if got := fmt.Sprint(d.Text, d.Number, d.Count, d.Choice, string(d.Raw)); err != nil || got != "é\n <nil> 7auto"+`{"x":[1]}` && got != fmt.Sprint("é\n", d.Number, 7, choice("auto"), `{"x":[1]}`) {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"text":"x","number":1e5}`, `{"messages":[{"role":1}]}`, `[[[`, "{\"text\":\"\xff\"}", `{"raw":{"a":1,"a":2}}`, `null`} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, strict bool) {
		var d decoded
		err := decode(body, &d, strict)
		if err == nil {
			if !json.Valid(body) || !utf8.ValidString(d.Text) {
				t.Errorf("accepted %q", body)
			}
			return
		}
		var e *api.Error
		if !errors.As(err, &e) || e.Status != 400 || e.Message == "" {
			t.Fatalf("got %v for %q", err, body)
		}
		if _, err := encode(errorBody{e}); err != nil {
			t.Errorf("the error cannot be shown: %v", err)
		}
	})
}
