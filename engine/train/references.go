package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"time"

	"athanor/engine/train/data"
)

// references are the log-probabilities that the starting weights give to the
// answers of preference pairs. An answer is known by the tokens and weights of
// its row, so that the order of later epochs does not matter.
type references struct{ values map[rowKey]float64 }

type rowKey [16]byte

// keyOf names the content of a row.
func keyOf(b *data.Batch, row int) rowKey {
	var raw []byte
	for i := row * b.Length; i < (row+1)*b.Length; i++ {
		if b.Segments[i] >= 0 {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(b.Tokens[i]))
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(b.Weights[i]))
		}
	}
	sum := sha256.Sum256(raw)
	return rowKey(sum[:16])
}

// of is the log-probability of a row's answer.
func (r *references) of(b *data.Batch, row int) (float64, error) {
	v, ok := r.values[keyOf(b, row)]
	if !ok {
		return 0, errors.New("the reference has no log-probability of an answer in the dataset")
	}
	return v, nil
}

// referenceHeader heads the file of references; Done counts batches, training
// before evaluation, and there is one block of all values, sorted by key.
type referenceHeader struct {
	Key  string `json:"key"`
	Done int    `json:"done"`
}

const referenceEntry = 16 + 8 // bytes of a key and its float64

// prepareReferences computes the log-probabilities of all rows of the first
// epoch of every source, with the weights that m has now, and keeps them in the
// file path. What an earlier process computed is taken up; what is new is saved
// at the given interval and at the end.
func prepareReferences(ctx context.Context, d disk, path, key string, m model, sources []batches, every time.Duration, now func() time.Time) (*references, error) {
	r, done, err := loadReferences(path, key)
	if err != nil {
		return nil, fmt.Errorf("load the reference's log-probabilities: %w", err)
	}
	saved, last, at := done, now(), 0
	for _, source := range sources {
		for i := range source.Batches() {
			if at++; at <= done {
				continue
			}
			if err := r.add(ctx, m, source, i); err != nil {
				return nil, err
			}
			if now().Sub(last) >= every {
				if err := r.save(d, path, referenceHeader{key, at}); err != nil {
					return nil, err
				}
				saved, last = at, now()
			}
		}
	}
	if saved < at {
		if err := r.save(d, path, referenceHeader{key, at}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// add computes the rows of a batch. The first value of a row that comes more
// than once stays.
func (r *references) add(ctx context.Context, m model, source batches, index int) error {
	b, err := source.Batch(0, index)
	if err != nil {
		return err
	}
	logp, err := m.Logprobs(ctx, b)
	if err != nil {
		return err
	}
	for row, s := range sequences(b, logp) {
		key := keyOf(b, row)
		if _, ok := r.values[key]; !ok {
			r.values[key] = s.logp
		}
	}
	return nil
}

func (r *references) save(d disk, path string, h referenceHeader) error {
	keys := slices.SortedFunc(maps.Keys(r.values), func(a, b rowKey) int { return bytes.Compare(a[:], b[:]) })
	block := make([]byte, 0, len(keys)*referenceEntry)
	for _, k := range keys {
		block = append(block, k[:]...)
		block = binary.LittleEndian.AppendUint64(block, math.Float64bits(r.values[k]))
	}
	if err := writeRecord(d, path, h, [][]byte{block}); err != nil {
		return fmt.Errorf("save the reference's log-probabilities: %w", err)
	}
	return nil
}

// loadReferences reads a file of references. One that is absent, damaged or of
// another job gives none.
func loadReferences(path, key string) (*references, int, error) {
	r := &references{values: map[rowKey]float64{}}
	err := checkRecord(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
		return r, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var h referenceHeader
	in, err := openRecord(path, &h)
	if err != nil {
		return nil, 0, err
	}
	defer in.close()
	if h.Key != key {
		return r, 0, nil
	}
	n, err := in.size()
	if err != nil {
		return nil, 0, err
	}
	var entry [referenceEntry]byte
	for range n / referenceEntry {
		if err := in.read(entry[:]); err != nil {
			return nil, 0, err
		}
		r.values[rowKey(entry[:16])] = math.Float64frombits(binary.LittleEndian.Uint64(entry[16:]))
	}
	return r, h.Done, nil
}
