package models

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"athanor/server/api"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Service reads and writes model records. Safe for concurrent use.
type Service struct {
	kit   kit.Kit
	db    *store.DB
	cache cache
}

// New makes a Service.
func New(k kit.Kit, db *store.DB) *Service {
	s := &Service{kit: k, db: db}
	s.cache.forget()
	return s
}

// List answers GET /models: a bare array, or a list object for OpenAI clients.
func (s *Service) List(ctx context.Context, r *api.ListModelsRequest) (*api.Models, error) {
	out := &api.Models{Data: []api.Model{}, Wrapped: strings.HasPrefix(rest.UserAgent(ctx), "OpenAI/")}
	if r.Dedicated != nil && *r.Dedicated {
		return out, nil // no dedicated endpoints exist
	}
	list, err := s.Visible(project(ctx))
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		out.Data = append(out.Data, wire(m))
	}
	return out, nil
}

// Get answers GET /models/{id}.
func (s *Service) Get(ctx context.Context, r *api.GetModelRequest) (*api.Model, error) {
	m, err := s.Resolve(project(ctx), r.ID)
	if err != nil {
		return nil, err
	}
	out := wire(m)
	return &out, nil
}

// Visible lists the models that a project may use, its own first, oldest first.
func (s *Service) Visible(p resource.ProjectID) ([]*resource.Model, error) {
	var all []*resource.Model
	err := s.db.View(func(tx *store.Tx) error {
		owners := []resource.ProjectID{p, ""}
		if p == "" {
			owners = owners[:1]
		}
		for _, owner := range owners {
			page := store.Page{Prefix: store.Key(string(owner), ""), Limit: 1000}
			for {
				list, next, err := store.Models.List(tx, store.ByProject, page)
				if err != nil {
					return err
				}
				all = append(all, list...)
				if page.After = next; next == "" {
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	return all, nil
}

// Resolve finds a model by name as a project sees it: its own before the
// shared ones. The record is shared: read it only. An unknown name is an
// api.Error 404.
func (s *Service) Resolve(p resource.ProjectID, model string) (*resource.Model, error) {
	m, generation := s.cache.get(name{p, model})
	if m != nil {
		return m, nil
	}
	err := s.db.View(func(tx *store.Tx) (err error) {
		for _, owner := range []resource.ProjectID{p, ""} {
			m, err = store.Models.Lookup(tx, store.ByName, store.Key(string(owner), model))
			if !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, api.ModelNotFound(model)
	case err != nil:
		return nil, fmt.Errorf("find model: %w", err)
	}
	s.cache.put(name{p, model}, m, generation)
	return m, nil
}

// Register stores a new model. A taken name is an api.Error 409.
func (s *Service) Register(ctx context.Context, m *resource.Model) error {
	err := s.db.Update(ctx, func(tx *store.Tx) error { return store.Models.Insert(tx, string(m.ID), m) })
	var clash *store.UniqueError
	if errors.As(err, &clash) {
		return api.Conflict("a model named %s exists already", m.Name).WithParam("name")
	}
	if err != nil {
		return fmt.Errorf("register model: %w", err)
	}
	s.cache.forget()
	s.kit.Log.Info("model registered", "model", m.Name, "id", m.ID, "revision", m.Revision)
	return nil
}

// Replace stores a new content of a model whose id is taken already.
func (s *Service) Replace(ctx context.Context, m *resource.Model) error {
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		_, err := store.Models.Update(tx, string(m.ID), func(old *resource.Model) error { *old = *m; return nil })
		return err
	})
	if err != nil {
		return fmt.Errorf("replace model: %w", err)
	}
	s.cache.forget()
	s.kit.Log.Info("model replaced", "model", m.Name, "id", m.ID, "revision", m.Revision)
	return nil
}

// Changed is called after others wrote or deleted models.
func (s *Service) Changed() { s.cache.forget() }

// project is the project of the caller.
func project(ctx context.Context) resource.ProjectID {
	return resource.ProjectID(rest.Caller(ctx).ProjectID)
}
