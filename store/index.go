package store

import (
	"bytes"
	"fmt"
	"slices"
)

// bucket is the name of the index's bucket.
func (t *Table[T]) bucket(i int) string { return t.kind + "." + t.indexes[i].Name }

// keys computes the bucket keys of v in each index, sorted and without doubles.
func (t *Table[T]) keys(id string, v *T) ([][][]byte, error) {
	all := make([][][]byte, len(t.indexes))
	for i, ix := range t.indexes {
		for _, key := range ix.Key(v) {
			if len(key) == 0 || len(key) > maxKey {
				return nil, fmt.Errorf("%s %q: %s key of %d bytes, want 1 to %d: %w", t.kind, id, ix.Name, len(key), maxKey, ErrTooLarge)
			}
			all[i] = append(all[i], ix.entry(key, id))
		}
		slices.SortFunc(all[i], bytes.Compare)
		all[i] = slices.CompactFunc(all[i], bytes.Equal)
	}
	return all, nil
}

// entry is the bucket key under which id is listed for key. In an index that is
// not unique the id makes it so; as ids hold no zero byte, the last one splits it.
func (ix Index[T]) entry(key []byte, id string) []byte {
	if ix.Unique {
		return bytes.Clone(key)
	}
	return slices.Concat(key, []byte(separator), []byte(id))
}

// checkUnique refuses keys that belong to another record.
func (t *Table[T]) checkUnique(tx *Tx, id string, after [][][]byte) error {
	for i, ix := range t.indexes {
		if !ix.Unique {
			continue
		}
		for _, key := range after[i] {
			if owner := tx.get(t.bucket(i), key); owner != nil && string(owner) != id {
				return &UniqueError{Kind: t.kind, Index: ix.Name}
			}
		}
	}
	return nil
}

// reindex replaces the entries before by the entries after, touching only what
// differs.
func (t *Table[T]) reindex(tx *Tx, id string, before, after [][][]byte) error {
	for i := range t.indexes {
		for _, key := range before[i] {
			if !contains(after[i], key) {
				if err := tx.del(t.bucket(i), key); err != nil {
					return fmt.Errorf("index %s: %w", t.bucket(i), err)
				}
			}
		}
		for _, key := range after[i] {
			if !contains(before[i], key) {
				if err := tx.put(t.bucket(i), key, []byte(id)); err != nil {
					return fmt.Errorf("index %s: %w", t.bucket(i), err)
				}
			}
		}
	}
	return nil
}

func contains(sorted [][]byte, key []byte) bool {
	_, found := slices.BinarySearchFunc(sorted, key, bytes.Compare)
	return found
}

// Reindex rebuilds every index of the table from its records: the migration for a
// new or changed index. It returns *UniqueError if the records clash.
func (t *Table[T]) Reindex(tx *Tx) error {
	for i := range t.indexes {
		if err := tx.dropBucket(t.bucket(i)); err != nil {
			return err
		}
	}
	none := make([][][]byte, len(t.indexes))
	return t.each(tx, func(id string, v *T) error {
		after, err := t.keys(id, v)
		if err != nil {
			return err
		}
		if err := t.checkUnique(tx, id, after); err != nil {
			return err
		}
		return t.reindex(tx, id, none, after)
	})
}

// each decodes every record in the order of ids. fn must not write to the table's
// own bucket.
func (t *Table[T]) each(tx *Tx, fn func(id string, v *T) error) error {
	b := tx.bucket(t.kind)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, data []byte) error {
		v, err := t.decode(string(k), data)
		if err != nil {
			return err
		}
		return fn(string(k), v)
	})
}

// find returns the place of a named index.
func (t *Table[T]) find(name string) (int, error) {
	for i, ix := range t.indexes {
		if ix.Name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("table %s has no index %q", t.kind, name)
}
