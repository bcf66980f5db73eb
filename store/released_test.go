package store_test

import (
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

// releaseSchema is the version that -release writes; raise it with each release
// that changed the schema, and never rewrite an older file.
const releaseSchema = 1

var release = flag.Bool("release", false, "write testdata/schema-v<N>.db.gz from the current program")

// sample holds one record of each table.
var sample = struct {
	org    resource.Organization
	proj   resource.Project
	user   resource.User
	member resource.Membership
	key    resource.APIKey
	model  resource.Model
}{
	org:  resource.Organization{ID: "org-1", Name: "Alembic", CreatedAt: day(1)},
	proj: resource.Project{ID: "proj-1", OrganizationID: "org-1", Name: "Default", Slug: "default", Visibility: resource.VisibilityOpen, CreatedAt: day(2)},
	user: resource.User{ID: "user-1", OrganizationID: "org-1", Name: "Maria", OrgRole: resource.OrgAdmin, CreatedAt: day(3)},
	member: resource.Membership{
		ProjectID: "proj-1", UserID: "user-1", Role: resource.ProjectEditor,
	},
	key: resource.APIKey{
		ID: "key-1", Name: "first", Prefix: "ath_1234", Hash: []byte{0, 1, 2, 0, 255}, ProjectID: "proj-1", UserID: "user-1",
		Role: resource.ProjectAdmin, OrgRole: resource.OrgAdmin, CreatedAt: day(4), ExpiresAt: new(day(9)),
	},
	model: resource.Model{
		ID: "model-1", ProjectID: "", Name: "athanor/mini", DisplayName: "Mini", Type: resource.ModelChat,
		Architecture: "LlamaForCausalLM", Quantization: resource.QuantizationInt8, ContextLength: 2048, Parameters: 1 << 40,
		License: "apache-2.0", Files: []resource.ModelFile{{Path: "model.onnx", Size: 1 << 33, SHA256: "ab", ObjectKey: "models/model-1/model.onnx"}},
		SourceKind: "builtin", Revision: "cd", Builtin: true, CreatedAt: day(5), EndpointID: "endpoint-1",
	},
}

func day(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 123, time.UTC) }

// writeSample fills a database with the sample, events and a value.
func writeSample(tx *store.Tx) error {
	for _, insert := range []func() error{
		func() error { return store.Organizations.Insert(tx, "org-1", &sample.org) },
		func() error { return store.Projects.Insert(tx, "proj-1", &sample.proj) },
		func() error { return store.Users.Insert(tx, "user-1", &sample.user) },
		func() error {
			return store.Memberships.Insert(tx, resource.MembershipID("proj-1", "user-1"), &sample.member)
		},
		func() error { return store.Keys.Insert(tx, "key-1", &sample.key) },
		func() error { return store.Models.Insert(tx, "model-1", &sample.model) },
		func() error { return store.Meta(tx).Put("organization", []byte("org-1")) },
		func() error { _, err := store.AppendEvent(tx, "models", "model-1", []byte("imported")); return err },
	} {
		if err := insert(); err != nil {
			return err
		}
	}
	return nil
}

// readSample checks the sample through every index of the tables.
func readSample(t *testing.T, tx *store.Tx) {
	t.Helper()
	same := func(what string, got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, %v, want %+v", what, got, err, want)
		}
	}
	org, err := store.Organizations.Get(tx, "org-1")
	same("organisation", org, err, &sample.org)
	proj, err := store.Projects.Lookup(tx, store.BySlug, store.Key("org-1", "default"))
	same("project by slug", proj, err, &sample.proj)
	projects, _, err := store.Projects.List(tx, store.ByOrganization, store.Page{Prefix: store.Key("org-1", "")})
	same("projects of the organisation", projects, err, []*resource.Project{&sample.proj})
	users, _, err := store.Users.List(tx, store.ByOrganization, store.Page{Prefix: store.Key("org-1", "")})
	same("users of the organisation", users, err, []*resource.User{&sample.user})
	members, _, err := store.Memberships.List(tx, store.ByProject, store.Page{Prefix: store.Key("proj-1", "")})
	same("members of the project", members, err, []*resource.Membership{&sample.member})
	members, _, err = store.Memberships.List(tx, store.ByUser, store.Page{Prefix: store.Key("user-1", "")})
	same("projects of the user", members, err, []*resource.Membership{&sample.member})
	key, err := store.Keys.Lookup(tx, store.ByHash, sample.key.Hash)
	same("key by hash", key, err, &sample.key)
	keys, _, err := store.Keys.List(tx, store.ByProject, store.Page{Prefix: store.Key("proj-1", "")})
	same("keys of the project", keys, err, []*resource.APIKey{&sample.key})
	model, err := store.Models.Lookup(tx, store.ByName, store.Key("", "athanor/mini"))
	same("model by name", model, err, &sample.model)
	model, err = store.Models.Lookup(tx, store.ByEndpoint, store.Key("endpoint-1"))
	same("model by endpoint", model, err, &sample.model)
	models, _, err := store.Models.List(tx, store.ByProject, store.Page{Prefix: store.Key("", "")})
	same("models for all", models, err, []*resource.Model{&sample.model})
	models, _, err = store.Models.List(tx, store.ByCreated, store.Page{})
	same("models by time", models, err, []*resource.Model{&sample.model})
	value, err := store.Meta(tx).Get("organization")
	same("value", string(value), err, "org-1")
	events, err := store.Events(tx, "models", "model-1", 0, 10)
	same("events", events, err, []store.Event{{Seq: 1, Data: []byte("imported")}})
}

func TestTables(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	mustUpdate(t, db, writeSample)
	mustView(t, db, func(tx *store.Tx) error { readSample(t, tx); return nil })
}

// TestReleasedSchemas opens a database of every released version with today's
// program.
func TestReleasedSchemas(t *testing.T) {
	if *release {
		writeRelease(t)
	}
	for v := 1; v <= releaseSchema; v++ {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) {
			f, err := os.Open(fmt.Sprintf("testdata/schema-v%d.db.gz", v))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r, err := gzip.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "athanor.db")
			copyFile(t, path, r)
			db := storetest.OpenAt(t, path)
			mustView(t, db, func(tx *store.Tx) error { readSample(t, tx); return nil })
			if got, want := len(list(t, path)) == 2, v < releaseSchema; got != want {
				t.Errorf("a backup exists: %v, want %v", got, want)
			}
		})
	}
}

// writeRelease writes the file of the current version.
func writeRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "athanor.db")
	db := storetest.OpenAt(t, path)
	mustUpdate(t, db, writeSample)
	storetest.Close(t, db)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(fmt.Sprintf("testdata/schema-v%d.db.gz", releaseSchema))
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(f)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
