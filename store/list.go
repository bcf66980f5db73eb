package store

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// Page selects a run of an index.
type Page struct {
	Prefix  []byte // only keys that start so; see Key
	After   string // cursor of the previous page; "" for the first
	Limit   int    // records at most: 0 means 100, more than 1000 means 1000
	Reverse bool   // from the highest key down; keep it the same from page to page
}

// Lookup returns a copy of the record that has the key in a unique index, or
// ErrNotFound.
func (t *Table[T]) Lookup(tx *Tx, index string, key []byte) (*T, error) {
	i, err := t.find(index)
	if err != nil {
		return nil, err
	}
	if !t.indexes[i].Unique {
		return nil, fmt.Errorf("look up in %s: the index is not unique", t.bucket(i))
	}
	id := tx.get(t.bucket(i), key)
	if id == nil {
		return nil, fmt.Errorf("%s by %s: %w", t.kind, index, ErrNotFound)
	}
	return t.Get(tx, string(id))
}

// List returns copies of the records of one page in the order of an index, or of
// ids when index is "", and the cursor for the next page, "" after the last one.
// A cursor stays good when records come and go. It is opaque to clients, but not
// secret and not signed; it can't lead outside Prefix. A malformed one gives
// ErrBadCursor.
func (t *Table[T]) List(tx *Tx, index string, q Page) ([]*T, string, error) {
	bucket := t.kind
	if index != "" {
		i, err := t.find(index)
		if err != nil {
			return nil, "", err
		}
		bucket = t.bucket(i)
	}
	after, err := decodeCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	limit := pageLimit(q.Limit)
	var (
		list []*T
		last []byte
		next string
		fail error
	)
	scan(tx.bucket(bucket), q.Prefix, after, q.Reverse, func(k, value []byte) bool {
		if len(list) == limit {
			next = encodeCursor(last)
			return false
		}
		id := value
		if index == "" {
			id = k
		}
		var v *T
		if v, fail = t.Get(tx, string(id)); fail != nil {
			fail = fmt.Errorf("list %s: %w", bucket, fail)
			return false
		}
		list, last = append(list, v), bytes.Clone(k)
		return true
	})
	if fail != nil {
		return nil, "", fail
	}
	return list, next, nil
}

func pageLimit(n int) int {
	switch {
	case n <= 0:
		return defaultPage
	case n > maxPage:
		return maxPage
	}
	return n
}

func encodeCursor(key []byte) string { return base64.RawURLEncoding.EncodeToString(key) }

func decodeCursor(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > base64.RawURLEncoding.EncodedLen(maxKey+1+maxID) {
		return nil, fmt.Errorf("%w: %d bytes long", ErrBadCursor, len(s))
	}
	if strings.ContainsAny(s, "\r\n") { // the decoder would skip them
		return nil, fmt.Errorf("%w: it holds a line break", ErrBadCursor)
	}
	key, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCursor, err)
	}
	return key, nil
}
