package identity_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"athanor/server/identity"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// world is an appliance after its first start, with a second project.
type world struct {
	*identity.Service
	db     *store.DB
	kit    kit.Kit
	clock  *servertest.Clock
	server *rest.Server
	admin  string // the first key
}

func newWorld(t *testing.T) *world {
	t.Helper()
	k, clock := servertest.NewKit(t)
	w := &world{db: storetest.Open(t), kit: k, clock: clock}
	var seed [32]byte
	w.Service = identity.New(k, w.db, identity.Random(rand.NewChaCha8(seed)))
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	created, key, err := w.Bootstrap(t.Context())
	if err != nil || !created {
		t.Fatalf("first start: %v, %v", created, err)
	}
	w.admin = key
	err = w.db.Update(t.Context(), func(tx *store.Tx) error {
		p := &resource.Project{ID: "proj-other", OrganizationID: "org-1", Name: "Other", Slug: "other", Visibility: resource.VisibilityPrivate, CreatedAt: k.Now().Add(time.Hour)}
		return store.Projects.Insert(tx, string(p.ID), p)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.server, err = rest.New(rest.Config{Ops: w.Ops(), Auth: w.Service, Kit: k})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// key makes a key of the default project for the user.
func (w *world) key(t *testing.T, name, user string, org resource.OrgRole, project resource.ProjectRole) (id, secret string) {
	t.Helper()
	k, secret, err := w.CreateKey(t.Context(), identity.KeySpec{Name: name, UserID: resource.UserID(user), OrgRole: org, Role: project})
	if err != nil {
		t.Fatal(err)
	}
	return string(k.ID), secret
}

func (w *world) foreign(t *testing.T) (secret string) {
	t.Helper()
	_, secret, err := w.CreateKey(t.Context(), identity.KeySpec{
		Name: "foreign", ProjectID: "proj-other", OrgRole: resource.OrgDeveloper, Role: resource.ProjectAdmin,
	})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// status sends a request and returns the status of its response.
func (w *world) status(t *testing.T, key, method, path, body string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, "http://athanor/v1"+path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := w.server.Test(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	servertest.Transcripts(t, "testdata", func(t *testing.T) servertest.World {
		w := newWorld(t)
		_, editor := w.key(t, "editor", "user-2", resource.OrgDeveloper, resource.ProjectEditor)
		_, developer := w.key(t, "developer", "user-3", resource.OrgDeveloper, "")
		return servertest.World{
			Do: w.server.Test, Clock: w.clock,
			Vars: map[string]string{"ADMIN": w.admin, "EDITOR": editor, "DEVELOPER": developer, "FOREIGN": w.foreign(t)},
		}
	})
}

func TestAccessOfEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	past := w.kit.Now().Add(time.Minute)
	_, expired, err := w.CreateKey(t.Context(), identity.KeySpec{Name: "expired", OrgRole: resource.OrgAdmin, ExpiresAt: &past})
	if err != nil {
		t.Fatal(err)
	}
	id, revoked := w.key(t, "revoked", "", resource.OrgAdmin, resource.ProjectAdmin)
	if got := w.status(t, w.admin, "DELETE", "/api-keys/"+id, ""); got != http.StatusNoContent {
		t.Fatalf("revoke: got %d", got)
	}
	w.clock.Advance(time.Minute)
	servertest.CheckAuthMatrix(t, servertest.Matrix{
		Do: w.server.Test, Ops: w.server.Ops(), Expired: expired, Revoked: revoked, Foreign: w.foreign(t),
		Key: func(org, project string) string {
			_, secret := w.key(t, org+project, "", resource.OrgRole(org), resource.ProjectRole(project))
			return secret
		},
		Existing: func(rest.Op, string) string { return "key-1" },
	})
}
