package exec

import (
	"fmt"

	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// hidden is added to the score of a position that is not seen. The softmax of
// it is zero, and it is finite, so that no row can become NaN.
const hidden = -1e9

// angles are the cosines and sines of all positions so far.
type angles struct {
	frequencies []float64
	cos, sin    []float32 // [positions, D/2]
}

// upTo computes the rows of positions below n that are not there yet.
func (a *angles) upTo(d *decoder.Decoder, n int) {
	if a.frequencies == nil {
		a.frequencies = d.Rope.Frequencies()
	}
	half := len(a.frequencies)
	for at := len(a.cos) / half; at < n; at++ {
		cos, sin := make([]float32, half), make([]float32, half)
		d.Rope.Row(a.frequencies, at, cos, sin)
		a.cos, a.sin = append(a.cos, cos...), append(a.sin, sin...)
	}
}

// check compares the sizes of a batch and its values with the model.
func (e *Executor) check(b *data.Batch) error {
	n := b.Rows * b.Length
	if b.Rows < 1 || b.Length < 1 || len(b.Tokens) != n || len(b.Targets) != n || len(b.Weights) != n || len(b.Positions) != n || len(b.Segments) != n {
		return fmt.Errorf("a batch of %d x %d has %d tokens, %d targets, %d weights, %d positions and %d segments",
			b.Rows, b.Length, len(b.Tokens), len(b.Targets), len(b.Weights), len(b.Positions), len(b.Segments))
	}
	for i, t := range b.Tokens {
		if uint(t) >= uint(e.d.Vocabulary) || uint(b.Targets[i]) >= uint(e.d.Vocabulary) {
			return fmt.Errorf("token %d with target %d at place %d: the vocabulary has %d", t, b.Targets[i], i, e.d.Vocabulary)
		}
		if p := b.Positions[i]; p < 0 || int(p) >= e.d.ContextLength {
			return fmt.Errorf("position %d at place %d: the context has %d", p, i, e.d.ContextLength)
		}
	}
	return nil
}

// prepare fills the inputs that all layers share: the embedded tokens, and
// where they stand.
func (e *Executor) prepare(b *data.Batch) (map[string]compute.Buffer, error) {
	if err := e.check(b); err != nil {
		return nil, err
	}
	shared := map[string]compute.Buffer{}
	half := e.d.HeadDim / 2
	for _, in := range []struct {
		name  string
		shape []int
	}{
		{inX, []int{b.Rows * b.Length, e.d.Hidden}}, {inMask, []int{b.Rows, 1, 1, b.Length, b.Length}},
		{inCos, []int{b.Rows, b.Length, 1, half}}, {inSin, []int{b.Rows, b.Length, 1, half}},
	} {
		buffer, err := e.pool.get(in.name, tensor.F32, in.shape...)
		if err != nil {
			return nil, err
		}
		shared[in.name] = buffer
	}
	cos, sin := floats(shared[inCos]), floats(shared[inSin])
	for i, p := range b.Positions {
		e.angles.upTo(&e.d, int(p)+1)
		copy(cos[i*half:(i+1)*half], e.angles.cos[int(p)*half:])
		copy(sin[i*half:(i+1)*half], e.angles.sin[int(p)*half:])
	}
	fillMask(floats(shared[inMask]), b)
	return shared, e.embed(b.Tokens, floats(shared[inX]))
}

// fillMask lets each position see itself and the earlier ones of its segment.
func fillMask(mask []float32, b *data.Batch) {
	for row := range b.Rows {
		segments := b.Segments[row*b.Length:][:b.Length]
		for i, own := range segments {
			line := mask[(row*b.Length+i)*b.Length:][:b.Length]
			for j, other := range segments {
				line[j] = hidden
				if j == i || j < i && own >= 0 && other == own {
					line[j] = 0
				}
			}
		}
	}
}

// embed looks the rows of tokens up.
func (e *Executor) embed(tokens []int32, x []float32) error {
	table, width := e.base[decoder.EmbedName].values, e.d.Hidden
	raw, dtype := table.Bytes(), table.DType()
	size := width * dtype.Size()
	return e.archive.Guard(func() error {
		for i, t := range tokens {
			if err := tensor.Float32s(x[i*width:(i+1)*width], raw[int(t)*size:(int(t)+1)*size], dtype); err != nil {
				return err
			}
		}
		return nil
	})
}

// carrying lists the places that carry loss.
func carrying(b *data.Batch) []int {
	var list []int
	for i, w := range b.Weights {
		if w != 0 {
			list = append(list, i)
		}
	}
	return list
}
