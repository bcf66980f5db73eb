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
	base := bases[m.BaseID].model
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

// Adapters counts the adapters of a model and gives the size of the largest in
// bytes.
func (s *Service) Adapters(m *resource.Model) (count int, largest int64, err error) {
	bases, err := s.bases()
	b := bases[m.ID]
	return b.adapters, b.largest, err
}

// base is a model that has adapters.
type base struct {
	model    *resource.Model
	adapters int
	largest  int64 // bytes
}

// bases are the models that have adapters. They are looked up once after each
// change of any model.
func (s *Service) bases() (map[resource.ModelID]base, error) {
	bases, generation := s.cache.bases()
	if bases != nil {
		return bases, nil
	}
	bases = map[resource.ModelID]base{}
	err := s.db.View(func(tx *store.Tx) error {
		page := store.Page{Limit: 1000}
		for {
			list, next, err := store.Models.List(tx, store.ByCreated, page)
			if err != nil {
				return err
			}
			for _, m := range list {
				if m.BaseID == "" {
					continue
				}
				b := bases[m.BaseID]
				if b.model == nil {
					if b.model, err = store.Models.Get(tx, string(m.BaseID)); errors.Is(err, store.ErrNotFound) {
						continue // Base says so
					}
					if err != nil {
						return err
					}
				}
				b.adapters, b.largest = b.adapters+1, max(b.largest, m.Size())
				bases[m.BaseID] = b
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
