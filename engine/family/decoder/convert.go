package decoder

import (
	"fmt"
	"sync"

	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

const defaultBlock = 32

// blockFormat is the storage of matrices for a quantisation; Bits is 0 for
// float32.
func (o GraphOptions) blockFormat() (weights.Format, error) {
	f := weights.Format{Block: o.BlockSize}
	if f.Block == 0 {
		f.Block = defaultBlock
	}
	switch o.Quantization {
	case None, "":
		return weights.Format{}, nil
	case Int8:
		f.Bits = 8
	case Int4:
		f.Bits = 4
	default:
		return f, &UnsupportedError{What: "quantization", Name: string(o.Quantization), Supported: []string{string(None), string(Int8), string(Int4)}}
	}
	return f, f.Check()
}

// converter writes the weights of one model in their serving form and
// remembers where each is.
type converter struct {
	archive *weights.Archive
	names   found
	w       *weights.Writer
	format  weights.Format // Bits 0 for float32

	dense  map[string]*onnx.External
	blocks map[string]weights.Quantized

	mu          sync.Mutex // protects done and calls of progress
	done, total int64
	progress    func(done, total int64)
}

// all converts everything that d needs. The embedding and the output
// projection come first; when they are one matrix, it is written once.
func (c *converter) all(d *Decoder) error {
	shared, err := c.names.shared(c.archive)
	if err != nil {
		return err
	}
	table := int64(d.Vocabulary) * int64(d.Hidden)
	c.total = table
	// A lookup works on whole blocks only: with others the table of the
	// embedding stays in float32.
	plain := c.format.Bits != 0 && d.Hidden%c.format.Block != 0
	if !shared || plain {
		c.total += table
	}
	needs := d.needs()
	for _, n := range needs {
		c.total += elements(n.shape)
	}
	if err := c.convert(headName, c.format.Bits != 0); err != nil {
		return err
	}
	switch {
	case plain:
		err = c.convert(embedName, false)
	case shared:
		c.dense[embedName], c.blocks[embedName] = c.dense[headName], c.blocks[headName]
	default:
		err = c.convert(embedName, c.format.Bits != 0)
	}
	for i := 0; err == nil && i < len(needs); i++ {
		err = c.convert(needs[i].name, c.format.Bits != 0 && len(needs[i].shape) == 2)
	}
	return err
}

// convert writes one weight.
func (c *converter) convert(name string, quantize bool) error {
	m, err := c.archive.Matrix(c.names[name])
	if err != nil {
		return err
	}
	read := m.Read
	m.Read = func(dst []float32, row int) error {
		err := read(dst, row)
		c.advance(int64(len(dst)))
		return err
	}
	if quantize {
		c.blocks[name], err = c.w.Quantize(m, c.format)
	} else {
		c.dense[name], err = c.w.Matrix(m)
	}
	return err
}

func (c *converter) advance(n int64) {
	if c.progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += n
	c.progress(c.done, c.total)
}

// rotary writes the tables of cosines and sines, one row per position.
func (c *converter) rotary(r nn.Rope, positions int) error {
	frequencies := r.Frequencies()
	for _, t := range []struct {
		name string
		sine bool
	}{{cosName, false}, {sinName, true}} {
		ext, err := c.w.Matrix(weights.Matrix{Name: t.name, Rows: positions, Cols: len(frequencies), Read: func(dst []float32, row int) error {
			other := make([]float32, len(frequencies))
			for ; len(dst) > 0; row++ {
				if t.sine {
					r.Row(frequencies, row, other, dst[:len(frequencies)])
				} else {
					r.Row(frequencies, row, dst[:len(frequencies)], other)
				}
				dst = dst[len(frequencies):]
			}
			return nil
		}})
		if err != nil {
			return fmt.Errorf("write rotary tables: %w", err)
		}
		c.dense[t.name] = ext
	}
	return nil
}

const (
	cosName = "rotary.cos"
	sinName = "rotary.sin"
)

// vector is a converted weight [n] as a graph value.
func (c *converter) vector(g *graph.Graph, name string, n int) *graph.Value {
	return g.External(name, tensor.F32, []int{n}, c.dense[name])
}

// matrix is a converted weight [rows, cols] for products.
func (c *converter) matrix(g *graph.Graph, name string, rows, cols int) nn.Matrix {
	q, ok := c.blocks[name]
	if !ok || q.Codes == nil {
		return nn.Matrix{Dense: g.External(name, tensor.F32, []int{rows, cols}, c.dense[name])}
	}
	return blocks(g, name, q, []int{rows, q.Format.Blocks(cols), q.Format.BlockBytes()})
}

// table is a converted weight [rows, cols] for lookup.
func (c *converter) table(g *graph.Graph, name string, rows, cols int) nn.Matrix {
	q, ok := c.blocks[name]
	if !ok || q.Codes == nil {
		return c.matrix(g, name, rows, cols)
	}
	return blocks(g, name, q, []int{rows, q.Format.RowBytes(cols)})
}

func blocks(g *graph.Graph, name string, q weights.Quantized, codes []int) nn.Matrix {
	b := &graph.Blocks{
		N: q.Rows, K: q.Cols, Bits: q.Format.Bits, Block: q.Format.Block,
		Codes:  g.External(name+".codes", tensor.U8, codes, q.Codes),
		Scales: g.External(name+".scales", tensor.F32, []int{q.Rows, q.Format.Blocks(q.Cols)}, q.Scales),
	}
	if q.Zeros != nil {
		b.Zeros = g.External(name+".zeros", tensor.U8, []int{q.Rows, q.Format.ZeroBytes(q.Cols)}, q.Zeros)
	}
	return nn.Matrix{Blocks: b}
}
