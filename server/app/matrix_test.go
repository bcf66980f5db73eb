package app_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"athanor/server/app"
	"athanor/server/identity"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/resource"
)

// access is who may call each operation. It repeats the tables on purpose: a
// route that is added or opened wider has to be written down here as well.
var access = map[string]rest.Access{
	"GET /whoami":                   rest.AnyKey,
	"GET /projects":                 rest.AnyKey,
	"POST /api-keys":                rest.AnyKey, // everyone manages keys of the own
	"GET /api-keys":                 rest.AnyKey,
	"PATCH /api-keys/:id":           rest.AnyKey,
	"POST /api-keys/:id/regenerate": rest.AnyKey,
	"DELETE /api-keys/:id":          rest.AnyKey,
	"GET /models":                   rest.AnyKey,
	"GET /models/*id":               rest.AnyKey,
	"GET /endpoints":                rest.AnyKey,

	"GET /files":                                    rest.AnyKey,
	"GET /files/:id":                                rest.AnyKey,
	"GET /files/:id/content":                        rest.AnyKey,
	"DELETE /files/:id":                             rest.ProjectEditor,
	"POST /files":                                   rest.ProjectEditor,
	"POST /files/upload":                            rest.ProjectEditor,
	"PUT /files/:id/data":                           rest.Signed, // clients send no key to the link
	"POST /files/:id/preprocess":                    rest.ProjectEditor,
	"POST /files/multipart/initiate":                rest.ProjectEditor,
	"GET /files/multipart/:upload_id":               rest.ProjectEditor,
	"POST /files/multipart/complete":                rest.ProjectEditor,
	"POST /files/multipart/abort":                   rest.ProjectEditor,
	"PUT /files/multipart/:upload_id/parts/:number": rest.Signed,

	"POST /fine-tunes":                 rest.ProjectEditor,
	"GET /fine-tunes":                  rest.AnyKey,
	"GET /fine-tunes/:id":              rest.AnyKey,
	"DELETE /fine-tunes/:id":           rest.ProjectEditor,
	"POST /fine-tunes/:id/cancel":      rest.ProjectEditor,
	"GET /fine-tunes/:id/events":       rest.AnyKey,
	"GET /fine-tunes/:id/checkpoints":  rest.AnyKey,
	"GET /fine-tunes/:id/metrics":      rest.AnyKey,
	"POST /fine-tunes/estimate-price":  rest.AnyKey,
	"POST /fine-tunes/preview":         rest.AnyKey,
	"GET /fine-tunes/lineage":          rest.AnyKey,
	"GET /fine-tunes/models/limits":    rest.AnyKey,
	"GET /fine-tunes/models/supported": rest.AnyKey,

	"GET /fine-tunes/:id/download-tokenized-dataset": rest.AnyKey,
	"GET /fine-tunes/:id/tokenized-dataset.tar.zst":  rest.Signed, // where the link leads
	"GET /finetune/download":                         rest.AnyKey,

	"POST /chat/completions":      rest.AnyKey,
	"POST /completions":           rest.AnyKey,
	"POST /admin/models/import":   rest.OrgAdmin, // only on the admin socket
	"GET /admin/models/directory": rest.OrgAdmin,
}

// adminOnly are the operations that the public API must not have.
var adminOnly = map[string]bool{"POST /admin/models/import": true, "GET /admin/models/directory": true}

// privateModel is a model of the default project alone.
const privateModel = "acme/private"

func TestEveryRouteHasItsAccess(t *testing.T) {
	t.Parallel()
	a := open(t)
	admin, err := a.AdminServer()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, op := range admin.Ops() {
		seen[op.Name()] = true
		want, known := access[op.Name()]
		if !known {
			t.Errorf("%s has no line in the table of access", op.Name())
		} else if op.Access.String() != want.String() {
			t.Errorf("%s asks for %s, want %s", op.Name(), op.Access, want)
		}
	}
	for name := range access {
		if !seen[name] {
			t.Errorf("%s is in the table of access and is not served", name)
		}
	}
	public := map[string]bool{}
	for _, op := range a.Ops() {
		public[op.Name()] = true
	}
	for name := range access {
		if public[name] == adminOnly[name] {
			t.Errorf("%s: in the public table: %v, only for the admin socket: %v", name, public[name], adminOnly[name])
		}
	}
}

func TestAccessOfEveryOperation(t *testing.T) {
	t.Parallel()
	a := open(t)
	m := newMatrix(t, a)
	m.Do, m.Ops = a.do, a.Ops()
	servertest.CheckAuthMatrix(t, m)
}

// TestAccessOfTheAdminTable checks what the admin socket would refuse if it
// asked for keys. It asks for none: who can open it is the owner of the data
// directory, which TestAdminSocket checks.
func TestAccessOfTheAdminTable(t *testing.T) {
	t.Parallel()
	a := open(t)
	server, err := a.AdminServer()
	if err != nil {
		t.Fatal(err)
	}
	m := newMatrix(t, a)
	m.Do, m.Ops = server.Test, server.Ops()
	servertest.CheckAuthMatrix(t, m)
}

// newMatrix makes the keys and things that the check needs.
func newMatrix(t *testing.T, a *appliance) servertest.Matrix {
	t.Helper()
	key := func(spec identity.KeySpec) (id, secret string) {
		t.Helper()
		spec.Name = "matrix"
		k, secret, err := a.Identity().CreateKey(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return string(k.ID), secret
	}
	soon := a.Kit.Now().Add(time.Minute)
	_, expired := key(identity.KeySpec{OrgRole: resource.OrgAdmin, ExpiresAt: &soon})
	a.Clock.Advance(time.Minute)
	id, revoked := key(identity.KeySpec{OrgRole: resource.OrgAdmin, Role: resource.ProjectAdmin})
	if status, body := send(t, "DELETE", a.Base+"/v1/api-keys/"+id, a.Admin, ""); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	mine, _ := key(identity.KeySpec{OrgRole: resource.OrgDeveloper})
	addOther(t, a)
	_, foreign := key(identity.KeySpec{ProjectID: "proj-other", OrgRole: resource.OrgDeveloper, Role: resource.ProjectAdmin})
	return servertest.Matrix{
		Expired: expired, Revoked: revoked, Foreign: foreign,
		Key: func(org, project string) string {
			_, secret := key(identity.KeySpec{OrgRole: resource.OrgRole(org), Role: resource.ProjectRole(project)})
			return secret
		},
		Existing: func(op rest.Op, _ string) string {
			switch op.Tag {
			case "identity":
				return mine
			case "models":
				return privateModel
			}
			return ""
		},
	}
}

// addOther lays down a second project, and a model of the first one only.
func addOther(t *testing.T, a *appliance) {
	t.Helper()
	err := a.DB().Update(t.Context(), func(tx *store.Tx) error {
		p := &resource.Project{
			ID: "proj-other", OrganizationID: "org-1", Name: "Other", Slug: "other",
			Visibility: resource.VisibilityPrivate, CreatedAt: a.Kit.Now(),
		}
		if err := store.Projects.Insert(tx, string(p.ID), p); err != nil {
			return err
		}
		m := &resource.Model{
			ID: "model-private", ProjectID: "proj-1", Name: privateModel, Type: resource.ModelChat, License: "mit",
			ContextLength: 128, EndpointID: "endpoint-private", CreatedAt: a.Kit.Now(),
		}
		return store.Models.Insert(tx, string(m.ID), m)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestModelOfAnotherProject checks every operation that names a model in its
// body, which the matrix cannot: a private model does not exist for others.
func TestModelOfAnotherProject(t *testing.T) {
	t.Parallel()
	a := open(t)
	foreign := newMatrix(t, a).Foreign
	bodies := map[string]string{
		"/chat/completions": `{"model":"acme/private","messages":[{"role":"user","content":"x"}]}`,
		"/completions":      `{"model":"acme/private","prompt":"x"}`,
	}
	for path, body := range bodies {
		if status, got := post(t, a.Base+"/v1"+path, a.Admin, body); status != http.StatusOK {
			t.Errorf("%s with a key of the project: got %d %s", path, status, got)
		}
		if status, got := post(t, a.Base+"/v1"+path, foreign, body); status != http.StatusNotFound || !strings.Contains(got, `"model_not_found"`) {
			t.Errorf("%s with a key of another project: got %d %s, want 404 model_not_found", path, status, got)
		}
	}
	for _, path := range []string{"/models", "/endpoints"} {
		if _, got := get(t, a.Base+"/v1"+path, a.Admin); !strings.Contains(got, privateModel) {
			t.Errorf("%s with a key of the project does not have the model: %s", path, got)
		}
		if _, got := get(t, a.Base+"/v1"+path, foreign); strings.Contains(got, privateModel) || !strings.Contains(got, app.DemoModel) {
			t.Errorf("%s with a key of another project: %s", path, got)
		}
	}
}

// TestAdminSocket checks that the socket, and the way to it, is closed to other
// users of the machine, and that its own operations are not public.
func TestAdminSocket(t *testing.T) {
	t.Parallel()
	a := open(t)
	stop, err := a.ServeAdmin()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		a.cfg.AdminSocket(): 0o600, a.cfg.Run(): 0o700, a.cfg.Data: 0o700, a.cfg.Database(): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	stop()
	if _, err := os.Stat(a.cfg.AdminSocket()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after its end: %v", err)
	}
	if status, body := post(t, a.Base+"/v1/admin/models/import", a.Admin, `{}`); status != http.StatusNotFound || !strings.Contains(body, "unknown_url") {
		t.Errorf("the public API has an operation of the socket: %d %s", status, body)
	}
}
