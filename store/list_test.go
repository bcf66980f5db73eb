package store_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"athanor/store"
	"athanor/store/storetest"
)

// names lists all pages of an index and returns the names of the records.
func names(t *testing.T, tx *store.Tx, index string, q store.Page) (list []string, pages int) {
	t.Helper()
	for {
		got, next, err := things.List(tx, index, q)
		if err != nil {
			t.Fatalf("List(%q, %+v): %v", index, q, err)
		}
		for _, v := range got {
			list = append(list, v.Name)
		}
		if pages++; next == "" {
			return list, pages
		}
		if len(got) != q.Limit {
			t.Fatalf("a page of %d records before the last one, limit %d", len(got), q.Limit)
		}
		q.After = next
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for i := range 7 {
			v := &thing{Name: fmt.Sprint("n", i), Group: []string{"a", "ab", "\U0010ffff"}[i%3]}
			if err := things.Insert(tx, fmt.Sprint("id", 9-i), v); err != nil {
				return err
			}
		}
		return nil
	})
	tests := []struct {
		name, index string
		page        store.Page
		want        string
		pages       int
	}{
		{"by id", "", store.Page{Limit: 3}, "n6 n5 n4 n3 n2 n1 n0", 3},
		{"by id in reverse", "", store.Page{Limit: 3, Reverse: true}, "n0 n1 n2 n3 n4 n5 n6", 3},
		{"one page", "name", store.Page{Limit: 7}, "n0 n1 n2 n3 n4 n5 n6", 1},
		{"default limit", "name", store.Page{}, "n0 n1 n2 n3 n4 n5 n6", 1},
		{"prefix", "group", store.Page{Prefix: store.Key("g", "a", ""), Limit: 1}, "n6 n3 n0", 3},
		{"open prefix", "group", store.Page{Prefix: store.Key("g", "a"), Limit: 2}, "n6 n3 n0 n4 n1", 3},
		{"prefix in reverse", "group", store.Page{Prefix: store.Key("g", "a", ""), Limit: 2, Reverse: true}, "n0 n3 n6", 2},
		{"high prefix in reverse", "group", store.Page{Prefix: []byte("g\x00\xf4\x8f\xbf\xbf"), Limit: 1, Reverse: true}, "n2 n5", 2},
		{"nothing", "group", store.Page{Prefix: []byte("h")}, "", 1},
		{"nothing in reverse", "group", store.Page{Prefix: []byte("\xff\xff"), Reverse: true}, "", 1},
		{"empty index", "tag", store.Page{Reverse: true}, "", 1},
	}
	mustView(t, db, func(tx *store.Tx) error {
		for _, tt := range tests {
			list, pages := names(t, tx, tt.index, tt.page)
			if got := strings.Join(list, " "); got != tt.want || pages != tt.pages {
				t.Errorf("%s: %q in %d pages, want %q in %d", tt.name, got, pages, tt.want, tt.pages)
			}
		}
		return nil
	})
}

func TestCursorOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for _, name := range []string{"a", "b", "c", "d"} {
			if err := things.Insert(tx, name, &thing{Name: name}); err != nil {
				return err
			}
		}
		return nil
	})
	var up, down string
	mustView(t, db, func(tx *store.Tx) (err error) {
		if _, up, err = things.List(tx, "name", store.Page{Limit: 2}); err != nil {
			return err
		}
		_, down, err = things.List(tx, "name", store.Page{Limit: 2, Reverse: true})
		return err
	})
	mustUpdate(t, db, func(tx *store.Tx) error {
		return errors.Join(things.Delete(tx, "b"), things.Delete(tx, "c"))
	})
	mustView(t, db, func(tx *store.Tx) error {
		if got, _ := names(t, tx, "name", store.Page{After: up}); !slices.Equal(got, []string{"d"}) {
			t.Errorf("after the deleted b: %v, want d", got)
		}
		if got, _ := names(t, tx, "name", store.Page{After: down, Reverse: true}); !slices.Equal(got, []string{"a"}) {
			t.Errorf("before the deleted c: %v, want a", got)
		}
		return nil
	})
}

func TestHostileCursor(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for _, group := range []string{"a", "m", "z"} {
			if err := things.Insert(tx, group, &thing{Name: group, Group: group}); err != nil {
				return err
			}
		}
		return nil
	})
	mine := store.Key("g", "m", "")
	mustView(t, db, func(tx *store.Tx) error {
		for _, cursor := range []string{"!", "a", "AB=", strings.Repeat("A", 5000), "AA\n"} {
			if _, _, err := things.List(tx, "group", store.Page{After: cursor}); !errors.Is(err, store.ErrBadCursor) {
				t.Errorf("cursor %.10q: %v, want ErrBadCursor", cursor, err)
			}
		}
		for _, key := range []string{"\x00", "g\x00a", "g\x00a\x00a", "g\x00z\x00z", "\xff\xff\xff"} {
			for _, reverse := range []bool{false, true} {
				q := store.Page{Prefix: mine, After: base64.RawURLEncoding.EncodeToString([]byte(key)), Reverse: reverse}
				got, _ := names(t, tx, "group", q)
				if len(got) > 0 && !slices.Equal(got, []string{"m"}) {
					t.Errorf("cursor %q, reverse %v, leads out of the prefix to %v", key, reverse, got)
				}
			}
		}
		return nil
	})
}

func TestPageLimitIsBounded(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	mustUpdate(t, db, func(tx *store.Tx) error {
		for i := range 1100 {
			if err := things.Insert(tx, fmt.Sprint(i), &thing{}); err != nil {
				return err
			}
		}
		return nil
	})
	mustView(t, db, func(tx *store.Tx) error {
		for limit, want := range map[int]int{-1: 100, 0: 100, 1: 1, 1 << 40: 1000} {
			list, next, err := things.List(tx, "", store.Page{Limit: limit})
			if err != nil || len(list) != want || next == "" {
				t.Errorf("limit %d: %d records, next %q, %v, want %d", limit, len(list), next, err, want)
			}
		}
		return nil
	})
}

func TestKeysSort(t *testing.T) {
	t.Parallel()
	at := func(y int) string { return store.TimeKey(time.Date(y, 1, 1, 0, 0, 0, 7, time.UTC)) }
	sorted := []string{
		string(store.Key("a", "")), string(store.Key("a", at(1700))), string(store.Key("a", at(1969))),
		string(store.Key("a", at(1970))), string(store.Key("a", at(2026))), string(store.Key("a", at(2261))),
		string(store.Key("ab", at(1700))), string(store.Key("b", at(1700))),
	}
	if !slices.IsSorted(sorted) {
		t.Errorf("keys do not sort by part and time: %q", sorted)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("", false)
	f.Add("bm90aGluZw", true)
	f.Add("Zw", false)
	f.Add("____", true)
	db := storetest.Open(f, things)
	mustUpdate(f, db, func(tx *store.Tx) error {
		for _, id := range []string{"g", "h", "i"} {
			if err := things.Insert(tx, id, &thing{Name: id, Group: id}); err != nil {
				return err
			}
		}
		return nil
	})
	f.Fuzz(func(t *testing.T, cursor string, reverse bool) {
		mustView(t, db, func(tx *store.Tx) error {
			list, _, err := things.List(tx, "group", store.Page{Prefix: store.Key("g", "h", ""), After: cursor, Reverse: reverse})
			if err != nil && !errors.Is(err, store.ErrBadCursor) {
				t.Errorf("cursor %q: %v", cursor, err)
			}
			if len(list) > 1 || len(list) == 1 && list[0].Name != "h" {
				t.Errorf("cursor %q leads outside the prefix", cursor)
			}
			return nil
		})
	})
}
