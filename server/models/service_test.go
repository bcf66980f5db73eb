package models_test

import (
	"errors"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/models"
	"athanor/server/rest"
	"athanor/server/servertest"
	"athanor/store/resource"
	"athanor/store/storetest"
)

// TestNamesAsAProjectSeesThem registers shared and private models and asks for
// them as two projects: a project's own model hides a shared one of its name,
// and a stranger's cannot be told from one that does not exist.
func TestNamesAsAProjectSeesThem(t *testing.T) {
	k, _ := servertest.NewKit(t)
	s := models.New(k, storetest.Open(t))
	for i, m := range []resource.Model{
		{ID: "model-1", Name: "lab/base", EndpointID: "endpoint-1"},
		{ID: "model-2", Name: "lab/base", ProjectID: "a", EndpointID: "endpoint-2"},
		{ID: "model-3", Name: "secret", ProjectID: "b", EndpointID: "endpoint-3"},
	} {
		m.Type, m.CreatedAt = resource.ModelChat, time.Unix(int64(i), 0)
		if err := s.Register(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		project resource.ProjectID
		name    string
		want    resource.ModelID // "" for a 404
	}{
		{"a", "lab/base", "model-2"}, {"b", "lab/base", "model-1"}, {"", "lab/base", "model-1"},
		{"b", "secret", "model-3"}, {"a", "secret", ""}, {"", "secret", ""},
	} {
		m, err := s.Resolve(tt.project, tt.name)
		var refused *api.Error
		switch {
		case tt.want == "" && (!errors.As(err, &refused) || refused.Status != 404 || *refused.Code != "model_not_found"):
			t.Errorf("%s as project %q: got %v, %v; want model_not_found", tt.name, tt.project, m, err)
		case tt.want != "" && (err != nil || m.ID != tt.want):
			t.Errorf("%s as project %q: got %v, %v; want %s", tt.name, tt.project, m, err, tt.want)
		}
	}
	ctx := rest.WithCaller(t.Context(), &rest.Principal{ProjectID: "b"})
	list, err := s.List(ctx, &api.ListModelsRequest{})
	if err != nil || len(list.Data) != 2 || list.Data[0].ID != "secret" || list.Data[1].ID != "lab/base" {
		t.Errorf("project b lists %+v, %v", list, err)
	}
	one, err := s.Get(ctx, &api.GetModelRequest{ID: "lab/base"})
	if err != nil || one.Organization != "lab" || one.OwnedBy != "lab" || one.Type != "chat" {
		t.Errorf("got %+v, %v", one, err)
	}
}

func TestTakenNameIsAConflict(t *testing.T) {
	k, _ := servertest.NewKit(t)
	s := models.New(k, storetest.Open(t))
	first := resource.Model{ID: "model-1", Name: "m", Type: resource.ModelChat, EndpointID: "endpoint-1"}
	if err := s.Register(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	second := first
	second.ID, second.EndpointID = "model-2", "endpoint-2"
	var refused *api.Error
	if err := s.Register(t.Context(), &second); !errors.As(err, &refused) || refused.Status != 409 || *refused.Param != "name" {
		t.Errorf("got %v, want a conflict over the name", err)
	}
	second.ID, second.Name = "model-1", "renamed"
	if err := s.Replace(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Resolve("", "renamed"); err != nil || m.EndpointID != "endpoint-2" {
		t.Errorf("after the replacement: %+v, %v", m, err)
	}
}
