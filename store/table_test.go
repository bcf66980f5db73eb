package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"athanor/store"
	"athanor/store/storetest"
)

func TestRecordLife(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	v := &thing{Name: "one", Group: "a", Tags: []string{"x", "y", "x"}, N: 1}
	mustUpdate(t, db, func(tx *store.Tx) error { return things.Insert(tx, "id-1", v) })
	v.Name, v.Tags[0] = "changed after the insert", "z"

	mustView(t, db, func(tx *store.Tx) error {
		got, err := things.Get(tx, "id-1")
		if err != nil {
			return err
		}
		want := &thing{Name: "one", Group: "a", Tags: []string{"x", "y", "x"}, N: 1}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Get = %+v, want %+v", got, want)
		}
		got, err = things.Lookup(tx, "name", []byte("one"))
		if err != nil || got.N != 1 {
			t.Errorf("Lookup = %+v, %v", got, err)
		}
		return nil
	})
	mustUpdate(t, db, func(tx *store.Tx) error {
		got, err := things.Update(tx, "id-1", func(v *thing) error {
			v.Name, v.N, v.Tags = "uno", 2, []string{"y"}
			return nil
		})
		if err == nil && got.N != 2 {
			t.Errorf("Update returned %+v", got)
		}
		return err
	})
	mustView(t, db, func(tx *store.Tx) error {
		if _, err := things.Lookup(tx, "name", []byte("one")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("old name: %v, want ErrNotFound", err)
		}
		if got, err := things.Lookup(tx, "name", []byte("uno")); err != nil || got.N != 2 {
			t.Errorf("new name: %+v, %v", got, err)
		}
		for tag, want := range map[string]int{"x": 0, "y": 1} {
			list, _, err := things.List(tx, "tag", store.Page{Prefix: []byte(tag)})
			if err != nil || len(list) != want {
				t.Errorf("tag %s: %d records, %v, want %d", tag, len(list), err, want)
			}
		}
		return nil
	})
	mustUpdate(t, db, func(tx *store.Tx) error { return things.Delete(tx, "id-1") })
	mustView(t, db, func(tx *store.Tx) error {
		_, err := things.Get(tx, "id-1")
		if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), `things "id-1"`) {
			t.Errorf("after Delete: %v, want ErrNotFound with kind and id", err)
		}
		return nil
	})
}

func TestTableRefuses(t *testing.T) {
	t.Parallel()
	errMine := errors.New("mine")
	big := strings.Repeat("x", store.MaxRecord)
	insert := func(id string, v thing) func(*store.Tx) error {
		return func(tx *store.Tx) error { return things.Insert(tx, id, &v) }
	}
	change := func(id string, fn func(*thing) error) func(*store.Tx) error {
		return func(tx *store.Tx) error { _, err := things.Update(tx, id, fn); return err }
	}
	tests := []struct {
		name string
		do   func(*store.Tx) error
		want error
	}{
		{"id taken", insert("a", thing{}), store.ErrExists},
		{"empty id", insert("", thing{}), store.ErrInvalidID},
		{"long id", insert(strings.Repeat("i", 257), thing{}), store.ErrInvalidID},
		{"zero byte in id", insert("a\x00b", thing{}), store.ErrInvalidID},
		{"record too large", insert("c", thing{Group: "g", Tags: []string{"t"}, Name: big}), store.ErrTooLarge},
		{"key too large", insert("c", thing{Tags: []string{big[:3000]}}), store.ErrTooLarge},
		{"empty key", insert("c", thing{Tags: []string{""}}), store.ErrTooLarge},
		{"update of nothing", change("nope", func(*thing) error { return nil }), store.ErrNotFound},
		{"update refused by fn", change("a", func(v *thing) error { v.N = 9; return errMine }), errMine},
		{"update too large", change("a", func(v *thing) error { v.Name = big; return nil }), store.ErrTooLarge},
		{"delete of nothing", func(tx *store.Tx) error { return things.Delete(tx, "nope") }, store.ErrNotFound},
		{"lookup of nothing", func(tx *store.Tx) error { _, err := things.Lookup(tx, "name", []byte("no")); return err }, store.ErrNotFound},
	}
	db := storetest.Open(t, things)
	mustUpdate(t, db, insert("a", thing{Name: "A"}))
	mustUpdate(t, db, insert("b", thing{Name: "B"}))
	before := db.Stats()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := db.Update(t.Context(), tt.do); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	for name, do := range map[string]func(*store.Tx) error{
		"insert": insert("c", thing{Name: "A"}),
		"update": change("b", func(v *thing) error { v.Name = "A"; return nil }),
	} {
		var clash *store.UniqueError
		if err := db.Update(t.Context(), do); !errors.As(err, &clash) || *clash != (store.UniqueError{Kind: "things", Index: "name"}) {
			t.Errorf("%s with a taken name: %v", name, err)
		}
	}
	if after := db.Stats(); after != before {
		t.Errorf("refused calls have committed: %+v, before %+v", after, before)
	}
	mustUpdate(t, db, change("a", func(v *thing) error { v.N = 1; return nil })) // its own name is no clash
}

func TestWriteInViewIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error { return things.Insert(tx, "a", &thing{}) })
	for name, do := range map[string]func(*store.Tx) error{
		"insert": func(tx *store.Tx) error { return things.Insert(tx, "b", &thing{}) },
		"update": func(tx *store.Tx) error {
			_, err := things.Update(tx, "a", func(*thing) error { return nil })
			return err
		},
		"delete": func(tx *store.Tx) error { return things.Delete(tx, "a") },
		"event":  func(tx *store.Tx) error { _, err := store.AppendEvent(tx, "things", "a", nil); return err },
		"meta":   func(tx *store.Tx) error { return store.Meta(tx).Put("x", nil) },
		"index":  things.Reindex,
	} {
		if err := db.View(do); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s in View: %v, want ErrReadOnly", name, err)
		}
	}
}

func TestUnknownIndex(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustView(t, db, func(tx *store.Tx) error {
		if _, _, err := things.List(tx, "nope", store.Page{}); err == nil {
			t.Error("List on an unknown index gave no error")
		}
		if _, err := things.Lookup(tx, "nope", nil); err == nil {
			t.Error("Lookup on an unknown index gave no error")
		}
		if _, err := things.Lookup(tx, "group", nil); err == nil {
			t.Error("Lookup on an index that is not unique gave no error")
		}
		return nil
	})
}

func TestNewTablePanicsOnBadDescription(t *testing.T) {
	t.Parallel()
	key := func(*thing) [][]byte { return nil }
	ix := func(names ...string) (list []store.Index[thing]) {
		for _, name := range names {
			list = append(list, store.Index[thing]{Name: name, Key: key})
		}
		return list
	}
	for name, make := range map[string]func(){
		"no name":       func() { store.NewTable[thing]("") },
		"reserved":      func() { store.NewTable[thing]("events") },
		"dot":           func() { store.NewTable[thing]("a.b") },
		"double index":  func() { store.NewTable("a", ix("i", "i")...) },
		"unnamed index": func() { store.NewTable("a", ix("")...) },
		"no key":        func() { store.NewTable("a", store.Index[thing]{Name: "i"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}

func TestReindex(t *testing.T) {
	t.Parallel()
	plain := store.NewTable[thing]("things") // as the table was before it had indexes
	db := storetest.Open(t)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for i := range 10 {
			v := &thing{Name: fmt.Sprint("n", i), Group: "g", Tags: []string{"t"}}
			if err := plain.Insert(tx, fmt.Sprint(i), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err := db.View(func(tx *store.Tx) error { return store.Check(tx, things) }); err == nil {
		t.Fatal("Check found nothing wrong with missing indexes")
	}
	mustUpdate(t, db, things.Reindex)
	mustView(t, db, func(tx *store.Tx) error { return store.Check(tx, things) })

	mustUpdate(t, db, func(tx *store.Tx) error { return plain.Insert(tx, "x", &thing{Name: "n1"}) })
	var clash *store.UniqueError
	if err := db.Update(t.Context(), things.Reindex); !errors.As(err, &clash) {
		t.Errorf("Reindex over clashing records: %v, want *UniqueError", err)
	}
}

// What JSON can't hold must not make an index disagree with its record.
func TestIndexFollowsTheStoredForm(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error { return things.Insert(tx, "a", &thing{Name: "n\xff"}) })
	mustUpdate(t, db, func(tx *store.Tx) error {
		got, err := things.Update(tx, "a", func(v *thing) error { v.Group = "g\xff"; return nil })
		if err == nil && got.Group != "g\ufffd" {
			t.Errorf("Update returned the group %q, which is not what it stored", got.Group)
		}
		return err
	})
	mustView(t, db, func(tx *store.Tx) error {
		_, err := things.Lookup(tx, "name", []byte("n\ufffd"))
		return err
	})
}
