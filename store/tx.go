package store

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
)

// Tx is a transaction. It belongs to the function that View or Update gave it to
// and is dead after that function returns.
type Tx struct {
	bolt  *bolt.Tx
	wrote bool // something was put or deleted through this Tx
}

// Writable reports whether the transaction came from Update.
func (tx *Tx) Writable() bool { return tx.bolt.Writable() }

// end makes later use of a kept Tx fail at once instead of reading freed pages.
func (tx *Tx) end() { tx.bolt = nil }

// bucket returns a top-level bucket, nil if it does not exist yet.
func (tx *Tx) bucket(name string) *bolt.Bucket { return tx.bolt.Bucket([]byte(name)) }

// get returns a value of a top-level bucket, nil if absent. The bytes are valid
// only inside the transaction and must not be changed.
func (tx *Tx) get(bucket string, key []byte) []byte {
	b := tx.bucket(bucket)
	if b == nil {
		return nil
	}
	return b.Get(key)
}

// put writes a value into a top-level bucket, making the bucket if needed.
func (tx *Tx) put(bucket string, key, value []byte) error {
	b, err := tx.makeBucket(bucket)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

// del removes a key from a top-level bucket; an absent key is fine.
func (tx *Tx) del(bucket string, key []byte) error {
	if !tx.Writable() {
		return ErrReadOnly
	}
	b := tx.bucket(bucket)
	if b == nil {
		return nil
	}
	tx.wrote = true
	return b.Delete(key)
}

// makeBucket returns the bucket at the path of names, making what is missing.
func (tx *Tx) makeBucket(names ...string) (*bolt.Bucket, error) {
	if !tx.Writable() {
		return nil, ErrReadOnly
	}
	tx.wrote = true
	b, err := tx.bolt.CreateBucketIfNotExists([]byte(names[0]))
	for _, name := range names[1:] {
		if err != nil {
			return nil, err
		}
		b, err = b.CreateBucketIfNotExists([]byte(name))
	}
	return b, err
}

// findBucket returns the bucket at the path of names, nil if any of it is missing.
func (tx *Tx) findBucket(names ...string) *bolt.Bucket {
	b := tx.bucket(names[0])
	for _, name := range names[1:] {
		if b == nil {
			return nil
		}
		b = b.Bucket([]byte(name))
	}
	return b
}

// scan walks the keys of b that start with prefix, strictly after the key after
// (nil: from the edge), forwards or in reverse, until yield returns false.
func scan(b *bolt.Bucket, prefix, after []byte, reverse bool, yield func(k, v []byte) bool) {
	if b == nil {
		return
	}
	c := b.Cursor()
	step := c.Next
	if reverse {
		step = c.Prev
	}
	k, v := first(c, prefix, after, reverse)
	for ; k != nil && bytes.HasPrefix(k, prefix); k, v = step() {
		if !yield(k, v) {
			return
		}
	}
}

// first puts the cursor on the first key of a scan. An after outside the prefix
// cannot widen the scan: before it, it is ignored; behind it, the scan is empty.
func first(c *bolt.Cursor, prefix, after []byte, reverse bool) (k, v []byte) {
	if !reverse {
		if bytes.Compare(after, prefix) < 0 {
			return c.Seek(prefix)
		}
		if k, v = c.Seek(after); bytes.Equal(k, after) && after != nil {
			return c.Next()
		}
		return k, v
	}
	end := successor(prefix)
	if after != nil && (end == nil || bytes.Compare(after, end) < 0) {
		end = after
	}
	if end == nil {
		return c.Last()
	}
	if k, _ = c.Seek(end); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// successor returns the smallest key above every key with the prefix, nil if there
// is none.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
