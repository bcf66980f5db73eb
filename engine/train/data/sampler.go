package data

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Options decide the batches of a set.
type Options struct {
	// Packing puts several samples into a row. It has no effect on preference
	// sets, nor on Parquet files, whose rows their author has packed.
	Packing bool
	// RowLength is how many tokens a packed row holds at most; it is LongestPacked
	// where it is longer, and where it is shorter than the longest sample, that
	// sample's length.
	RowLength int
	// BatchRows is the number of rows of a batch, or of pairs for a preference set,
	// whose batches then have twice as many rows.
	BatchRows int
	Seed      uint64 // of the order
	// Shuffle draws another order for every epoch. Without it rows come as they
	// are in the file.
	Shuffle bool
}

// Sampler is the order of a set's batches: a pure function of seed, epoch and
// index, the same on every machine. It keeps 12 bytes for each sequence in memory.
// Its methods may be called by any goroutine.
type Sampler struct {
	set     *Set
	o       Options
	lengths []int32
	rows    *rows

	mu    sync.Mutex // protects the fields below
	epoch int        // whose order it is, -1 = none
	order []int32    // rows of all batches
}

// NewSampler reads the lengths of the sequences and packs them.
func NewSampler(s *Set, o Options) (*Sampler, error) {
	if o.BatchRows < 1 {
		return nil, fmt.Errorf("a batch must have at least 1 row, not %d", o.BatchRows)
	}
	lengths, err := s.lengths()
	if err != nil {
		return nil, err
	}
	if len(lengths) == 0 {
		return nil, errors.New("the set holds no samples")
	}
	out := &Sampler{set: s, o: o, lengths: lengths, epoch: -1}
	switch {
	case s.Preference():
		out.rows = single(len(lengths), 2)
	case out.packed():
		out.rows = pack(lengths, rowSize(o.RowLength, s.Longest()))
	default:
		out.rows = single(len(lengths), 1)
	}
	return out, nil
}

func (s *Sampler) packed() bool {
	return s.o.Packing && !s.set.Preference() && s.set.Format() != FormatTokens
}

// Rows is the number of rows, or pairs, of an epoch.
func (s *Sampler) Rows() int { return s.rows.len() }

// Batches is the number of batches of an epoch.
func (s *Sampler) Batches() int { return (s.Rows() + s.o.BatchRows - 1) / s.o.BatchRows }

// Batch makes batch index, from 0, of an epoch, from 0. The last batch of an epoch
// may have fewer rows.
func (s *Sampler) Batch(epoch, index int) (*Batch, error) {
	if epoch < 0 || index < 0 || index >= s.Batches() {
		return nil, fmt.Errorf("there is no batch %d in epoch %d: an epoch has %d", index, epoch, s.Batches())
	}
	first := index * s.o.BatchRows
	return s.fill(s.orderOf(epoch, first, min(first+s.o.BatchRows, s.Rows())), uint64(epoch)*uint64(s.Batches())+uint64(index)+1)
}

// orderOf copies rows [from, to) of an epoch's order.
func (s *Sampler) orderOf(epoch, from, to int) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order == nil {
		s.order = make([]int32, s.Rows())
	}
	if s.epoch != epoch && (s.o.Shuffle || s.epoch < 0) {
		for i := range s.order {
			s.order[i] = int32(i)
		}
		if s.o.Shuffle {
			s.shuffle(epoch)
		}
		s.epoch = epoch
	}
	return slices.Clone(s.order[from:to])
}

// window is how many batches are sorted by length together: enough that the rows
// of a batch hardly differ, few enough that the order stays random.
const window = 50

// shuffle draws the order of an epoch. Rows of one sample are grouped by length
// within windows, and then the batches are shuffled; the last batch, which may be
// short, stays the last.
func (s *Sampler) shuffle(epoch int) {
	r := rand.New(rand.NewPCG(s.o.Seed, uint64(epoch)))
	order, b := s.order, s.o.BatchRows
	permute(r, len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if s.packed() {
		return
	}
	for w := range slices.Chunk(order, window*b) {
		slices.SortStableFunc(w, func(i, j int32) int { return cmp.Compare(s.rowLength(i), s.rowLength(j)) })
	}
	permute(r, len(order)/b, func(i, j int) {
		x, y := order[i*b:(i+1)*b], order[j*b:(j+1)*b]
		for k := range x {
			x[k], y[k] = y[k], x[k]
		}
	})
}

// permute is the shuffle of Fisher and Yates. It is written out here because the
// order must not change with a version of the standard library; PCG itself is
// specified.
func permute(r *rand.Rand, n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		// The bias of the remainder, below n/2^64, does not matter.
		swap(i, int(r.Uint64()%uint64(i+1)))
	}
}

// rowLength is the longest line of tokens that a row needs.
func (s *Sampler) rowLength(row int32) int {
	longest, total := 0, 0
	for _, i := range s.rows.of(int(row)) {
		longest, total = max(longest, int(s.lengths[i])), total+int(s.lengths[i])
	}
	if s.packed() {
		return total
	}
	return longest
}

// fill makes a batch of rows.
func (s *Sampler) fill(order []int32, noise uint64) (*Batch, error) {
	perRow := 1
	if s.set.Preference() {
		perRow = 2
	}
	b := &Batch{Rows: len(order) * perRow, Noise: noise}
	for _, row := range order {
		b.Length = max(b.Length, s.rowLength(row))
	}
	n := b.Rows * b.Length
	b.Tokens, b.Targets, b.Positions, b.Segments = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	b.Weights = make([]float32, n)
	for i := range b.Segments {
		b.Segments[i] = -1
	}
	for r, row := range order {
		at, end := r*perRow*b.Length, (r+1)*perRow*b.Length
		for k, i := range s.rows.of(int(row)) {
			sample, err := s.set.Sample(int(i))
			if err != nil {
				return nil, err
			}
			segment := int32(k)
			if perRow == 2 {
				at, segment = (r*2+k)*b.Length, 0
			}
			if at+len(sample.Tokens) > end {
				return nil, fmt.Errorf("the tokenized dataset changed under the sampler at sequence %d", i)
			}
			b.put(at, segment, &sample)
			at += len(sample.Tokens)
		}
	}
	return b, nil
}

// put writes a sample into the positions from at on.
func (b *Batch) put(at int, segment int32, s *Sample) {
	last := len(s.Tokens) - 1
	for i, id := range s.Tokens {
		b.Tokens[at+i], b.Positions[at+i], b.Segments[at+i] = id, int32(i), segment
		if i < last && s.Weights[i+1] > 0 {
			b.Targets[at+i], b.Weights[at+i] = s.Tokens[i+1], s.Weights[i+1]
		}
	}
}
