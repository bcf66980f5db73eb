package store_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"athanor/store"
)

// A table is described once, and used inside transactions.
func ExampleTable() {
	type lamp struct{ Room, Name string }
	lamps := store.NewTable("lamps", store.Index[lamp]{
		Name: "room",
		Key:  func(l *lamp) [][]byte { return [][]byte{store.Key(l.Room)} },
	})

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(filepath.Join(dir, "athanor.db"), store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(context.Background(), func(tx *store.Tx) error {
		for id, l := range map[string]lamp{"l1": {"hall", "ceiling"}, "l2": {"attic", "bare"}, "l3": {"hall", "standing"}} {
			if err := lamps.Insert(tx, id, &l); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = db.View(func(tx *store.Tx) error {
		list, _, err := lamps.List(tx, "room", store.Page{Prefix: store.Key("hall", "")})
		for _, l := range list {
			fmt.Println(l.Name)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// ceiling
	// standing
}
