package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"athanor/store/resource"
)

// TestCheckFindsDamage breaks one thing at a time below the tables.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	fill := func(tx *Tx) error {
		for _, id := range []string{"k1", "k2"} {
			k := &resource.APIKey{Hash: []byte("hash of " + id), ProjectID: "p"}
			if err := Keys.Insert(tx, id, k); err != nil {
				return err
			}
			if _, err := AppendEvent(tx, "keys", id, nil); err != nil {
				return err
			}
		}
		return nil
	}
	tests := []struct {
		name   string
		damage func(tx *Tx) error
		want   string
	}{
		{"nothing", func(*Tx) error { return nil }, ""},
		{"entry missing", func(tx *Tx) error { return tx.del("keys.hash", []byte("hash of k1")) }, "keys.hash"},
		{"entry astray", func(tx *Tx) error { return tx.put("keys.hash", []byte("hash of k1"), []byte("k2")) }, `leads to "k2"`},
		{"entry too many", func(tx *Tx) error { return tx.put("keys.project", []byte("x"), []byte("k1")) }, "3 entries"},
		{"record missing", func(tx *Tx) error { return tx.del("keys", []byte("k1")) }, "its records make 1"},
		{"record unreadable", func(tx *Tx) error { return tx.put("keys", []byte("k1"), []byte("{")) }, `decode keys "k1"`},
		{"version unreadable", func(tx *Tx) error { return tx.put(metaBucket, []byte(schemaKey), []byte("x")) }, "schema version"},
		{"event gap", func(tx *Tx) error {
			return tx.findBucket(eventBucket, "keys", "k1").Put(seqKey(3), nil)
		}, "where 2 belongs"},
		{"event sequence", func(tx *Tx) error {
			return tx.findBucket(eventBucket, "keys", "k1").SetSequence(7)
		}, "the last number is 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			db, err := Open(filepath.Join(t.TempDir(), "athanor.db"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.Update(t.Context(), func(tx *Tx) error { return errors.Join(fill(tx), tt.damage(tx)) })
			if err != nil {
				t.Fatal(err)
			}
			err = db.View(func(tx *Tx) error { return Check(tx) })
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Check = %v, want %q", err, tt.want)
			}
		})
	}
}

// A damaged record is an error that names it, never a panic or a wrong record.
func TestDamagedRecordIsNamed(t *testing.T) {
	t.Parallel()
	db, err := Open(filepath.Join(t.TempDir(), "athanor.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(t.Context(), func(tx *Tx) error { return tx.put("keys", []byte("k1"), []byte(`{"id":7}`)) })
	if err != nil {
		t.Fatal(err)
	}
	_ = db.View(func(tx *Tx) error {
		_, getErr := Keys.Get(tx, "k1")
		_, _, listErr := Keys.List(tx, "", Page{})
		for _, err := range []error{getErr, listErr} {
			if err == nil || !strings.Contains(err.Error(), `decode keys "k1"`) {
				t.Errorf("got %v, want an error that names the record", err)
			}
		}
		return nil
	})
}
