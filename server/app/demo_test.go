package app_test

import (
	"testing"

	"athanor/server/app"
	"athanor/store"
	"athanor/store/resource"
)

// TestDemoOfAnOlderBinary opens a data directory whose embedded model has
// another content: it is replaced under its own id, and the old files go.
func TestDemoOfAnOlderBinary(t *testing.T) {
	a := open(t)
	var before *resource.Model
	change := func(tx *store.Tx) (err error) {
		list, _, err := store.Models.List(tx, "", store.Page{})
		if err != nil {
			return err
		}
		before, err = store.Models.Update(tx, string(list[0].ID), func(m *resource.Model) error {
			m.Revision, m.Files = "older", m.Files[:1]
			m.Files[0].ObjectKey = "models/sha256/older"
			return nil
		})
		return err
	}
	if err := a.DB().Update(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if err := a.EnsureDemo(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := a.DB().View(func(tx *store.Tx) error {
		after, err := store.Models.Get(tx, string(before.ID))
		if err != nil {
			return err
		}
		if after.Name != app.DemoModel || after.Revision == "older" || len(after.Files) < 3 || after.EndpointID != before.EndpointID {
			t.Errorf("got %+v", after)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
