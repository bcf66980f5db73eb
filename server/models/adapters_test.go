package models_test

import (
	"errors"
	"testing"
	"time"

	"athanor/server/models"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

func TestAdaptersOfABase(t *testing.T) {
	k, _ := servertest.NewKit(t)
	s := models.New(k, storetest.Open(t))
	register := func(id, base string, size int64) *resource.Model {
		t.Helper()
		m := &resource.Model{
			ID: resource.ModelID(id), Name: id, BaseID: resource.ModelID(base), EndpointID: resource.EndpointID(id), Type: resource.ModelChat,
			CreatedAt: time.Unix(size, 0), Files: []resource.ModelFile{{Path: "f", Size: size}},
		}
		if err := s.Register(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	check := func(m *resource.Model, count int, largest int64) {
		t.Helper()
		if n, l, err := s.Adapters(m); n != count || l != largest || err != nil {
			t.Errorf("%s has %d adapters of at most %d bytes, %v; want %d of %d", m.ID, n, l, err, count, largest)
		}
	}
	base := register("base", "", 1000)
	check(base, 0, 0)
	draft := &resource.Model{Name: "draft", BaseID: base.ID} // not registered
	if b, err := s.Base(draft); err != nil || b.ID != base.ID {
		t.Errorf("the base of a draft is %v, %v", b, err)
	}
	first := register("first", "base", 7)
	check(base, 1, 7)
	register("second", "base", 30)
	register("third", "base", 20)
	other := register("other", "", 1000)
	check(base, 3, 30)
	check(other, 0, 0)
	if b, err := s.Base(first); err != nil || b.ID != base.ID {
		t.Errorf("the base of an adapter is %v, %v", b, err)
	}
	if b, err := s.Base(other); err != nil || b != other {
		t.Errorf("a model that is no adapter has the base %v, %v", b, err)
	}
	if b, err := s.Base(&resource.Model{Name: "orphan", BaseID: "gone"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the base of an orphan is %v, %v", b, err)
	}
}
