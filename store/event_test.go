package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"athanor/store"
	"athanor/store/storetest"
)

func TestEventLog(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for i := range 300 {
			for _, id := range []string{"one", "two"} {
				seq, err := store.AppendEvent(tx, "jobs", id, fmt.Append(nil, id, i))
				if err != nil || seq != uint64(i+1) {
					t.Fatalf("event %d of %s: number %d, %v", i, id, seq, err)
				}
			}
		}
		_, err := store.AppendEvent(tx, "other", "one", nil)
		return err
	})
	mustView(t, db, func(tx *store.Tx) error {
		for _, tt := range []struct {
			after uint64
			limit int
			n     int
		}{{0, 1000, 300}, {0, 10, 10}, {295, 10, 5}, {300, 10, 0}, {1 << 63, 10, 0}, {0, 0, 100}} {
			list, err := store.Events(tx, "jobs", "two", tt.after, tt.limit)
			if err != nil || len(list) != tt.n {
				t.Fatalf("Events after %d, limit %d: %d events, %v, want %d", tt.after, tt.limit, len(list), err, tt.n)
			}
			for i, e := range list {
				seq := tt.after + 1 + uint64(i)
				if e.Seq != seq || string(e.Data) != fmt.Sprint("two", seq-1) {
					t.Fatalf("event %d is number %d, %q", seq, e.Seq, e.Data)
				}
			}
		}
		list, err := store.Events(tx, "other", "one", 0, 10)
		if err != nil || len(list) != 1 || list[0].Data == nil {
			t.Errorf("the empty event reads as %+v, %v", list, err)
		}
		if list, err := store.Events(tx, "jobs", "none", 0, 10); err != nil || len(list) != 0 {
			t.Errorf("a log that is not there: %+v, %v", list, err)
		}
		return nil
	})
	mustUpdate(t, db, func(tx *store.Tx) error {
		return errors.Join(store.DropEvents(tx, "jobs", "one"), store.DropEvents(tx, "jobs", "none"), store.DropEvents(tx, "none", "one"))
	})
	mustView(t, db, func(tx *store.Tx) error {
		one, _ := store.Events(tx, "jobs", "one", 0, 10)
		two, _ := store.Events(tx, "jobs", "two", 0, 10)
		if len(one) != 0 || len(two) != 10 {
			t.Errorf("after the drop of one: %d and %d events", len(one), len(two))
		}
		return nil
	})
}

func TestEventRefuses(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	for _, tt := range []struct {
		id   string
		data []byte
		want error
	}{{"", nil, store.ErrInvalidID}, {"a\x00", nil, store.ErrInvalidID}, {"a", make([]byte, store.MaxRecord+1), store.ErrTooLarge}} {
		err := db.Update(t.Context(), func(tx *store.Tx) error {
			_, err := store.AppendEvent(tx, "jobs", tt.id, tt.data)
			return err
		})
		if !errors.Is(err, tt.want) {
			t.Errorf("event of %q: %v, want %v", tt.id, err, tt.want)
		}
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	mustUpdate(t, db, func(tx *store.Tx) error {
		return errors.Join(store.Meta(tx).Put("organization", []byte("org")), store.Meta(tx).Put("empty", nil))
	})
	mustView(t, db, func(tx *store.Tx) error {
		m := store.Meta(tx)
		if v, err := m.Get("organization"); err != nil || string(v) != "org" {
			t.Errorf("Get = %q, %v", v, err)
		}
		if v, err := m.Get("empty"); err != nil || v == nil || len(v) != 0 {
			t.Errorf("Get of an empty value = %v, %v", v, err)
		}
		for _, name := range []string{"none", "schema", ""} {
			if _, err := m.Get(name); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get(%q): %v, want ErrNotFound", name, err)
			}
		}
		return nil
	})
	for name, value := range map[string]string{"schema": "9", "": "x", "big": strings.Repeat("x", store.MaxRecord+1)} {
		if err := db.Update(t.Context(), func(tx *store.Tx) error { return store.Meta(tx).Put(name, []byte(value)) }); err == nil {
			t.Errorf("Put(%q) gave no error", name)
		}
	}
}
