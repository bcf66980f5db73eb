package data

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
)

// Counts are the sizes of a dataset for one model. Their memory does not grow with
// the dataset but for the number of different lengths.
type Counts struct {
	Format    string
	Samples   int64 // lines that are trained on; a preference pair is one
	Tokens    int64 // after truncation
	Trained   int64 // tokens that carry loss
	Truncated int64 // samples that were cut
	LeftOut   int64 // of them, those with nothing to learn before the cut
	limit     int
	lengths   map[int]int64 // sequences by their length before truncation
}

// Count encodes a whole dataset and counts. visit, unless nil, sees each line too.
// Errors are those of Scan.
func Count(ctx context.Context, e *Encoder, src Source, name string, progress func(done, total int64), visit func(line int64, e *Encoded) error) (*Counts, error) {
	c := &Counts{limit: e.o.MaxSeqLength, lengths: map[int]int64{}}
	err := Scan(ctx, e, src, name, progress, func(line int64, enc *Encoded) error {
		c.add(enc)
		if visit != nil {
			return visit(line, enc)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// CountFirst is Count of the first lines of a dataset: it ends with the line at which
// either bound is reached. lines is how many it read.
func CountFirst(ctx context.Context, e *Encoder, src Source, name string, maxLines, maxTokens int64) (c *Counts, lines int64, err error) {
	c = &Counts{limit: e.o.MaxSeqLength, lengths: map[int]int64{}}
	err = Scan(ctx, e, src, name, nil, func(_ int64, enc *Encoded) error {
		c.add(enc)
		if lines++; lines >= maxLines || c.Tokens >= maxTokens {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, 0, err
	}
	return c, lines, nil
}

func (c *Counts) add(e *Encoded) {
	c.Format = e.Format
	if e.Truncated {
		c.Truncated++
	}
	if e.LeftOut {
		c.LeftOut++
		return
	}
	if len(e.Samples) > 0 {
		c.Samples++
	}
	for i := range e.Samples {
		c.Tokens += int64(len(e.Samples[i].Tokens))
		c.Trained += int64(e.Samples[i].trained())
		c.lengths[e.Lengths[i]]++
	}
}

// Sequences is the number of sequences: samples, or two for each pair.
func (c *Counts) Sequences() (n int64) {
	for _, k := range c.lengths {
		n += k
	}
	return n
}

// Lengths yields each length in tokens, before truncation, with the number of
// sequences that have it, the shortest first.
func (c *Counts) Lengths(yield func(tokens int, sequences int64) bool) {
	for _, n := range slices.Sorted(maps.Keys(c.lengths)) {
		if !yield(n, c.lengths[n]) {
			return
		}
	}
}

// Percentile is the smallest length that at least share, 0 to 1, of the sequences
// do not exceed; 0 gives the shortest and 1 the longest.
func (c *Counts) Percentile(share float64) (tokens int) {
	want, seen := share*float64(c.Sequences()), int64(0)
	for n, k := range c.Lengths {
		tokens = n
		if seen += k; float64(seen) >= want {
			break
		}
	}
	return tokens
}

// Epoch is what one pass over a dataset takes.
type Epoch struct {
	Rows    int64 // of batches: packed rows, samples or pairs
	Batches int64
	Tokens  int64 // trained on, padding excluded
	Trained int64 // of them, those that carry loss

	// Positions are what is computed, padding included: rows of a batch are as long
	// as its longest. Squares is the sum of the squares of the lengths of all rows,
	// which is what attention takes. Both are exact up to 50 batches of single
	// samples; beyond, and for pairs and packed rows, they are close.
	Positions, Squares float64
}

// Epoch says what a Sampler with these options will make of the dataset.
func (c *Counts) Epoch(o Options) Epoch {
	out := Epoch{Rows: c.Samples, Tokens: c.Tokens, Trained: c.Trained}
	lengths, batch := histogram{}, int64(max(o.BatchRows, 1))
	for n, k := range c.Lengths {
		lengths[c.cut(n)] += k
	}
	lines, sorted := batch, o.Shuffle
	switch {
	case c.Format == FormatPreference:
		lines = 2 * batch
	case o.Packing && c.Format != FormatTokens && c.Samples > 0:
		lengths, sorted = c.packed(o.RowLength), false
		out.Rows = lengths.total()
	}
	out.Batches = (out.Rows + batch - 1) / batch
	if sorted {
		out.Positions, out.Squares = lengths.padSorted(lines)
	} else {
		out.Positions, out.Squares = lengths.padRandom(lines)
	}
	return out
}

// cut is the length of a sequence after truncation.
func (c *Counts) cut(n int) int {
	if c.limit > 0 {
		return min(n, c.limit)
	}
	return n
}

// packed are the lengths of packed rows.
func (c *Counts) packed(size int) histogram {
	var list []int32
	for n, k := range c.Lengths {
		list = append(list, slices.Repeat([]int32{int32(c.cut(n))}, int(k))...)
	}
	r := pack(list, rowSize(size, int(slices.Max(list))))
	out := histogram{}
	for row := range r.len() {
		length := 0
		for _, i := range r.of(row) {
			length += int(list[i])
		}
		out[length]++
	}
	return out
}

// histogram counts lines of tokens by their length.
type histogram map[int]int64

func (h histogram) total() (n int64) {
	for _, k := range h {
		n += k
	}
	return n
}

// padSorted adds up batches of lines that come the shortest first, which is how a
// Sampler that shuffles groups them.
func (h histogram) padSorted(batch int64) (positions, squares float64) {
	add := func(lines int64, length int) {
		positions += float64(lines) * float64(length)
		squares += float64(lines) * float64(length) * float64(length)
	}
	waiting, last := int64(0), 0 // of the batch that is not full
	for _, n := range slices.Sorted(maps.Keys(h)) {
		waiting, last = waiting+h[n], n
		full := waiting / batch * batch
		add(full, n)
		waiting -= full
	}
	add(waiting, last)
	return positions, squares
}

// padRandom is what to expect of batches of lines in any order: the longest of a
// batch is at most n with the probability that all of its lines are.
func (h histogram) padRandom(batch int64) (positions, squares float64) {
	all, seen, before := h.total(), int64(0), 0.0
	for _, n := range slices.Sorted(maps.Keys(h)) {
		seen += h[n]
		share := math.Pow(float64(seen)/float64(all), float64(min(batch, all)))
		lines := float64(all) * (share - before)
		positions, squares, before = positions+lines*float64(n), squares+lines*float64(n)*float64(n), share
	}
	return positions, squares
}

// JobTokens is the number of tokens that a job reads: those of the training data in
// every epoch, and those of the validation data, which may be nil, in every
// evaluation. What they cost is the caller's to say.
func JobTokens(train, validation *Counts, epochs, evals int) (trained, evaluated int64) {
	trained = train.Tokens * int64(epochs)
	if validation != nil {
		evaluated = validation.Tokens * int64(evals)
	}
	return trained, evaluated
}
