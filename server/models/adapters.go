package models

import (
	"errors"
	"fmt"

	"athanor/store"
	"athanor/store/resource"
)

// Base is the model whose weights m is served on: m itself unless m is an
// adapter. The record is shared: read it only.
func (s *Service) Base(m *resource.Model) (*resource.Model, error) {
	if m.BaseID == "" {
		return m, nil
	}
	bases, err := s.bases()
	if err != nil {
		return nil, err
	}
	base := bases[m.BaseID]
	if base == nil { // m is not registered yet, or its base is gone
		err = s.db.View(func(tx *store.Tx) (err error) {
			base, err = store.Models.Get(tx, string(m.BaseID))
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("find the base of model %s: %w", m.Name, err)
	}
	return base, nil
}

// HasAdapters reports whether a model is the base of others.
func (s *Service) HasAdapters(m *resource.Model) (bool, error) {
	bases, err := s.bases()
	return bases[m.ID] != nil, err
}

// bases are the models that have adapters. They are looked up once after each
// change of any model.
func (s *Service) bases() (map[resource.ModelID]*resource.Model, error) {
	bases, generation := s.cache.bases()
	if bases != nil {
		return bases, nil
	}
	bases = map[resource.ModelID]*resource.Model{}
	err := s.db.View(func(tx *store.Tx) error {
		page := store.Page{Limit: 1000}
		for {
			list, next, err := store.Models.List(tx, store.ByCreated, page)
			if err != nil {
				return err
			}
			for _, m := range list {
				if m.BaseID == "" || bases[m.BaseID] != nil {
					continue
				}
				base, err := store.Models.Get(tx, string(m.BaseID))
				if errors.Is(err, store.ErrNotFound) {
					continue // Base says so
				}
				if err != nil {
					return err
				}
				bases[m.BaseID] = base
			}
			if page.After = next; next == "" {
				return nil
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find the models with adapters: %w", err)
	}
	s.cache.putBases(bases, generation)
	return bases, nil
}
