package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	bolterrors "go.etcd.io/bbolt/errors"
)

const eventBucket = "events"

// Event is one entry in the log of a record.
type Event struct {
	Seq  uint64 // 1, 2, 3, ... within the record's log
	Data []byte // as it was appended
}

// AppendEvent adds data to the log of the record kind/id and returns its number.
// Numbers start at 1, have no gaps, and are not used again as long as the log
// lives. The record need not exist.
func AppendEvent(tx *Tx, kind, id string, data []byte) (seq uint64, err error) {
	if err := checkID(id); err != nil {
		return 0, fmt.Errorf("append event of %s: %w", kind, err)
	}
	if len(data) > MaxRecord {
		return 0, fmt.Errorf("event of %s %q: %d bytes: %w", kind, id, len(data), ErrTooLarge)
	}
	b, err := tx.makeBucket(eventBucket, kind, id)
	if err != nil {
		return 0, fmt.Errorf("append event of %s %q: %w", kind, id, err)
	}
	if seq, err = b.NextSequence(); err != nil {
		return 0, fmt.Errorf("number event of %s %q: %w", kind, id, err)
	}
	if err := b.Put(seqKey(seq), data); err != nil {
		return 0, fmt.Errorf("append event of %s %q: %w", kind, id, err)
	}
	return seq, nil
}

// Events returns the events of kind/id numbered above after, oldest first, at most
// limit (bounded as Page.Limit). No log means no events.
func Events(tx *Tx, kind, id string, after uint64, limit int) ([]Event, error) {
	limit = pageLimit(limit)
	var list []Event
	var fail error
	scan(tx.findBucket(eventBucket, kind, id), nil, seqKey(after), false, func(k, data []byte) bool {
		if len(k) != 8 {
			fail = fmt.Errorf("events of %s %q: key of %d bytes", kind, id, len(k))
			return false
		}
		// The make keeps an empty event an empty slice, never nil.
		list = append(list, Event{Seq: binary.BigEndian.Uint64(k), Data: append(make([]byte, 0, len(data)), data...)})
		return len(list) < limit
	})
	return list, fail
}

// DropEvents removes the log of kind/id; no log is fine.
func DropEvents(tx *Tx, kind, id string) error {
	b := tx.findBucket(eventBucket, kind)
	if b == nil || b.Bucket([]byte(id)) == nil {
		return nil
	}
	if !tx.Writable() {
		return ErrReadOnly
	}
	tx.wrote = true
	return b.DeleteBucket([]byte(id))
}

// dropBucket removes a top-level bucket; an absent one is fine.
func (tx *Tx) dropBucket(name string) error {
	if !tx.Writable() {
		return ErrReadOnly
	}
	tx.wrote = true
	if err := tx.bolt.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
		return fmt.Errorf("drop %s: %w", name, err)
	}
	return nil
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
