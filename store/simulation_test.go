package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"athanor/store"
	"athanor/store/storetest"
)

// world is what the database should hold.
type world struct {
	things map[string]thing
	events map[string][]string
}

func (w world) clone() world {
	return world{maps.Clone(w.things), maps.Clone(w.events)}
}

// named reports whether another record than id has the name.
func (w world) named(id, name string) bool {
	for other, v := range w.things {
		if other != id && name != "" && v.Name == name {
			return true
		}
	}
	return false
}

// TestSimulation runs random transactions of random operations, some of which
// fail on purpose, against the database and a map, and reopens the file between.
func TestSimulation(t *testing.T) {
	t.Parallel()
	rounds, seeds := 60, 6
	if testing.Short() {
		seeds = 1
	}
	for range seeds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, rand.New(rand.NewPCG(seed, 0)), rounds)
		})
	}
}

func simulate(t *testing.T, rng *rand.Rand, rounds int) {
	path := filepath.Join(t.TempDir(), "athanor.db")
	db := storetest.OpenAt(t, path, things)
	w := world{map[string]thing{}, map[string][]string{}}
	errUndo := errors.New("undo")
	for round := range rounds {
		after := w
		undo := rng.IntN(4) == 0
		ops := 1 + rng.IntN(12)
		err := db.Update(t.Context(), func(tx *store.Tx) error {
			after = w.clone()
			for range ops {
				operate(t, tx, rng, &after)
			}
			if undo {
				return errUndo
			}
			return nil
		})
		if undo != errors.Is(err, errUndo) || !undo && err != nil {
			t.Fatalf("round %d: %v, undo %v", round, err, undo)
		}
		if !undo {
			w = after
		}
		if rng.IntN(8) == 0 {
			storetest.Close(t, db, things)
			db = storetest.OpenAt(t, path, things)
		}
		mustView(t, db, func(tx *store.Tx) error { compare(t, tx, rng, w); return nil })
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// randomThing draws from few names and tags, so that they clash often.
func randomThing(rng *rand.Rand) thing {
	v := thing{Group: fmt.Sprint(rng.IntN(4)), N: rng.IntN(100)}
	if rng.IntN(5) > 0 {
		v.Name = fmt.Sprint("name", rng.IntN(40))
	}
	for range rng.IntN(4) {
		v.Tags = append(v.Tags, fmt.Sprint("tag", rng.IntN(6)))
	}
	return v
}

// operate does one random operation on both sides and compares their answers.
func operate(t *testing.T, tx *store.Tx, rng *rand.Rand, w *world) {
	id := fmt.Sprint("id", rng.IntN(60))
	old, there := w.things[id]
	v := randomThing(rng)
	var err error
	var want any
	switch rng.IntN(5) {
	case 0, 1:
		err = things.Insert(tx, id, &v)
		if there {
			want = store.ErrExists
		} else if w.named(id, v.Name) {
			want = &store.UniqueError{Kind: "things", Index: "name"}
		} else {
			w.things[id] = v
		}
	case 2:
		_, err = things.Update(tx, id, func(p *thing) error {
			if !reflect.DeepEqual(*p, old) {
				t.Errorf("Update sees %+v, want %+v", *p, old)
			}
			*p = v
			return nil
		})
		if !there {
			want = store.ErrNotFound
		} else if w.named(id, v.Name) {
			want = &store.UniqueError{Kind: "things", Index: "name"}
		} else {
			w.things[id] = v
		}
	case 3:
		err = things.Delete(tx, id)
		if !there {
			want = store.ErrNotFound
		}
		delete(w.things, id)
	case 4:
		log := w.events[id]
		if rng.IntN(6) == 0 {
			err = store.DropEvents(tx, "things", id)
			delete(w.events, id)
			break
		}
		data := fmt.Sprint(rng.Uint64())
		var seq uint64
		seq, err = store.AppendEvent(tx, "things", id, []byte(data))
		if seq != uint64(len(log)+1) {
			t.Errorf("event number %d of %s, want %d", seq, id, len(log)+1)
		}
		w.events[id] = append(slices.Clip(log), data)
	}
	var clash *store.UniqueError
	switch want := want.(type) {
	case nil:
		if err != nil {
			t.Errorf("on %s: %v", id, err)
		}
	case *store.UniqueError:
		if !errors.As(err, &clash) || *clash != *want {
			t.Errorf("on %s: %v, want %v", id, err, want)
		}
	case error:
		if !errors.Is(err, want) {
			t.Errorf("on %s: %v, want %v", id, err, want)
		}
	}
}

// compare reads everything back through each index, in pages of a random size, in
// both directions.
func compare(t *testing.T, tx *store.Tx, rng *rand.Rand, w world) {
	t.Helper()
	want := map[string][]string{} // index -> sorted "key id" of each entry
	for id, v := range w.things {
		want[""] = append(want[""], id)
		if v.Name != "" {
			want["name"] = append(want["name"], v.Name)
		}
		want["group"] = append(want["group"], v.Group+" "+id)
		for _, tag := range slices.Compact(slices.Sorted(slices.Values(v.Tags))) {
			want["tag"] = append(want["tag"], tag+" "+id)
		}
	}
	for _, index := range []string{"", "name", "group", "tag"} {
		slices.Sort(want[index])
		reverse := rng.IntN(2) == 0
		if reverse {
			slices.Reverse(want[index])
		}
		q := store.Page{Limit: 1 + rng.IntN(20), Reverse: reverse}
		for at := 0; ; {
			page, next, err := things.List(tx, index, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range page {
				if at >= len(want[index]) {
					t.Fatalf("index %q lists too much: %+v", index, v)
				}
				id := want[index][at]
				if index == "name" {
					if v.Name != id {
						t.Fatalf("index %q, place %d: %+v, want %s", index, at, v, id)
					}
				} else if exp := w.things[id[strings.LastIndex(id, " ")+1:]]; !reflect.DeepEqual(*v, exp) {
					t.Fatalf("index %q, place %d: %+v, want %+v", index, at, v, exp)
				}
				at++
			}
			if q.After = next; next == "" {
				if at != len(want[index]) {
					t.Fatalf("index %q lists %d of %d", index, at, len(want[index]))
				}
				break
			}
		}
	}
	for id, log := range w.events {
		events, err := store.Events(tx, "things", id, 0, 1000)
		if err != nil || len(events) != len(log) {
			t.Fatalf("%s has %d events, %v, want %d", id, len(events), err, len(log))
		}
		for i, e := range events {
			if string(e.Data) != log[i] {
				t.Fatalf("event %d of %s is %q, want %q", i+1, id, e.Data, log[i])
			}
		}
	}
}
