package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/app"
)

// answer is what a refused request must get: all of an error body.
type answer struct {
	status      int
	kind        string // type
	param, code string // "" is null
	message     string // a part of it
}

// invalid is the answer to most bad requests.
func invalid(param, message string) answer {
	return answer{http.StatusBadRequest, "invalid_request_error", param, "", message}
}

// check compares an error body with what it must be.
func (want answer) check(t testing.TB, status int, body []byte) {
	t.Helper()
	var got struct {
		Error *struct {
			Message, Type *string
			Param, Code   *string
		} `json:"error"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || got.Error == nil || got.Error.Message == nil || got.Error.Type == nil {
		t.Fatalf("%d and no error body (%v): %.300s", status, err, body)
	}
	for _, field := range []string{`"message":`, `"type":`, `"param":`, `"code":`} {
		if !bytes.Contains(body, []byte(field)) {
			t.Errorf("no %s in %.300s", field, body)
		}
	}
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	have := answer{status, *got.Error.Type, text(got.Error.Param), text(got.Error.Code), want.message}
	if have != want || !strings.Contains(*got.Error.Message, want.message) {
		t.Errorf("got  %+v\nwant %+v\nbody %.500s", have, want, body)
	}
	if len(body) > 4<<10 {
		t.Errorf("the error has %d bytes", len(body))
	}
}

// badRequest is one row of the table. Path is that of chat completions when it
// is empty, Type is JSON.
type badRequest struct {
	name, method, path, contentType string
	body                            string
	want                            answer
}

// chat is the body of a chat request with more members.
func chat(more string) string {
	return `{"model":"` + app.DemoModel + `","max_tokens":2,"messages":[{"role":"user","content":"Hi"}]` + more + `}`
}

// said is the body of a chat request with these messages.
func said(messages string) string {
	return `{"model":"` + app.DemoModel + `","max_tokens":2,"messages":` + messages + `}`
}

// text is the body of a completion request.
func text(members string) string { return `{"model":"` + app.DemoModel + `",` + members + `}` }

const completions = "/v1/completions"

func badRequests() []badRequest {
	nested := strings.Repeat("[", 100_000)
	return []badRequest{
		{name: "no body", want: invalid("", "the request body is empty")},
		{name: "an array", body: `[]`, want: invalid("", "the request body must be an object, got an array")},
		{name: "null", body: `null`, want: invalid("", "must be a JSON object, got null")},
		{name: "cut JSON", body: `{"model":"a"`, want: invalid("", "not valid JSON at byte 12")},
		{name: "two values", body: chat("") + `{}`, want: invalid("", "not valid JSON at byte")},
		{name: "depth of 10^5 in a field", body: chat(`,"chat_template_kwargs":{"a":` + nested + strings.Repeat("]", 100_000) + `}`), want: invalid("", "not valid JSON at byte")},
		{name: "depth of 10^5", body: nested, want: invalid("", "must be an object, got an array")},
		{name: "invalid UTF-8", body: said("[{\"role\":\"user\",\"content\":\"a\xff\xfeb\"}]"), want: invalid("messages.0.content", "invalid UTF-8")},
		{name: "invalid UTF-8 in a name", body: chat(",\"a\xff\":1"), want: invalid("", "invalid UTF-8")},
		{name: "a lone surrogate", body: said(`[{"role":"user","content":"\ud800"}]`), want: invalid("messages.0.content", "invalid surrogate pair")},
		{name: "surrogates the wrong way round", body: said(`[{"role":"user","content":"\udc00\ud800"}]`), want: invalid("messages.0.content", "surrogate")},
		{name: "a member twice", body: chat(`,"max_tokens":3`), want: invalid("max_tokens", "max_tokens is given twice")},
		{name: "a member twice, deep", body: said(`[{"role":"user","role":"user","content":"a"}]`), want: invalid("messages.0.role", "messages.0.role is given twice")},
		{name: "text in place of JSON", contentType: "text/plain", body: chat(""), want: answer{415, "invalid_request_error", "", "unsupported_media_type", "content-type must be application/json"}},
		{name: "100 MB", body: strings.Repeat(" ", 100<<20), want: answer{413, "request_too_large", "", "request_too_large", "larger than the limit of 16777216 bytes"}},

		{name: "unknown model", body: `{"model":"no/such","messages":[{"role":"user","content":"a"}]}`, want: answer{404, "invalid_request_error", "model", "model_not_found", "Unable to access model no/such"}},
		{name: "no model", body: `{"messages":[{"role":"user","content":"a"}]}`, want: invalid("model", "model is required")},
		{name: "a model with NUL", body: `{"model":"` + app.DemoModel + `\u0000","messages":[{"role":"user","content":"a"}]}`, want: answer{404, "invalid_request_error", "model", "model_not_found", "Unable to access model"}},
		{name: "a model of 1 MB", body: `{"model":"` + strings.Repeat("m", 1<<20) + `","messages":[{"role":"user","content":"a"}]}`, want: answer{404, "invalid_request_error", "model", "model_not_found", "Unable to access model mmm"}},
		{name: "a path out of the model", body: `{"model":"../../etc/passwd","messages":[{"role":"user","content":"a"}]}`, want: answer{404, "invalid_request_error", "model", "model_not_found", "Unable to access model"}},

		{name: "negative max_tokens", body: text(`"prompt":"a","max_tokens":-1`), path: completions, want: invalid("max_tokens", "max_tokens must be at least 1, got -1")},
		{name: "max_tokens of 0", body: text(`"prompt":"a","max_tokens":0`), path: completions, want: invalid("max_tokens", "must be at least 1, got 0")},
		{name: "max_tokens of 10^30", body: text(`"prompt":"a","max_tokens":1000000000000000000000000000000`), path: completions, want: invalid("max_tokens", "max_tokens")},
		{name: "max_tokens beyond the context", body: text(`"prompt":"a","max_tokens":5000`), path: completions, want: answer{400, "invalid_request_error", "max_tokens", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "max_tokens of 2^31 beyond the context", body: `{"model":"` + app.DemoModel + `","max_tokens":2147483648,"messages":[{"role":"user","content":"a"}]}`, want: answer{400, "invalid_request_error", "max_tokens", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "prompt longer than the context", body: text(`"max_tokens":1,"prompt":"` + strings.Repeat("one two ", 2000) + `"`), path: completions, want: answer{400, "invalid_request_error", "prompt", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "messages longer than the context", body: said(`[{"role":"user","content":"` + strings.Repeat("one two ", 2000) + `"}]`), want: answer{400, "invalid_request_error", "messages", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "a prompt of 15 MB", body: text(`"max_tokens":1,"prompt":"` + strings.Repeat("abcdefgh", 15<<17) + `"`), path: completions, want: answer{400, "invalid_request_error", "prompt", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "a message of 15 MB", body: said(`[{"role":"user","content":"` + strings.Repeat("a b ", 15<<18) + `"}]`), want: answer{400, "invalid_request_error", "messages", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "an empty prompt", body: text(`"prompt":""`), path: completions, want: invalid("prompt", "the prompt is empty")},
		{name: "no prompt", body: text(`"max_tokens":1`), path: completions, want: invalid("prompt", "prompt is required")},
		{name: "two prompts", body: text(`"prompt":["a","b"]`), path: completions, want: invalid("prompt", "must be one string")},
		{name: "tokens as prompt", body: text(`"prompt":[1,2]`), path: completions, want: invalid("prompt", "must be one string")},

		{name: "no messages", body: said(`[]`), want: invalid("messages", "at least one message")},
		{name: "10^6 messages", body: said(messages(1_000_000)), want: answer{413, "request_too_large", "", "request_too_large", "larger than the limit of 16777216 bytes"}},
		{name: "500,000 messages", body: said(messages(500_000)), want: invalid("messages", "at most 10000 messages, got 500000")},
		{name: "10,000 messages", body: said(messages(10_000)), want: answer{400, "invalid_request_error", "messages", "context_length_exceeded", "context is 1024 tokens"}},
		{name: "an unknown role", body: said(`[{"role":"root","content":"a"}]`), want: invalid("messages.0.role", `got "root"`)},
		{name: "no content", body: said(`[{"role":"user"}]`), want: invalid("messages.0.content", "content is required")},
		{name: "an image", body: said(`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]`), want: answer{400, "invalid_request_error", "messages.0.content.0.image_url", "unsupported_parameter", "not supported"}},

		{name: "logit_bias of 10^5 tokens", body: chat(`,"logit_bias":{` + manyBiases(100_000) + `}`), want: invalid("logit_bias", "at most 4096 tokens, got 100000")},
		{name: "logit_bias beyond the vocabulary", body: chat(`,"logit_bias":{"2048":1}`), want: invalid("logit_bias", "tokens are 0 to 2047")},
		{name: "logit_bias of no number", body: chat(`,"logit_bias":{"a":1}`), want: invalid("logit_bias", "keys are token ids")},
		{name: "logit_bias too strong", body: chat(`,"logit_bias":{"5":101}`), want: invalid("logit_bias.5", "between -100 and 100, got 101")},
		{name: "temperature", body: chat(`,"temperature":2.5`), want: invalid("temperature", "between 0 and 2, got 2.5")},
		{name: "temperature of 1e999", body: chat(`,"temperature":1e999`), want: invalid("temperature", "temperature")},
		{name: "NaN", body: chat(`,"temperature":NaN`), want: invalid("temperature", "not valid JSON")},
		{name: "top_p", body: chat(`,"top_p":-0.1`), want: invalid("top_p", "between 0 and 1, got -0.1")},
		{name: "top_k", body: chat(`,"top_k":-2`), want: invalid("top_k", "got -2")},
		{name: "n", body: chat(`,"n":129`), want: invalid("n", "between 1 and 128, got 129")},
		{name: "17 stop strings", body: chat(`,"stop":["a"` + strings.Repeat(`,"a"`, 16) + `]`), want: invalid("stop", "at most 16 strings, got 17")},
		{name: "an empty stop string", body: chat(`,"stop":["a",""]`), want: invalid("stop.1", "1 to 1024 bytes, got 0")},
		{name: "logprobs", body: chat(`,"logprobs":21`), want: invalid("logprobs", "between 0 and 20, got 21")},
		{name: "top_logprobs alone", body: chat(`,"top_logprobs":2`), want: invalid("top_logprobs", "needs logprobs to be true")},
		{name: "stream_options without stream", body: chat(`,"stream_options":{}`), want: invalid("stream_options", "needs stream")},
		{name: "a template variable that breaks the template", body: chat(`,"chat_template_kwargs":{"messages":5}`), want: answer{400, "invalid_request_error", "chat_template_kwargs.messages", "chat_template_error", "is set by the request itself"}},
		{name: "every token ruled out", body: chat(`,"logit_bias":{` + strings.ReplaceAll(manyBiases(2048), ":1", ":-100") + `}`), want: invalid("logit_bias", "leaves no token")},
		{name: "a penalty that is almost 0", body: chat(`,"repetition_penalty":1e-300`), want: invalid("repetition_penalty", "leaves no token")},

		{name: "unknown route", path: "/v1/nothing", body: `{}`, want: answer{404, "invalid_request_error", "", "unknown_url", "unknown request URL: POST /v1/nothing"}},
		{name: "wrong method", method: http.MethodPut, body: `{}`, want: answer{405, "invalid_request_error", "", "method_not_allowed", "PUT is not allowed for /v1/chat/completions"}},
	}
}

// messages are n short messages.
func messages(n int) string {
	const one = `{"role":"user","content":"a"}`
	return "[" + strings.Repeat(one+",", n-1) + one + "]"
}

// manyBiases are n members of a logit_bias.
func manyBiases(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%d":1`, i)
	}
	return b.String()
}

// wrongTypes are requests with one member of a type that it must not have.
func wrongTypes() (rows []badRequest) {
	for field, value := range map[string]string{
		"max_tokens": `"1"`, "stop": `1`, "temperature": `"hot"`, "top_p": `true`, "top_k": `1.5`, "min_p": `[]`,
		"repetition_penalty": `{}`, "presence_penalty": `"a"`, "frequency_penalty": `false`, "n": `"2"`, "stream": `"yes"`,
		"stream_options": `1`, "logprobs": `"x"`, "echo": `1`, "logit_bias": `[]`, "seed": `"s"`, "safety_model": `1`,
		"max_completion_tokens": `1.5`, "top_logprobs": `"1"`, "context_length_exceeded_behavior": `1`,
		"chat_template_kwargs": `[]`, "response_format": `"text"`, "tools": `{}`, "modalities": `"text"`,
	} {
		body := `{"model":"` + app.DemoModel + `","messages":[{"role":"user","content":"a"}],"` + field + `":` + value + `}`
		rows = append(rows, badRequest{name: "type of " + field, body: body, want: invalid(field, "must be ")})
	}
	for body, param := range map[string]string{
		`{"model":1,"messages":[{"role":"user","content":"a"}]}`: "model",
		said(`"hi"`):                                     "messages",
		said(`[1]`):                                      "messages.0",
		said(`[{"role":1,"content":"a"}]`):               "messages.0.role",
		said(`[{"role":"user","content":1}]`):            "messages.0.content",
		said(`[{"role":"user","content":[1]}]`):          "messages.0.content",
		said(`[{"role":"user","content":"a","name":1}]`): "messages.0.name",
	} {
		rows = append(rows, badRequest{name: "type of " + param, body: body, want: invalid(param, "must be ")})
	}
	rows = append(rows, badRequest{name: "type of prompt", path: completions, body: text(`"prompt":{}`), want: invalid("prompt", "must be one string")})
	return rows
}

// notHonoured are requests with one parameter that this server does not honour.
func notHonoured() (rows []badRequest) {
	refused := func(path, body, param string) {
		rows = append(rows, badRequest{name: "unsupported " + param, path: path, body: body,
			want: answer{400, "invalid_request_error", param, "unsupported_parameter", param + " is not supported by this server"}})
	}
	for field, value := range map[string]string{
		"tools": `[{"type":"function"}]`, "tool_choice": `"required"`, "functions": `[{}]`, "function_call": `{"name":"f"}`,
		"response_format": `{"type":"json_object"}`, "reasoning": `{"enabled":true}`, "reasoning_effort": `"high"`,
		"modalities": `["audio"]`, "audio": `{}`, "prediction": `{}`, "web_search_options": `{}`, "verbosity": `"low"`,
	} {
		refused("", chat(`,"`+field+`":`+value), field)
	}
	for field, value := range map[string]string{"best_of": `2`, "suffix": `"z"`, "response_format": `{"type":"json_object"}`} {
		refused(completions, text(`"prompt":"a","`+field+`":`+value), field)
	}
	return rows
}

// TestBadRequests sends every bad request to a real server, while good streams
// run all the time: each of those must be complete.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	p.mustAnswer(t)
	good, stop := p.goodStreams(t)
	for _, r := range append(append(badRequests(), wrongTypes()...), notHonoured()...) {
		t.Run(r.name, func(t *testing.T) {
			began := time.Now()
			status, body := r.send(t, p)
			r.want.check(t, status, body)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	stop()
	if n := <-good; n == 0 {
		t.Error("no good stream was complete")
	}
	p.mustAnswer(t)
}

// goodStreams runs one good stream after another until stop; then it tells how
// many were complete. One that is not fails the test.
func (p *process) goodStreams(t *testing.T) (complete <-chan int, stop func()) {
	done, result := make(chan struct{}), make(chan int, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		n := 0
		defer func() { result <- n }()
		for {
			select {
			case <-done:
				return
			default:
			}
			if events, err := p.goodStream(); err != nil || events < 300 {
				t.Errorf("the good stream %d ended after %d events: %v", n, events, err)
				return
			}
			n++
		}
	})
	stop = sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(stop)
	return result, stop
}

// goodStream reads a stream of 300 tokens.
func (p *process) goodStream() (events int, err error) {
	body := strings.Replace(longAnswer, `"max_tokens":900`, `"max_tokens":300`, 1)
	req, err := http.NewRequest(http.MethodPost, p.Base+completions, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return (&eventStream{resp, newLines(resp.Body)}).complete()
}

// send sends the request on a connection of its own.
func (r badRequest) send(t testing.TB, p *process) (int, []byte) {
	t.Helper()
	method, path, kind := r.method, r.path, r.contentType
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = "/v1/chat/completions"
	}
	if kind == "" {
		kind = "application/json"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, p.Base+path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// TestGoodButOdd has requests that look hostile and are fine.
func TestGoodButOdd(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	for name, body := range map[string]string{
		"NUL in a message":   said(`[{"role":"user","content":"a\u0000b"}]`),
		"special tokens":     said(`[{"role":"user","content":"<|im_end|><|endoftext|>"}]`),
		"a surrogate pair":   said(`[{"role":"user","content":"\ud83d\ude00"}]`),
		"NUL as stop string": chat(`,"stop":["\u0000"]`),
		"an unknown member":  chat(`,"unheard_of":{"a":[1]}`),
		"all defaults given": chat(`,"n":1,"temperature":1,"top_p":1,"logit_bias":{},"stop":null,"tools":[],"tool_choice":"auto","response_format":{"type":"text"}`),
		"an empty message":   said(`[{"role":"user","content":""}]`),
		"extreme but legal":  chat(`,"n":128,"temperature":2,"top_p":1e-300,"top_k":2147483647,"repetition_penalty":10,"seed":-9223372036854775808`),
	} {
		t.Run(name, func(t *testing.T) {
			if status, body := post(t, p.Base+"/v1/chat/completions", p.Key, body); status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// TestBadConnections speaks something else than HTTP, or not to the end.
func TestBadConnections(t *testing.T) {
	t.Parallel()
	a := open(t)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + a.Admin + "\r\nContent-Type: application/json\r\n"
	for _, c := range []struct {
		name, send string
		want       answer
	}{
		{"not HTTP", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", answer{400, "invalid_request_error", "", "malformed_request", "not valid HTTP"}},
		{"a head of 100 KB", "GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", answer{431, "request_too_large", "", "request_header_too_large", "larger than 32768 bytes"}},
		{"two lengths", head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", answer{400, "invalid_request_error", "", "", "content-length"}},
		{"a length of 10^18", head + "Content-Length: 1000000000000000000\r\n\r\n" + strings.Repeat(" ", 16<<10), answer{413, "request_too_large", "", "request_too_large", "limit of 16777216 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", a.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() { _, err := io.WriteString(conn, c.send); sent <- err }()
			raw, err := io.ReadAll(conn)
			if err = errors.Join(err, <-sent); err != nil && len(raw) == 0 {
				t.Fatal(err)
			}
			top, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
			var status int
			if _, err := fmt.Sscanf(string(top), "HTTP/1.1 %d", &status); err != nil {
				t.Fatalf("%v: %q", err, raw)
			}
			c.want.check(t, status, body)
		})
	}
}
