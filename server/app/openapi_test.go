package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"athanor/engine/enginetest"
)

// beyond are the public operations that the description does not have, each
// with the reason why they are served.
var beyond = map[string]string{
	"GET /models/*id":               "OpenAI clients retrieve a model by name",
	"GET /projects":                 "the Python client lists projects; the description is older",
	"POST /api-keys":                "keys are made in a console elsewhere; an appliance needs an operation",
	"GET /api-keys":                 "as above",
	"PATCH /api-keys/:id":           "as above",
	"POST /api-keys/:id/regenerate": "as above",
	"DELETE /api-keys/:id":          "as above",

	"POST /files":                                   "the clients' own path, and the one of OpenAI clients",
	"PUT /files/:id/data":                           "where the redirect of POST /files leads",
	"POST /files/:id/preprocess":                    "the Python client asks for the file in this way",
	"POST /files/multipart/initiate":                "the Python client sends large files in parts",
	"GET /files/multipart/:upload_id":               "an upload that broke off can go on",
	"POST /files/multipart/complete":                "as above",
	"POST /files/multipart/abort":                   "as above",
	"PUT /files/multipart/:upload_id/parts/:number": "where the parts go",

	"GET /fine-tunes/lineage":                       "what a model was made of, and whether the bytes are still those",
	"GET /fine-tunes/:id/tokenized-dataset.tar.zst": "where the link of download-tokenized-dataset leads",
}

// deviation is a place where a response differs from the description on purpose.
type deviation struct {
	name  string
	place *regexp.Regexp          // operation, "#chunk" for events, and pointer into the body
	as    func(v any) (any, bool) // what the description would have; false where v does not deviate
	why   string
}

// deviations are all of them. One that no response shows is an error, so that
// the list stays true.
var deviations = []deviation{
	{
		"a map per token", regexp.MustCompile(`logprobs/top_logprobs$`), mergeMaps,
		"the service really answers with a list of maps, and the clients do not check; the description has one map",
	}, {
		"first token", regexp.MustCompile(`/prompt/0/logprobs/token_logprobs/0$`), nullAsZero,
		"the first token of a prompt follows nothing: there is no log-probability to give, and clients know null there",
	}, {
		"OpenAI's object", regexp.MustCompile(`^/chat/completions#chunk/choices/\d+/logprobs$`), objectAsNumber,
		"asked for with a boolean, as OpenAI clients do, each event has their object; a number asks for the description's form",
	}, {
		"automatic inputs", regexp.MustCompile(`training_method/train_on_inputs$`), autoAsBoolean,
		"the description has both forms as alternatives and the boolean for both at once, so nothing but a boolean fits it",
	}, {
		"cosine", regexp.MustCompile(`lr_scheduler/lr_scheduler_args$`), withoutCycles,
		"the description wants exactly one of two schemas to fit, and what fits the one of cosine fits the one of linear as well",
	},
}

func autoAsBoolean(v any) (any, bool) { return true, v == "auto" }

func withoutCycles(v any) (any, bool) {
	m, _ := v.(map[string]any)
	_, ok := m["num_cycles"]
	return map[string]any{"min_lr_ratio": m["min_lr_ratio"]}, ok
}

func mergeMaps(v any) (any, bool) {
	list, ok := v.([]any)
	merged := map[string]any{}
	for _, item := range list {
		m, isMap := item.(map[string]any)
		ok = ok && isMap
		maps.Copy(merged, m)
	}
	return merged, ok
}

func nullAsZero(v any) (any, bool) { return 0.0, v == nil }

func objectAsNumber(v any) (any, bool) {
	m, _ := v.(map[string]any)
	list, _ := m["token_logprobs"].([]any)
	if len(list) == 0 {
		return nil, false
	}
	return list[0], true
}

// description loads the public description once.
var description = sync.OnceValues(func() (*openapi3.T, error) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "api", "openapi-2026-08-19.yaml"))
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	return modern(doc)
})

// modern says in the words of version 3.1, which the description claims to be,
// what it says with the older word "nullable", and loads it again.
func modern(doc *openapi3.T) (*openapi3.T, error) {
	data, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(nullable(tree)); err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(data)
}

// nullable rewrites each schema that is nullable, itself or in one part of its
// allOf, as a choice between the rest and null.
func nullable(node any) any {
	switch n := node.(type) {
	case []any:
		for i := range n {
			n[i] = nullable(n[i])
		}
	case map[string]any:
		allowed := n["nullable"] == true
		delete(n, "nullable")
		if parts, ok := n["allOf"].([]any); ok {
			for _, p := range parts {
				part, _ := p.(map[string]any)
				allowed = allowed || part["nullable"] == true
				delete(part, "nullable")
			}
		}
		for k := range n {
			n[k] = nullable(n[k])
		}
		if allowed {
			return map[string]any{"anyOf": []any{n, map[string]any{"type": "null"}}}
		}
	}
	return node
}

func loadDescription(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := description()
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no public description: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestTableAgainstDescription compares what is served with the description by
// method and path.
func TestTableAgainstDescription(t *testing.T) {
	t.Parallel()
	doc := loadDescription(t)
	described := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described[method+" "+regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, ":")] = true
		}
	}
	if len(described) < 150 {
		t.Fatalf("the description has only %d operations", len(described))
	}
	served := map[string]bool{}
	for _, op := range open(t).Ops() {
		served[op.Name()] = true
		name := regexp.MustCompile(`[:*][a-zA-Z]+`).ReplaceAllString(op.Name(), ":")
		if why := beyond[op.Name()]; described[name] == (why != "") {
			t.Errorf("%s: in the description: %v, in the list of what is beyond it: %q", op.Name(), described[name], why)
		}
	}
	for name := range beyond {
		if !served[name] {
			t.Errorf("%s is in the list of what is beyond the description and is not served", name)
		}
	}
}

// contract checks responses against the description.
type contract struct {
	doc      *openapi3.T
	a        *appliance
	seen     map[string]bool // operations with a checked success
	deviated map[string]bool
}

// call is one request whose response is checked.
type call struct {
	method, path, body string
	key                string
	status             int
}

func TestResponsesAgainstDescription(t *testing.T) {
	t.Parallel()
	doc := loadDescription(t)
	c := &contract{doc: doc, seen: map[string]bool{}, deviated: map[string]bool{}}
	c.a = open(t, with(&enginetest.Mock{Tokens: sentence}), training(thirdStays()))
	addOther(t, c.a)
	for _, r := range successes(c.a.Admin) {
		c.check(t, r)
	}
	c.files(t)
	c.fineTunes(t)
	for _, op := range c.a.Ops() {
		if beyond[op.Name()] == "" && !c.seen[op.Name()] {
			t.Errorf("no response of %s was checked", op.Name())
		}
	}
	for _, r := range failures(c.a.Admin) {
		c.check(t, r)
	}
	for _, d := range deviations {
		if !c.deviated[d.name] {
			t.Errorf("no response has this deviation any more: %s (%s)", d.name, d.why)
		}
	}
}

func successes(key string) []call {
	const (
		chat = `"model":"athanor/demo-3m","messages":[{"role":"user","content":"hello there"}]`
		text = `"model":"athanor/demo-3m","prompt":"hello there"`
	)
	calls := []call{
		{"GET", "/models", "", key, 200}, {"GET", "/models?dedicated=true", "", key, 200},
		{"GET", "/endpoints", "", key, 200}, {"GET", "/endpoints?type=dedicated", "", key, 200},
		{"GET", "/whoami", "", key, 200},
	}
	forms := []string{
		``, `,"n":3,"seed":1`, `,"logprobs":0`, `,"logprobs":5,"max_tokens":2`, `,"echo":true`, `,"echo":true,"logprobs":2`,
		`,"stop":["is"]`, `,"stream_options":null`,
	}
	for _, form := range forms {
		for _, stream := range []string{`}`, `,"stream":true}`, `,"stream":true,"stream_options":{"include_usage":true}}`} {
			if strings.Contains(form, "stream_options") && stream != `}` {
				continue
			}
			calls = append(calls,
				call{"POST", "/chat/completions", "{" + chat + form + stream, key, 200},
				call{"POST", "/completions", "{" + text + form + stream, key, 200})
		}
	}
	return append(calls,
		call{"POST", "/chat/completions", "{" + chat + `,"logprobs":true,"top_logprobs":2}`, key, 200},
		call{"POST", "/chat/completions", "{" + chat + `,"logprobs":true,"top_logprobs":2,"stream":true}`, key, 200})
}

func failures(key string) []call {
	return []call{
		{"GET", "/models", "", "", 401}, {"GET", "/models?dedicated=x", "", key, 400}, {"GET", "/whoami", "", "wrong", 401},
		{"POST", "/chat/completions", "{}", "", 401}, {"POST", "/chat/completions", "{}", key, 400},
		{"POST", "/chat/completions", `{"model":"x","messages":[{"role":"user","content":"y"}]}`, key, 404},
		{"POST", "/completions", "{}", "", 401}, {"POST", "/completions", "{", key, 400}, {"POST", "/completions", `{"model":"x","prompt":"y"}`, key, 404},
	}
}

// check sends one request and compares the response, event by event if it is a
// stream, with the schema of its status and content type.
func (c *contract) check(t *testing.T, r call) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, c.a.Base+"/v1"+r.path, strings.NewReader(r.body))
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
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	label := fmt.Sprintf("%s %s %s", r.method, r.path, r.body)
	if resp.StatusCode != r.status {
		t.Fatalf("%s: got %d %s, want %d", label, resp.StatusCode, body, r.status)
	}
	path, _, _ := strings.Cut(r.path, "?")
	schema, kind := c.schema(t, r.method, path, resp)
	if r.status == http.StatusOK {
		c.seen[r.method+" "+path] = true
	}
	if kind != "text/event-stream" {
		c.validate(t, path, label, schema, body)
		return
	}
	events := strings.Split(strings.TrimSpace(string(body)), "\n\n")
	if last := events[len(events)-1]; last != "data: [DONE]" {
		t.Errorf("%s: the last event is %q", label, last)
	}
	// The schema of a stream is one of an object {data: chunk} and the end mark.
	chunk := schema.OneOf[0].Value.Properties["data"].Value
	for _, e := range events[:len(events)-1] {
		c.validate(t, path+"#chunk", label, chunk, []byte(strings.TrimPrefix(e, "data: ")))
	}
}

func (c *contract) schema(t *testing.T, method, path string, resp *http.Response) (schema *openapi3.Schema, kind string) {
	t.Helper()
	kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
	op := c.doc.Paths.Find(path).GetOperation(method)
	described := op.Responses.Status(resp.StatusCode)
	if described == nil || described.Value.Content.Get(kind) == nil {
		t.Fatalf("%s %s: the description has no response %d of type %s", method, path, resp.StatusCode, kind)
	}
	return described.Value.Content.Get(kind).Schema.Value, kind
}

// validate reports every difference that is not a known deviation.
func (c *contract) validate(t *testing.T, at, label string, schema *openapi3.Schema, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%s: %v: %s", label, err, body)
		return
	}
	v = c.described(v, at)
	if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors()); err != nil {
		t.Errorf("%s: %v\nin %s", label, err, body)
	}
}

// described replaces the known deviations of a response by what the description
// would have.
func (c *contract) described(v any, at string) any {
	for _, d := range deviations {
		if !d.place.MatchString(at) {
			continue
		}
		if as, ok := d.as(v); ok {
			c.deviated[d.name] = true
			return as
		}
	}
	switch n := v.(type) {
	case []any:
		for i := range n {
			n[i] = c.described(n[i], fmt.Sprintf("%s/%d", at, i))
		}
	case map[string]any:
		for k := range n {
			n[k] = c.described(n[k], at+"/"+k)
		}
	}
	return v
}

// TestContractCanFail checks that the check sees what is wrong.
func TestContractCanFail(t *testing.T) {
	t.Parallel()
	doc := loadDescription(t)
	schemas := doc.Components.Schemas
	for name, wrong := range map[string]string{
		"ModelInfo":              `{"id":"x","object":"modell","created":1,"type":"chat"}`,
		"ChatCompletionChunk":    `{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"because"}]}`,
		"CompletionChunk":        `{"id":"x","token":{"id":1,"text":"a","logprob":null,"special":false},"choices":[],"usage":null,"finish_reason":null}`,
		"ChatCompletionResponse": `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[]}`,
		"ErrorData":              `{"error":"text"}`,
		"ListEndpoint":           `{"id":"x"}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(wrong), &v); err != nil {
			t.Fatal(err)
		}
		if schemas[name].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()) == nil {
			t.Errorf("%s passes for a %s", wrong, name)
		}
	}
}

// files checks the operations on files, whose requests are not JSON and whose
// paths have ids.
func (c *contract) files(t *testing.T) {
	t.Helper()
	f, ok, err := sendFile(c.a.Base, c.a.Admin, "fine-tune", trainingData(2))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	within(t, 10*time.Second, "the end of ingestion", func() bool { return fileOf(t, c.a.Base, c.a.Admin, f.ID).ValidationReport != nil })
	schema := func(method, path string) *openapi3.Schema {
		return c.doc.Paths.Find(path).GetOperation(method).Responses.Status(200).Value.Content.Get("application/json").Schema.Value
	}
	one, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	c.validate(t, "/files/upload", "POST /files/upload", schema("POST", "/files/upload"), one)
	for _, r := range []struct{ method, path, name, described string }{
		{"GET", "/files", "GET /files", "/files"}, {"GET", "/files/" + f.ID, "GET /files/:id", "/files/{id}"},
		{"GET", "/files/" + f.ID + "/content", "GET /files/:id/content", ""}, {"DELETE", "/files/" + f.ID, "DELETE /files/:id", "/files/{id}"},
	} {
		status, body := send(t, r.method, c.a.Base+"/v1"+r.path, c.a.Admin, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", r.name, status, body)
		}
		if r.described != "" {
			c.validate(t, r.described, r.name, schema(r.method, r.described), []byte(body))
		} else if body != trainingData(2) {
			t.Errorf("the content is %q", body)
		}
		c.seen[r.name] = true
	}
	c.seen["POST /files/upload"] = true
}
