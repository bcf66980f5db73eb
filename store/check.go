package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// maxFaults bounds how many faults Check reports.
const maxFaults = 20

// Checked is a table whose records Check can compare with its indexes; every
// [Table] is one.
type Checked interface {
	check(tx *Tx) error
}

// Check verifies the pages of the file, that the indexes of the appliance's tables
// and of more agree with their records, and the event logs. It reads everything.
// Call it inside Update, or where nothing writes: bbolt can't check pages that
// are changing.
func Check(tx *Tx, more ...Checked) error {
	faults := []error{checkPages(tx)}
	if _, err := getSchema(tx); err != nil {
		faults = append(faults, err)
	}
	for _, t := range append(builtin(), more...) {
		faults = append(faults, t.check(tx))
	}
	return errors.Join(append(faults, checkEvents(tx))...)
}

// checkPages runs bbolt's own check to its end, which frees its goroutine.
func checkPages(tx *Tx) error {
	var faults []error
	for err := range tx.bolt.Check() {
		if len(faults) < maxFaults {
			faults = append(faults, fmt.Errorf("pages: %w", err))
		}
	}
	return errors.Join(faults...)
}

// check holds every record against its index entries. If each record finds all of
// its own and the numbers are equal, then no stray entry exists either.
func (t *Table[T]) check(tx *Tx) error {
	var faults []error
	want := make([]int, len(t.indexes))
	err := t.each(tx, func(id string, v *T) error {
		keys, err := t.keys(id, v)
		if err == nil {
			err = checkID(id)
		}
		if err != nil {
			return err
		}
		for i := range t.indexes {
			want[i] += len(keys[i])
			for _, key := range keys[i] {
				if owner := tx.get(t.bucket(i), key); string(owner) != id && len(faults) < maxFaults {
					faults = append(faults, fmt.Errorf("index %s: an entry of %q leads to %q", t.bucket(i), id, owner))
				}
			}
		}
		return nil
	})
	for i := range t.indexes {
		have := 0
		scan(tx.bucket(t.bucket(i)), nil, nil, false, func(_, _ []byte) bool { have++; return true })
		if err == nil && have != want[i] {
			faults = append(faults, fmt.Errorf("index %s has %d entries, its records make %d", t.bucket(i), have, want[i]))
		}
	}
	return errors.Join(append(faults, err)...)
}

// checkEvents verifies that each log is numbered without gaps up to its sequence.
func checkEvents(tx *Tx) error {
	root := tx.bucket(eventBucket)
	if root == nil {
		return nil
	}
	return root.ForEachBucket(func(kind []byte) error {
		logs := root.Bucket(kind)
		return logs.ForEachBucket(func(id []byte) error {
			if err := checkLog(logs.Bucket(id)); err != nil {
				return fmt.Errorf("events of %s %q: %w", kind, id, err)
			}
			return nil
		})
	})
}

func checkLog(log *bolt.Bucket) error {
	next := uint64(1)
	err := log.ForEach(func(k, _ []byte) error {
		if len(k) != 8 || binary.BigEndian.Uint64(k) != next {
			return fmt.Errorf("key %x where %d belongs", k, next)
		}
		next++
		return nil
	})
	if err == nil && log.Sequence() != next-1 {
		err = fmt.Errorf("%d events, but the last number is %d", next-1, log.Sequence())
	}
	return err
}
