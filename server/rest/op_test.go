package rest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"athanor/server/rest"
)

func nothing[T any](context.Context, *T) (*rest.None, error) { return nil, nil }

func TestTableIsChecked(t *testing.T) {
	t.Parallel()
	type (
		untagged struct{ Name string }
		open     struct {
			ID string `path:"id"`
		}
		body struct {
			ID string `path:"id" json:"id"`
		}
		both struct {
			ID string `path:"id" query:"id" json:"-"`
		}
		strange struct {
			ID map[string]int `query:"id" json:"-"`
		}
		list struct {
			ID []string `path:"id" json:"-"`
		}
		id struct {
			ID string `path:"id" json:"-"`
		}
		embeds struct{ *id }
	)
	get := func(path string) rest.Op { return rest.Get(path, "x", rest.AnyKey, nothing[rest.None]) }
	tests := []struct {
		name string
		ops  []rest.Op
		want string
	}{
		{"no access", []rest.Op{rest.Get("/a", "x", rest.Access{}, nothing[rest.None])}, "GET /a does not say what access it needs"},
		{"no tag", []rest.Op{rest.Get("/a", "", rest.AnyKey, nothing[rest.None])}, "no tag"},
		{"not made", []rest.Op{{Method: "GET", Path: "/a", Tag: "x", Access: rest.AnyKey}}, "no function"},
		{"no slash", []rest.Op{get("a")}, "start with a slash"},
		{"twice", []rest.Op{get("/a"), get("/a")}, "match the same requests"},
		{"same shape", []rest.Op{
			rest.Get("/a/:id", "x", rest.AnyKey, nothing[id]),
			rest.Get("/a/:id", "x", rest.AnyKey, nothing[id])}, "match the same requests"},
		{"rest in the middle", []rest.Op{rest.Get("/a/*id/b", "x", rest.AnyKey, nothing[id])}, "only the last segment"},
		{"not a struct", []rest.Op{rest.Get("/a", "x", rest.AnyKey, nothing[string])}, "not a struct"},
		{"no field for a parameter", []rest.Op{get("/a/:id")}, "no field for the path parameter id"},
		{"no such parameter", []rest.Op{rest.Get("/a", "x", rest.AnyKey, nothing[id])}, "the path has no parameter id"},
		{"no tags", []rest.Op{rest.Post("/a", "x", rest.AnyKey, nothing[untagged])}, "neither a json nor a path nor a query tag"},
		{"body could set the path", []rest.Op{rest.Post("/a/:id", "x", rest.AnyKey, nothing[open])}, `needs json:"-"`},
		{"named in both", []rest.Op{rest.Post("/a/:id", "x", rest.AnyKey, nothing[body])}, `needs json:"-"`},
		{"path and query", []rest.Op{rest.Post("/a/:id", "x", rest.AnyKey, nothing[both])}, "both path and query"},
		{"type", []rest.Op{rest.Get("/a", "x", rest.AnyKey, nothing[strange])}, "cannot be bound"},
		{"list in a path", []rest.Op{rest.Get("/a/:id", "x", rest.AnyKey, nothing[list])}, "cannot be bound"},
		{"embedded pointer", []rest.Op{rest.Get("/a/:id", "x", rest.AnyKey, nothing[embeds])}, "embeds a pointer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := rest.Config{Ops: tt.ops, Auth: testKeys}
			if _, err := rest.New(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	roles := []struct{ org, project string }{
		{"admin", ""}, {"developer", "admin"}, {"developer", "editor"}, {"developer", ""}, {"", ""}, {"owner", "owner"},
	}
	tests := []struct {
		access rest.Access
		want   string // y or n for each of roles
	}{
		{rest.AnyKey, "yyyyyy"},
		{rest.ProjectEditor, "yyynnn"},
		{rest.ProjectAdmin, "yynnnn"},
		{rest.OrgAdmin, "ynnnnn"},
		{rest.Access{}, "nnnnnn"},
	}
	for _, tt := range tests {
		got := ""
		for _, r := range roles {
			if tt.access.Allows(&rest.Principal{OrgRole: r.org, ProjectRole: r.project}) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.access, got, tt.want)
		}
		if tt.access.Allows(nil) {
			t.Errorf("%q allows nobody in particular", tt.access)
		}
	}
}

type everything struct {
	ID    string     `path:"id" json:"-"`
	Kind  kind       `query:"kind" json:"-"`
	On    bool       `query:"on" json:"-"`
	Ratio *float64   `query:"ratio" json:"-"`
	Page  int        `query:"page" json:"-"`
	Since *time.Time `query:"since" json:"-"`
	Types []kind     `query:"types" json:"-"`
}

type kind string

func TestBinding(t *testing.T) {
	t.Parallel()
	type shown struct {
		Kind  kind       `json:"kind"`
		On    bool       `json:"on"`
		Ratio *float64   `json:"ratio"`
		Page  int        `json:"page"`
		Since *time.Time `json:"since"`
		Types []kind     `json:"types"`
	}
	w := newWorld(t, rest.Limits{}, rest.Get("/e/:id", "x", rest.AnyKey, func(_ context.Context, r *everything) (*shown, error) {
		return &shown{r.Kind, r.On, r.Ratio, r.Page, r.Since, r.Types}, nil
	}, rest.Strict()))
	tests := []struct{ query, want string }{
		{"", `{"kind":"","on":false,"ratio":null,"page":0,"since":null,"types":[]}`},
		{"kind=a+b%26&on=true&ratio=1.5&page=-3&since=2026-01-02T03:04:05Z&types=a,b&types=c", `{"kind":"a b&","on":true,"ratio":1.5,"page":-3,"since":"2026-01-02T03:04:05Z","types":["a","b","c"]}`},
		{"since=10&types[]=x,&page=1&page=1", `{"kind":"","on":false,"ratio":null,"page":1,"since":"1970-01-01T00:00:10Z","types":["x"]}`},
		{"on=maybe", `on must be a boolean, got \"maybe\"`},
		{"ratio=NaN", `ratio must be a number, got \"NaN\"`},
		{"page=99999999999999999999", "page must be an integer"},
		{"since=yesterday", "since must be an RFC 3339 time"},
		{"Page=1", `unknown query parameter \"Page\"`},
	}
	for _, tt := range tests {
		if got := w.do(t, "GET", "/v1/e/1?"+tt.query, ""); !strings.Contains(got.body, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.query, got.body, tt.want)
		}
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	op := rest.Op{Path: "/a/:one/b/*two"}
	if got := strings.Join(op.Params(), " "); got != "one two" {
		t.Errorf("got %q", got)
	}
}
