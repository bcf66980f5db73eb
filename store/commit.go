package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// maxGroup bounds how many calls share one commit, and so the memory of one.
const maxGroup = 256

// Group commit
//
// One goroutine owns the write transaction. It takes every caller that is waiting,
// lends the transaction to each in turn, commits once, and then answers them all.
// While the disk syncs, the next group gathers by itself: no timer, and a lone
// writer never waits for company.
//
//	caller                     committer
//	  │ ── call ───────────────▶ │  gather the group
//	  │ ◀── step{tx} ─────────── │  your turn
//	  │ ── outcome ────────────▶ │  (again, if the group had to be redone)
//	  │ ◀── step{final, err} ─── │  committed, or not
//
// The function runs on its caller's goroutine, so a panic (or a test's FailNow)
// unwinds there and the committer only learns that the caller is gone.

// call is one Update on its way through the committer.
type call struct {
	ctx  context.Context
	fn   func(*Tx) error
	step chan step
	ran  chan outcome
	gone bool // the committer's note that fn panicked: nobody listens any more
}

// step is what the committer tells a caller: run now, or the final answer.
type step struct {
	tx    *Tx
	final bool
	err   error
}

// outcome is how one run of a caller's function ended.
type outcome struct {
	err   error
	wrote bool
	gone  bool
}

// spoils reports whether the run left writes that must not be committed.
func (o outcome) spoils() bool { return o.wrote && (o.err != nil || o.gone) }

// follow plays the caller's side until the final answer.
func (c *call) follow() error {
	for {
		s := <-c.step
		if s.final {
			return s.err
		}
		c.run(s.tx)
	}
}

// run lends tx to the function and reports how it ended, also when it panics.
func (c *call) run(tx *Tx) {
	o := outcome{gone: true}
	defer func() {
		o.wrote = tx.wrote
		tx.end()
		c.ran <- o
	}()
	o.err = c.fn(tx)
	o.gone = false
}

// try gives the caller its turn on b and waits for the outcome.
func (c *call) try(b *bolt.Tx) outcome {
	if c.gone {
		return outcome{gone: true}
	}
	if err := c.ctx.Err(); err != nil {
		return outcome{err: err}
	}
	c.step <- step{tx: &Tx{bolt: b}}
	o := <-c.ran
	c.gone = o.gone
	return o
}

// answer ends the call.
func (c *call) answer(err error) {
	if !c.gone {
		c.step <- step{final: true, err: err}
	}
}

// commitLoop is the committer; it ends when the database closes.
func (db *DB) commitLoop() {
	for {
		select {
		case c := <-db.calls:
			db.commitGroup(db.gather(c))
		case <-db.closing:
			return
		}
	}
}

// gather adds to first whoever else is waiting right now. When nobody is, it
// yields once: callers that were just answered are often about to write again,
// and half of them would otherwise miss each commit.
func (db *DB) gather(first *call) []*call {
	group := []*call{first}
	for yielded := false; len(group) < maxGroup; {
		select {
		case c := <-db.calls:
			group = append(group, c)
			yielded = false
		default:
			if yielded {
				return group
			}
			yielded = true
			runtime.Gosched()
		}
	}
	return group
}

// commitGroup commits the calls together. A call that fails after it has written
// spoils the transaction: the others are redone without it, and then it is redone
// alone, because its failure may have come from what a neighbour wrote.
func (db *DB) commitGroup(group []*call) {
	var alone []*call
	for len(group) > 0 {
		spoiler := db.attempt(group)
		if spoiler < 0 {
			break
		}
		if len(group) > 1 {
			alone = append(alone, group[spoiler])
		}
		group = append(group[:spoiler:spoiler], group[spoiler+1:]...)
	}
	for _, c := range alone {
		db.attempt([]*call{c})
	}
}

// attempt runs the group in one transaction and answers everyone. Only if a call
// spoils a transaction that it shares, nothing is written or answered; the place
// of the spoiler is returned, else -1.
func (db *DB) attempt(group []*call) int {
	b, err := db.bolt.Begin(true)
	if err != nil {
		for _, c := range group {
			c.answer(closedOr(err))
		}
		return -1
	}
	results := make([]outcome, len(group))
	var writers uint64
	for i, c := range group {
		results[i] = c.try(b)
		switch {
		case results[i].spoils() && len(group) == 1:
			rollback(b)
			c.answer(results[i].err)
			return -1
		case results[i].spoils():
			rollback(b)
			return i
		case results[i].wrote:
			writers++
		}
	}
	if writers == 0 { // spare the disk an empty commit
		rollback(b)
	} else if err = db.Present(); err != nil {
		rollback(b)
	} else if err = b.Commit(); err == nil {
		db.stats.commits.Add(1)
		db.stats.updates.Add(writers)
	}
	for i, c := range group {
		// What a call concluded from its neighbours' writes is void if those
		// failed, so the error of the commit goes first.
		if err != nil {
			c.answer(fmt.Errorf("commit: %w", err))
		} else {
			c.answer(results[i].err)
		}
	}
	return -1
}

// rollback drops the transaction; it can fail only on a transaction that is over.
func rollback(b *bolt.Tx) {
	if err := b.Rollback(); err != nil {
		panic("store: rollback of a finished transaction: " + err.Error())
	}
}

// closedOr translates bbolt's answer for a closed file.
func closedOr(err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
