package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"athanor/server/kit"
	"athanor/store"
	"athanor/store/resource"
)

const (
	useEvery = time.Minute      // a key's last use is written at most this often
	useDelay = 10 * time.Second // uses are gathered for so long and written together
)

// uses keeps when keys were last used, and writes it beside the requests.
type uses struct {
	kit kit.Kit
	db  *store.DB

	mu      sync.Mutex // guards what follows
	noted   map[resource.KeyID]time.Time
	pending map[resource.KeyID]time.Time
	timer   *time.Timer // runs while something is pending
	writing sync.WaitGroup
	closed  bool
}

func newUses(k kit.Kit, db *store.DB) *uses {
	return &uses{kit: k, db: db, noted: map[resource.KeyID]time.Time{}, pending: map[resource.KeyID]time.Time{}}
}

// note says that a key was used at now. It never waits for the store.
func (u *uses) note(id resource.KeyID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, ok := u.noted[id]; u.closed || ok && now.Sub(last) < useEvery {
		return
	}
	u.noted[id], u.pending[id] = now, now
	if u.timer == nil {
		u.writing.Add(1)
		u.timer = time.AfterFunc(useDelay, func() {
			defer u.writing.Done()
			if err := u.flush(); err != nil {
				u.kit.Log.Warn("the last use of keys is not written", "err", err)
			}
		})
	}
}

// flush writes what is pending in one transaction.
func (u *uses) flush() error {
	u.mu.Lock()
	pending := u.pending
	u.pending, u.timer = map[resource.KeyID]time.Time{}, nil
	u.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	err := u.db.Update(context.Background(), func(tx *store.Tx) error {
		for id, at := range pending {
			_, err := store.Keys.Update(tx, string(id), func(k *resource.APIKey) error {
				k.LastUsedAt = &at
				return nil
			})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the last use of %d keys: %w", len(pending), err)
	}
	return nil
}

// close writes the rest; uses after it are not noted.
func (u *uses) close() error {
	u.mu.Lock()
	u.closed = true
	if u.timer != nil && u.timer.Stop() {
		u.writing.Done()
	}
	u.mu.Unlock()
	u.writing.Wait()
	return u.flush()
}
