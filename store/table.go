package store

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MaxRecord bounds the encoded size of one record, event or value, in bytes.
const MaxRecord = 1 << 20

const (
	maxID  = 256  // bytes of a record id
	maxKey = 2048 // bytes of an index key
)

// Table stores records of type T as JSON under string ids. It holds only the
// description; the records live in the transaction that is passed in. Records are
// copied in and out, so a caller may change what it gave or got.
type Table[T any] struct {
	kind    string
	indexes []Index[T]
}

// Index describes one index of a table. Key returns the keys of a record: several,
// one, or none to leave the record out. It must be a pure function of the record.
type Index[T any] struct {
	Name   string
	Unique bool // no two records may share a key; Lookup works only here
	Key    func(*T) [][]byte
}

// NewTable describes the table kind. It is meant for package variables and panics
// on a description that can't work: an empty, reserved or doubled name.
func NewTable[T any](kind string, indexes ...Index[T]) *Table[T] {
	if kind == "" || kind == metaBucket || kind == eventBucket || strings.Contains(kind, ".") {
		panic(fmt.Sprintf("store: bad table name %q", kind))
	}
	seen := map[string]bool{}
	for _, ix := range indexes {
		if ix.Name == "" || strings.Contains(ix.Name, ".") || seen[ix.Name] || ix.Key == nil {
			panic(fmt.Sprintf("store: bad index %q of table %q", ix.Name, kind))
		}
		seen[ix.Name] = true
	}
	return &Table[T]{kind: kind, indexes: indexes}
}

// Kind returns the name of the table.
func (t *Table[T]) Kind() string { return t.kind }

// Insert adds a record. It returns ErrExists if the id is taken, *UniqueError if a
// unique key is, ErrTooLarge if the record is; then it has written nothing.
func (t *Table[T]) Insert(tx *Tx, id string, v *T) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("insert into %s: %w", t.kind, err)
	}
	if tx.get(t.kind, []byte(id)) != nil {
		return fmt.Errorf("%s %q: %w", t.kind, id, ErrExists)
	}
	_, err := t.write(tx, id, v, make([][][]byte, len(t.indexes)))
	return err
}

// Get returns a copy of a record, or ErrNotFound.
func (t *Table[T]) Get(tx *Tx, id string) (*T, error) {
	// bbolt would read an empty or oversized id as "absent" anyway.
	data := tx.get(t.kind, []byte(id))
	if data == nil {
		return nil, fmt.Errorf("%s %q: %w", t.kind, id, ErrNotFound)
	}
	return t.decode(id, data)
}

// Update changes a record: it reads it, runs fn on a copy, writes the copy with its
// index entries and returns what is now stored. If fn returns an error, Update
// returns that error and has written nothing; so it has for ErrNotFound,
// *UniqueError and ErrTooLarge.
func (t *Table[T]) Update(tx *Tx, id string, fn func(*T) error) (*T, error) {
	v, err := t.Get(tx, id)
	if err != nil {
		return nil, err
	}
	before, err := t.keys(id, v)
	if err != nil {
		return nil, err
	}
	if err := fn(v); err != nil {
		return nil, err
	}
	return t.write(tx, id, v, before)
}

// Delete removes a record and its index entries, or returns ErrNotFound. Its events
// stay until DropEvents.
func (t *Table[T]) Delete(tx *Tx, id string) error {
	v, err := t.Get(tx, id)
	if err != nil {
		return err
	}
	before, err := t.keys(id, v)
	if err != nil {
		return err
	}
	if err := t.reindex(tx, id, before, make([][][]byte, len(t.indexes))); err != nil {
		return err
	}
	return tx.del(t.kind, []byte(id))
}

// write stores v, moves its index entries from before to its own, and returns the
// stored record. The keys come from the record as it will be read back: JSON may
// not hold all that v does (it mends broken UTF-8), and an index must agree with
// what is stored. All checks come before the first write, so that an error leaves
// the transaction clean.
func (t *Table[T]) write(tx *Tx, id string, v *T, before [][][]byte) (*T, error) {
	if !tx.Writable() {
		return nil, fmt.Errorf("%s %q: %w", t.kind, id, ErrReadOnly)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", t.kind, id, err)
	}
	if len(data) > MaxRecord {
		return nil, fmt.Errorf("%s %q: record of %d bytes: %w", t.kind, id, len(data), ErrTooLarge)
	}
	stored, err := t.decode(id, data)
	if err != nil {
		return nil, err
	}
	after, err := t.keys(id, stored)
	if err != nil {
		return nil, err
	}
	if err := t.checkUnique(tx, id, after); err != nil {
		return nil, err
	}
	if err := t.reindex(tx, id, before, after); err != nil {
		return nil, err
	}
	if err := tx.put(t.kind, []byte(id), data); err != nil {
		return nil, fmt.Errorf("%s %q: %w", t.kind, id, err)
	}
	return stored, nil
}

// decode reads the stored form of a record.
func (t *Table[T]) decode(id string, data []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("decode %s %q: %w", t.kind, id, err)
	}
	return v, nil
}

// checkID refuses ids that could not be told apart inside an index key.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrInvalidID)
	case len(id) > maxID:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidID, len(id), maxID)
	case strings.Contains(id, separator):
		return fmt.Errorf("%w: holds a zero byte", ErrInvalidID)
	}
	return nil
}
