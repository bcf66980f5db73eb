package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	defaultLockTimeout = 500 * time.Millisecond
	// initialMap is address space, not memory. Growing the map makes a writer wait
	// for every open reader, so start large.
	initialMap = 256 << 20
	fileMode   = 0o600
	minFile    = 4 * 4096 // two metas, the freelist and a leaf
)

// Options tunes Open. The zero value is what the appliance uses.
type Options struct {
	// LockTimeout is how long Open waits for another process to let go of the
	// file; zero means half a second.
	LockTimeout time.Duration
	// Migrations replaces the built-in list; nil means the built-in list.
	Migrations []Migration
}

// DB is an open database. Its methods may be called from any goroutine.
type DB struct {
	bolt  *bolt.DB
	file  os.FileInfo // what was opened, see Present
	calls chan *call
	stats struct{ updates, commits atomic.Uint64 }

	closing   chan struct{} // closed by Close: no new calls
	committer sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// Open opens the database at path, creating it if there is none, and brings its
// schema up to date. The directory must exist.
//
// It returns ErrLocked if another process has it open, ErrCorrupt if the file is
// damaged, *SchemaTooNew if a newer program wrote it; before the first migration
// of an upgrade the file is copied to path.v<N>.bak.
func Open(path string, opt Options) (*DB, error) {
	if opt.LockTimeout <= 0 {
		opt.LockTimeout = defaultLockTimeout
	}
	if opt.Migrations == nil {
		opt.Migrations = migrations
	}
	if err := checkMigrations(opt.Migrations); err != nil {
		return nil, err
	}
	if err := ensureFile(path, schemaOf(opt.Migrations)); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	b, err := openBolt(path, opt.LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), b.Close())
	}
	db := &DB{bolt: b, file: info, calls: make(chan *call), closing: make(chan struct{})}
	sweepUnborn(path)
	if err := db.migrate(path, opt.Migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), b.Close())
	}
	db.committer.Go(db.commitLoop)
	return db, nil
}

// openBolt takes the file lock and maps the file. Damage that bbolt meets as a
// panic, or as a fault on a page that the file no longer has, becomes ErrCorrupt.
func openBolt(path string, lock time.Duration) (b *bolt.DB, err error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.Size() < minFile {
		return nil, fmt.Errorf("%w: the file has only %d bytes", ErrCorrupt, info.Size())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	b, err = bolt.Open(path, fileMode, &bolt.Options{
		Timeout:         lock,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: initialMap,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%w (is athanor already running on this data directory?)", ErrLocked)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return nil, err
	}
	if err := checkLength(b); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// checkLength refuses a file that ends before its last used page: reading such a
// page later would fault.
func checkLength(b *bolt.DB) error {
	return b.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(b.Path())
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: the file has %d bytes of %d", ErrCorrupt, info.Size(), tx.Size())
		}
		return nil
	})
}

// Close waits for the transactions under way and closes the file. Updates that
// have not started return ErrClosed. Closing twice is harmless.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		db.committer.Wait()
		db.closeErr = db.bolt.Close()
	})
	return db.closeErr
}

// Present returns ErrGone when the file is no longer the one at its path: it was
// deleted or replaced, and the next start would not find what is written now.
func (db *DB) Present() error {
	info, err := os.Stat(db.bolt.Path())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if !os.SameFile(info, db.file) {
		return fmt.Errorf("%w: another file is at %s", ErrGone, db.bolt.Path())
	}
	return nil
}

// View runs fn on a consistent snapshot. fn must not keep tx, write through it,
// or start another transaction.
func (db *DB) View(fn func(*Tx) error) error {
	err := db.bolt.View(func(b *bolt.Tx) error {
		tx := &Tx{bolt: b}
		defer tx.end()
		return fn(tx)
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// Update runs fn in a write transaction and returns after its writes are on disk.
//
// Concurrent calls share one commit. Each is still all or nothing by itself: if fn
// returns an error or panics, its writes are undone and the others' are kept. For
// that fn may run more than once, each time on a fresh state, so it must set the
// variables it hands out anew on every run. It always runs on the goroutine that
// called Update, never at the same time as another write.
//
// Nothing is committed to a file that has gone from its path: Update returns ErrGone.
//
// ctx is looked at until fn runs: an error from ctx means that nothing was
// written. Once fn has run, Update waits for the commit.
//
// fn must not keep tx, and must not call View or Update: that would never return.
func (db *DB) Update(ctx context.Context, fn func(*Tx) error) error {
	c := &call{ctx: ctx, fn: fn, step: make(chan step), ran: make(chan outcome)}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return ErrClosed
	default:
	}
	select {
	case db.calls <- c:
		return c.follow()
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return ErrClosed
	}
}

// Stats counts since Open.
type Stats struct {
	Updates uint64 // calls of Update that were committed
	Commits uint64 // commits they shared, each one fsync
}

// Stats returns the counters of the group commit.
func (db *DB) Stats() Stats {
	return Stats{Updates: db.stats.updates.Load(), Commits: db.stats.commits.Load()}
}
