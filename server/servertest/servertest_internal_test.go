package servertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/rest"
)

func TestMain(m *testing.M) { Main(m) }

// gate is an Authenticator with keys that say what they are:
// "live.<org>.<project>".
type gate struct{ letsAllIn bool }

var _ rest.Authenticator = gate{}

func (g gate) Authenticate(_ context.Context, key string) (*rest.Principal, error) {
	part := strings.Split(key, ".")
	if part[0] != "live" && !g.letsAllIn {
		return nil, api.Unauthorized("invalid_api_key", "no")
	}
	part = append(part, "", "")
	return &rest.Principal{OrgRole: part[1], ProjectRole: part[2]}, nil
}

type thing struct {
	ID string `path:"id" json:"-"`
}

type message struct {
	Text string    `json:"text"`
	At   time.Time `json:"at"`
}

func newServer(t *testing.T, g gate) (*rest.Server, *Clock) {
	t.Helper()
	k, clock := NewKit(t)
	get := func(ctx context.Context, r *thing) (*message, error) {
		if r.ID != "known" {
			return nil, api.NotFound("nothing")
		}
		return &message{"secret of " + rest.Caller(ctx).OrgRole, k.Now()}, nil
	}
	s, err := rest.New(rest.Config{Auth: g, Kit: k, Ops: []rest.Op{
		rest.Get("/things/:id", "things", rest.AnyKey, get),
		rest.Delete("/things/:id", "things", rest.ProjectAdmin, func(context.Context, *thing) (*rest.None, error) { return nil, nil }),
		rest.PostStream("/talk", "things", rest.AnyKey, func(_ context.Context, _ *rest.None, ev *rest.Events) (*message, error) {
			return nil, ev.Send(message{Text: "hello"})
		}, rest.Inference()),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, clock
}

func matrix(s *rest.Server) Matrix {
	return Matrix{
		Do: s.Test, Ops: s.Ops(), Expired: "expired", Revoked: "revoked", Foreign: "live.developer.admin",
		Key:      func(org, project string) string { return "live." + org + "." + project },
		Existing: func(rest.Op, string) string { return "" },
	}
}

func TestMatrixOfASoundServer(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, gate{})
	CheckAuthMatrix(t, matrix(s))
}

func TestMatrixFindsProblems(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, gate{letsAllIn: true})
	m := matrix(s)
	m.Existing = func(rest.Op, string) string { return "known" }
	keys := make([]string, len(roles))
	for i, r := range roles {
		keys[i] = m.Key(r.org, r.project)
	}
	var all []string
	for _, op := range m.Ops {
		lie := op
		lie.Access = rest.OrgAdmin // the server asks for less than the table says
		lie.Inference = !op.Inference
		problems, err := m.check(t.Context(), lie, "/v1", keys)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, problems...)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{
		"bad key: got", "expired: got", "revoked: got", "want 401 invalid_api_key",
		`organization "developer", project "": got 404 not_found, allowed: false`,
		"key of another project on /things/known: got 200", "x-ratelimit-reset",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not among the problems:\n%s", want, text)
		}
	}
}

const played = `# A note.
GET /v1/things/known
Authorization: Bearer $KEY
---
200
content-type: application/json

{
  "text": "secret of admin",
  "at": "2026-01-02T03:04:05Z"
}

===
+ 90m
$SEEN = text
DELETE /v1/things/$SEEN
Authorization: Bearer $KEY
---
403
content-type: application/json

{
  "error": {
    "message": "this key may not do that: the role of project admin is needed",
    "type": "permission_error",
    "param": null,
    "code": null
  }
}

===
GET /v1/things/known
Authorization: Bearer $OTHER
---
200
content-type: application/json

{
  "text": "$SEEN",
  "at": "2026-01-02T04:34:05Z"
}

===
POST /v1/talk
Authorization: Bearer $KEY

{"stream": true}
---
200
content-type: text/event-stream; charset=utf-8
x-ratelimit-reset: 0

data: {"text":"hello","at":"0001-01-01T00:00:00Z"}

data: [DONE]
`

func TestPlay(t *testing.T) {
	t.Parallel()
	s, clock := newServer(t, gate{})
	w := World{Do: s.Test, Clock: clock, Vars: map[string]string{"KEY": "live.nobody.nothing", "OTHER": "live.admin"}}
	text := strings.Replace(played, "$KEY", "$OTHER", 1)
	text = strings.Replace(text, "things/$SEEN", "things/x", 1)
	out, differences, err := play(t.Context(), text, w)
	if err != nil || out != text || len(differences) > 0 {
		t.Errorf("got %v, %q, wrote:\n%s", err, differences, out)
	}

	s, clock = newServer(t, gate{})
	w.Do, w.Clock = s.Test, clock
	wrong := strings.Replace(text, `"hello"`, `"bye"`, 1)
	out, differences, err = play(t.Context(), wrong, w)
	if err != nil || out != text || len(differences) != 1 || !strings.Contains(differences[0], "exchange 4: POST /v1/talk") {
		t.Errorf("got %v, %q, wrote:\n%s", err, differences, out)
	}
}

func TestPlayRefuses(t *testing.T) {
	t.Parallel()
	s, clock := newServer(t, gate{})
	w := World{Do: s.Test, Clock: clock}
	for text, want := range map[string]string{
		"GET /x\n":                   "no line ---",
		"# only a note\n---\n200":    "no request",
		"+ soon\nGET /x\n---\n":      "invalid duration",
		"$A\nGET /x\n---\n":          "neither a step",
		"$A = x\nGET /x\n---\n":      "not JSON",
		"GET /x\nnonsense\n---\n200": "is no header",
		"GET /healthz\n---\n200\n\n===\n$A = no.such\nGET /x\n---\n": "no string there",
	} {
		if _, _, err := play(t.Context(), text, w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
