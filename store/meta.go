package store

import (
	"bytes"
	"fmt"
)

const metaBucket = "meta"

// MetaValues are the organisation-wide values: few, small, each under its own
// name. The name "schema" belongs to Open.
type MetaValues struct{ tx *Tx }

// Meta gives access to the organisation-wide values inside a transaction.
func Meta(tx *Tx) MetaValues { return MetaValues{tx} }

// Get returns a copy of the value, or ErrNotFound.
func (m MetaValues) Get(name string) ([]byte, error) {
	v := m.tx.get(metaBucket, []byte(name))
	if v == nil || name == schemaKey {
		return nil, fmt.Errorf("meta value %q: %w", name, ErrNotFound)
	}
	return append(make([]byte, 0, len(v)), v...), nil
}

// Put sets the value. It copies it.
func (m MetaValues) Put(name string, value []byte) error {
	if err := checkID(name); err != nil {
		return fmt.Errorf("meta value: %w", err)
	}
	if name == schemaKey {
		return fmt.Errorf("meta value %q: %w: reserved", name, ErrInvalidID)
	}
	if len(value) > MaxRecord {
		return fmt.Errorf("meta value %q: %d bytes: %w", name, len(value), ErrTooLarge)
	}
	if err := m.tx.put(metaBucket, []byte(name), bytes.Clone(value)); err != nil {
		return fmt.Errorf("meta value %q: %w", name, err)
	}
	return nil
}
