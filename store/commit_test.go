package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"athanor/store"
	"athanor/store/storetest"
)

// gathered runs the updates as one group: a first update holds the writer until
// all of them wait. It returns what each of them returned, or panicked with.
func gathered(t *testing.T, db *store.DB, fns ...func(*store.Tx) error) []any {
	t.Helper()
	hold := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = db.Update(t.Context(), func(*store.Tx) error { <-hold; return nil })
	})
	synctest.Wait()
	results := make([]any, len(fns))
	for i, fn := range fns {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					results[i] = p
				}
			}()
			results[i] = db.Update(t.Context(), fn)
		})
		synctest.Wait() // so that they queue in order
	}
	close(hold)
	wg.Wait()
	return results
}

func put(id string, err error) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		if e := things.Insert(tx, id, &thing{Name: id}); e != nil {
			return e
		}
		return err
	}
}

// ids returns which of the ids exist.
func ids(t *testing.T, db *store.DB, ids ...string) (found []string) {
	t.Helper()
	mustView(t, db, func(tx *store.Tx) error {
		for _, id := range ids {
			if _, err := things.Get(tx, id); err == nil {
				found = append(found, id)
			}
		}
		return nil
	})
	return found
}

func TestWaitingUpdatesShareOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		before := db.Stats()
		var fns []func(*store.Tx) error
		for i := range 50 {
			fns = append(fns, put(fmt.Sprint(i), nil))
		}
		for i, r := range gathered(t, db, fns...) {
			if r != nil {
				t.Errorf("update %d: %v", i, r)
			}
		}
		after := db.Stats()
		if n := after.Updates - before.Updates; n != 50 {
			t.Errorf("%d updates counted, want 50", n)
		}
		if n := after.Commits - before.Commits; n != 1 {
			t.Errorf("50 waiting updates took %d commits, want 1", n)
		}
	})
}

func TestGroupMembersFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		errMine := errors.New("mine")
		got := gathered(t, db,
			put("a", nil),
			put("b", errMine),
			func(tx *store.Tx) error { _ = things.Insert(tx, "c", &thing{}); panic("boom") },
			put("d", nil),
			func(*store.Tx) error { panic("boom before a write") },
			put("e", errMine),
			func(tx *store.Tx) error { return things.Insert(tx, "a", &thing{}) }, // a is its neighbour's
			put("f", nil),
		)
		want := []any{nil, errMine, "boom", nil, "boom before a write", errMine, store.ErrExists, nil}
		for i := range want {
			wantErr, isErr := want[i].(error)
			gotErr, _ := got[i].(error)
			if got[i] != want[i] && (!isErr || !errors.Is(gotErr, wantErr)) {
				t.Errorf("update %d ended with %v, want %v", i, got[i], want[i])
			}
		}
		if found := ids(t, db, "a", "b", "c", "d", "e", "f"); fmt.Sprint(found) != "[a d f]" {
			t.Errorf("records %v exist, want [a d f]", found)
		}
	})
}

// A failure that came from a neighbour's doomed write must not stick.
func TestFailureBecauseOfASpoilerIsRedone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		got := gathered(t, db, put("a", errors.New("mine")), put("a", nil))
		if got[0] == nil || got[1] != nil {
			t.Errorf("updates ended with %v and %v, want an error and nil", got[0], got[1])
		}
		if found := ids(t, db, "a"); len(found) != 1 {
			t.Error("the second insert of a is missing")
		}
	})
}

func TestSpoilerSucceedsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		runs := 0
		got := gathered(t, db, put("a", nil), func(tx *store.Tx) error {
			if runs++; runs == 1 {
				return put("b", errors.New("only in company"))(tx)
			}
			return put("b", nil)(tx)
		})
		if got[0] != nil || got[1] != nil || runs != 2 {
			t.Errorf("updates ended with %v and %v after %d runs", got[0], got[1], runs)
		}
		if found := ids(t, db, "a", "b"); len(found) != 2 {
			t.Errorf("records %v exist, want a and b", found)
		}
	})
}

func TestCallerThatExitsItsGoroutine(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = db.Update(context.Background(), func(tx *store.Tx) error {
			_ = things.Insert(tx, "a", &thing{})
			runtime.Goexit() // what FailNow does
			return nil
		})
	}()
	<-done
	mustUpdate(t, db, put("b", nil))
	if found := ids(t, db, "a", "b"); fmt.Sprint(found) != "[b]" {
		t.Errorf("records %v exist, want [b]", found)
	}
}

func TestUpdateHonoursContextUntilItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		hold := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = db.Update(t.Context(), func(*store.Tx) error { <-hold; return nil })
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- db.Update(ctx, put("a", nil)) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiting update after its cancellation: %v", err)
		}
		close(hold)
		wg.Wait()
		if err := db.Update(ctx, put("a", nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("an update that begins cancelled: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		err := db.Update(ctx, func(tx *store.Tx) error { cancel(); return put("b", nil)(tx) })
		if err != nil {
			t.Errorf("cancelled while it ran: %v, want nil because it was committed", err)
		}
		if found := ids(t, db, "a", "b"); fmt.Sprint(found) != "[b]" {
			t.Errorf("records %v exist, want [b]", found)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t, things)
		hold := make(chan struct{})
		var running, waiting, closing error
		var wg sync.WaitGroup
		wg.Go(func() {
			running = db.Update(t.Context(), func(tx *store.Tx) error { <-hold; return put("a", nil)(tx) })
		})
		synctest.Wait()
		wg.Go(func() { waiting = db.Update(t.Context(), put("b", nil)) })
		synctest.Wait()
		wg.Go(func() { closing = db.Close() })
		synctest.Wait()
		close(hold)
		wg.Wait()
		// The committer may take the waiting call before it sees that it has to stop.
		if running != nil || (waiting != nil && !errors.Is(waiting, store.ErrClosed)) || closing != nil {
			t.Errorf("running: %v, waiting: %v, Close: %v", running, waiting, closing)
		}
		if err := db.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if err := db.Update(t.Context(), put("c", nil)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Update after Close: %v", err)
		}
		if err := db.View(func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
			t.Errorf("View after Close: %v", err)
		}
	})
}

func TestManyWriters(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	const writers, each = 16, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				var seq uint64
				err := db.Update(t.Context(), func(tx *store.Tx) (err error) {
					id := fmt.Sprint(w, "-", i)
					if err := things.Insert(tx, id, &thing{Name: id, Group: fmt.Sprint(w)}); err != nil {
						return err
					}
					if seq, err = store.AppendEvent(tx, "writers", fmt.Sprint(w), nil); err != nil {
						return err
					}
					if i%5 == 4 {
						return errors.New("undo")
					}
					return nil
				})
				if i%5 == 4 {
					if err == nil {
						t.Error("an update that failed returned nil")
					}
				} else if want := uint64(i - i/5 + 1); err != nil || seq != want {
					t.Errorf("writer %d, update %d: event %d, want %d, %v", w, i, seq, want, err)
				}
			}
		})
	}
	wg.Wait()
	mustView(t, db, func(tx *store.Tx) error {
		list, _, err := things.List(tx, "", store.Page{Limit: 1000})
		if want := writers * each * 4 / 5; len(list) != want {
			t.Errorf("%d records, want %d", len(list), want)
		}
		return err
	})
}

func TestKeptTransactionIsDead(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, things)
	var kept *store.Tx
	mustView(t, db, func(tx *store.Tx) error { kept = tx; return nil })
	defer func() {
		if recover() == nil {
			t.Error("a transaction was usable after its end")
		}
	}()
	_, _ = things.Get(kept, "a")
}
