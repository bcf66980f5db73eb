package data

import (
	"context"
	"maps"
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
}

// Epoch says what a Sampler with these options will make of the dataset.
func (c *Counts) Epoch(o Options) Epoch {
	out := Epoch{Rows: c.Samples, Tokens: c.Tokens}
	if o.Packing && c.Format != FormatPreference && c.Format != FormatTokens && c.Samples > 0 {
		var lengths []int32
		for n, k := range c.Lengths {
			if c.limit > 0 {
				n = min(n, c.limit)
			}
			lengths = append(lengths, slices.Repeat([]int32{int32(n)}, int(k))...)
		}
		out.Rows = int64(pack(lengths, max(o.RowLength, int(slices.Max(lengths)))).len())
	}
	rows := int64(max(o.BatchRows, 1))
	out.Batches = (out.Rows + rows - 1) / rows
	return out
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
