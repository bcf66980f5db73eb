package store_test

import (
	"os"
	"testing"

	"athanor/store"
)

// TestMain turns this binary into the child of the crash test when asked to.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		crashChild(path)
		os.Exit(1) // the child writes until it is killed
	}
	os.Exit(m.Run())
}

// thing is the record of the tests: one unique key, one shared key, several tags.
type thing struct {
	Name  string   `json:"name"`
	Group string   `json:"group"`
	Tags  []string `json:"tags,omitempty"`
	N     int      `json:"n"`
}

var things = store.NewTable("things",
	store.Index[thing]{Name: "name", Unique: true, Key: func(v *thing) [][]byte {
		if v.Name == "" {
			return nil
		}
		return [][]byte{[]byte(v.Name)}
	}},
	store.Index[thing]{Name: "group", Key: func(v *thing) [][]byte { return [][]byte{store.Key("g", v.Group)} }},
	store.Index[thing]{Name: "tag", Key: func(v *thing) [][]byte {
		var keys [][]byte
		for _, tag := range v.Tags {
			keys = append(keys, []byte(tag))
		}
		return keys
	}},
)

// mustUpdate runs one transaction that has to succeed.
func mustUpdate(t testing.TB, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.Update(t.Context(), fn); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

// mustView runs one read that has to succeed.
func mustView(t testing.TB, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.View(fn); err != nil {
		t.Fatalf("View: %v", err)
	}
}
