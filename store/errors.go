package store

import (
	"errors"
	"fmt"
)

// Returned by Open.
var (
	// ErrLocked is returned when another process has the database open.
	ErrLocked = errors.New("the database is in use by another process")
	// ErrCorrupt is returned when the file is not a whole database of this program.
	ErrCorrupt = errors.New("the database file is damaged or not a database of this program")
)

// Returned by transactions and tables.
var (
	// ErrClosed is returned by View and Update after Close.
	ErrClosed = errors.New("the database is closed")
	// ErrGone is returned by Update when the open file was deleted or replaced.
	ErrGone = errors.New("the database file is gone from its path")
	// ErrReadOnly is returned by a write inside View.
	ErrReadOnly = errors.New("write in a read-only transaction")
	// ErrNotFound is returned when there is no such record or value.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned by Insert when the id is taken.
	ErrExists = errors.New("already exists")
	// ErrInvalidID is returned for an id that is empty, too long or holds a zero byte.
	ErrInvalidID = errors.New("invalid id")
	// ErrTooLarge is returned for a record, event, value or index key over its limit.
	ErrTooLarge = errors.New("too large to store")
	// ErrBadCursor is returned by List for an After that no List produced.
	ErrBadCursor = errors.New("invalid cursor")
)

// UniqueError is returned by Insert and Update when another record already has
// the key in a unique index. Nothing was written.
type UniqueError struct {
	Kind  string // table
	Index string // index that clashed
}

// Error names the table and the index, never the key, which may be a secret.
func (e *UniqueError) Error() string {
	return fmt.Sprintf("%s: another record has the same %s", e.Kind, e.Index)
}

// SchemaTooNew is returned by Open for a file that a newer program has written.
// The file is untouched.
type SchemaTooNew struct {
	Have int // version of the file
	Want int // newest version that this program understands
}

// Error says which version is needed.
func (e *SchemaTooNew) Error() string {
	return fmt.Sprintf("the database has schema %d, this program understands up to %d: use the newer program, or restore a backup made before its upgrade", e.Have, e.Want)
}
