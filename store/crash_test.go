package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"athanor/store"
	"athanor/store/storetest"
)

// crashEnv names the database that the child of the crash test writes to.
const crashEnv = "ATHANOR_STORE_CRASH"

// crashChild writes from several goroutines until it is killed and prints each id
// after its Update has returned.
func crashChild(path string) {
	db, err := store.Open(path, store.Options{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var mu sync.Mutex // guards stdout: one line at a time
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				err := db.Update(context.Background(), func(tx *store.Tx) error { return crashWrite(tx, id) })
				mu.Lock()
				if err != nil {
					fmt.Println("error", err)
				} else {
					fmt.Println(id)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// crashWrite writes a record with index entries, its event, and a counter.
func crashWrite(tx *store.Tx, id string) error {
	v := &thing{Name: id, Group: strings.Repeat(id, 20), Tags: []string{"t", id}}
	if err := things.Insert(tx, id, v); err != nil {
		return err
	}
	if _, err := store.AppendEvent(tx, "things", id, []byte("made")); err != nil {
		return err
	}
	n := 0
	if old, err := store.Meta(tx).Get("count"); err == nil {
		if n, err = strconv.Atoi(string(old)); err != nil {
			return err
		}
	}
	return store.Meta(tx).Put("count", strconv.AppendInt(nil, int64(n+1), 10))
}

// TestKilledWriterLosesNothing kills a writing process again and again. This
// proves the commits against a dying program, not against a dying disk: the
// page cache survives SIGKILL.
func TestKilledWriterLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: starts and kills processes")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "athanor.db")
	acked := map[string]bool{}
	for round := range 5 {
		for _, id := range killedWriter(t, path, 40+60*round) {
			acked[id] = true
		}
		db := storetest.OpenAt(t, path, things)
		checkAcked(t, db, acked)
		storetest.Close(t, db, things)
	}
	t.Logf("%d acknowledged updates survived 5 kills", len(acked))
}

// killedWriter runs the child on path, kills it after n acknowledgements and
// returns all that it has printed.
func killedWriter(t *testing.T, path string, n int) (ids []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "error") {
			t.Errorf("the child reports %s", lines.Text())
		}
		if ids = append(ids, lines.Text()); len(ids) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(ids) < n {
		t.Fatalf("the child ended by itself after %d of %d updates: %v", len(ids), n, err)
	}
	return ids
}

// checkAcked looks for each acknowledged record, its event and the counter.
func checkAcked(t *testing.T, db *store.DB, acked map[string]bool) {
	t.Helper()
	mustView(t, db, func(tx *store.Tx) error {
		for id := range acked {
			if _, err := things.Lookup(tx, "name", []byte(id)); err != nil {
				t.Errorf("acknowledged and lost: %v", err)
			}
			if events, err := store.Events(tx, "things", id, 0, 10); err != nil || len(events) != 1 {
				t.Errorf("%s has %d events, %v, want 1", id, len(events), err)
			}
		}
		records := 0
		for q := (store.Page{Limit: 1000}); ; {
			list, next, err := things.List(tx, "", q)
			if err != nil {
				return err
			}
			if records += len(list); next == "" {
				break
			}
			q.After = next
		}
		count, err := store.Meta(tx).Get("count")
		if string(count) != strconv.Itoa(records) || records < len(acked) {
			t.Errorf("%d acknowledged, %d records, counter %s", len(acked), records, count)
		}
		return err
	})
}
