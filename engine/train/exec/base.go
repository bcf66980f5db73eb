package exec

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/graph"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// The formats of a frozen base.
const (
	formatStored = ""
	formatNone   = "none"
	formatBF16   = "bf16"
	formatInt8   = "int8"
	formatInt4   = "int4"
)

// quantBlock is the number of values that share a scale, as in served models.
const quantBlock = 32

// stored is a weight as it lies in memory.
type stored struct {
	shape  []int
	values compute.Buffer // float32, bfloat16, float16, or codes of 8 or 4 bits
	scales compute.Buffer // float32 [N, K/block] of codes, else nil
}

// kind names the form, so that layers of one shape can share programs.
func (s *stored) kind() string {
	switch s.values.DType() {
	case tensor.I8:
		return formatInt8
	case tensor.I4:
		return formatInt4
	}
	return s.values.DType().String()
}

// declare adds the inputs and what makes float32 of them to a graph.
func (s *stored) declare(g *graph.Graph, name string) *graph.Value {
	v := g.Input(name, s.values.DType(), dims(s.shape)...)
	switch {
	case s.scales != nil:
		scales := g.Input(name+".scales", tensor.F32, dims(s.scales.Shape())...)
		return g.Dequantize(v, scales, nil, 1, quantBlock)
	case s.values.DType() != tensor.F32:
		return g.Cast(v, tensor.F32)
	}
	return v
}

// bind names the buffers of the inputs.
func (s *stored) bind(name string, to map[string]compute.Buffer) {
	to[name] = s.values
	if s.scales != nil {
		to[name+".scales"] = s.scales
	}
}

func (s *stored) close() error {
	err := s.values.Close()
	if s.scales != nil {
		err = errors.Join(err, s.scales.Close())
	}
	return err
}

// bytes is the memory that the weight takes, mapped or not.
func (s *stored) bytes() int64 {
	n := int64(len(s.values.Bytes()))
	if s.scales != nil {
		n += int64(len(s.scales.Bytes()))
	}
	return n
}

func dims(shape []int) []graph.Dim {
	out := make([]graph.Dim, len(shape))
	for i, n := range shape {
		out[i] = graph.Fixed(n)
	}
	return out
}

// openFull reads all weights into trainable float32.
func (e *Executor) openFull(ctx context.Context, list []decoder.Weight) error {
	if f := e.cfg.BaseFormat; f != formatStored && f != formatNone {
		return &engine.RequestError{Param: "base_format", Message: fmt.Sprintf("base format %q is for training an adapter; all weights are trained in float32", f)}
	}
	for _, w := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := e.addParam(w.Layer, w.Name, w.Stored, w.Shape)
		if err != nil {
			return err
		}
		if err := e.read(w, floats(p.Value)); err != nil {
			return err
		}
		view, err := p.Value.View(0, w.Shape...)
		if err != nil {
			return err
		}
		e.base[w.Name] = &stored{shape: w.Shape, values: view}
	}
	e.info.BaseFormat = "f32"
	return nil
}

// openFrozen brings the base into its format and makes the adapter.
func (e *Executor) openFrozen(ctx context.Context, list []decoder.Weight) error {
	format := e.cfg.BaseFormat
	switch format {
	case formatStored, formatNone, formatBF16, formatInt8, formatInt4:
	default:
		return &engine.RequestError{Param: "base_format", Message: fmt.Sprintf("base format %q is not known; none, bf16, int8 and int4 are", format)}
	}
	kinds := map[string]bool{}
	for _, w := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := e.freeze(w, format)
		if err != nil {
			return err
		}
		e.base[w.Name] = s
		if w.Layer >= 0 && len(w.Shape) == 2 {
			kinds[s.kind()] = true
		}
	}
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	e.info.BaseFormat = strings.Join(names, "+")
	return e.openAdapters()
}

// freeze brings one weight into its form: vectors in float32, the linear
// modules in the format of the base, embedding and output projection in at
// least 16 bits.
func (e *Executor) freeze(w decoder.Weight, format string) (*stored, error) {
	entry, _ := e.archive.Tensor(w.Stored)
	if (format == formatInt8 || format == formatInt4) && (w.Layer < 0 || w.Shape[len(w.Shape)-1]%2 != 0) {
		format = formatBF16
	}
	half := entry.DType == tensor.BF16 || entry.DType == tensor.F16
	switch {
	case len(w.Shape) == 1:
		return e.widen(w)
	case format == formatInt8:
		return e.quantize(w, 8)
	case format == formatInt4:
		return e.quantize(w, 4)
	case half && format != formatNone, entry.DType == tensor.F32 && format != formatBF16:
		return e.mapped(w, entry)
	case format == formatBF16:
		return e.narrow(w)
	}
	return e.widen(w)
}

// mapped takes a weight from the file as it lies there, or a copy where the
// runtime cannot.
func (e *Executor) mapped(w decoder.Weight, entry weights.Entry) (*stored, error) {
	if b, ok := e.rt.(compute.Borrower); ok {
		if buffer, err := b.Borrow(entry.Bytes(), entry.DType, w.Shape...); err == nil {
			return &stored{shape: w.Shape, values: buffer}, nil
		} // not aligned: a copy is
	}
	buffer, err := e.rt.NewBuffer(entry.DType, w.Shape...)
	if err != nil {
		return nil, err
	}
	err = e.archive.Guard(func() error { copy(buffer.Bytes(), entry.Bytes()); return nil })
	if err != nil {
		return nil, errors.Join(err, buffer.Close())
	}
	return &stored{shape: w.Shape, values: buffer}, nil
}

// widen reads a weight into float32.
func (e *Executor) widen(w decoder.Weight) (*stored, error) {
	buffer, err := e.rt.NewBuffer(tensor.F32, w.Shape...)
	if err != nil {
		return nil, err
	}
	if err := e.read(w, floats(buffer)); err != nil {
		return nil, errors.Join(err, buffer.Close())
	}
	return &stored{shape: w.Shape, values: buffer}, nil
}

// read converts a whole weight. The file's pages leave memory again.
func (e *Executor) read(w decoder.Weight, to []float32) error {
	cols := w.Shape[len(w.Shape)-1]
	return e.eachRow(w, func(row int, values []float32) error {
		copy(to[row*cols:], values)
		return nil
	})
}

// narrow rounds a matrix to bfloat16.
func (e *Executor) narrow(w decoder.Weight) (*stored, error) {
	buffer, err := e.rt.NewBuffer(tensor.BF16, w.Shape...)
	if err != nil {
		return nil, err
	}
	cols, out := w.Shape[1], buffer.Bytes()
	err = e.eachRow(w, func(row int, values []float32) error {
		return tensor.PutFloat32s(out[2*row*cols:][:2*len(values)], values, tensor.BF16)
	})
	if err != nil {
		return nil, errors.Join(err, buffer.Close())
	}
	return &stored{shape: w.Shape, values: buffer}, nil
}

// quantize rounds a matrix to signed codes in blocks, the same values as a
// served model of that format has.
func (e *Executor) quantize(w decoder.Weight, bits int) (*stored, error) {
	f := weights.Format{Bits: bits, Block: quantBlock}
	rows, cols := w.Shape[0], w.Shape[1]
	dtype := tensor.I8
	if bits == 4 {
		dtype = tensor.I4
	}
	codes, err := e.rt.NewBuffer(dtype, w.Shape...)
	if err != nil {
		return nil, err
	}
	s := &stored{shape: w.Shape, values: codes}
	if s.scales, err = e.rt.NewBuffer(tensor.F32, rows, f.Blocks(cols)); err != nil {
		return nil, errors.Join(err, codes.Close())
	}
	out, scales, width := codes.Bytes(), floats(s.scales), cols*bits/8
	err = e.eachRow(w, func(row int, values []float32) error {
		padded := make([]byte, f.RowBytes(cols))
		for ; len(values) > 0; row, values = row+1, values[cols:] {
			if !f.QuantizeRow(values[:cols], padded, scales[row*f.Blocks(cols):][:f.Blocks(cols)], nil) {
				return fmt.Errorf("tensor %q has values that are not finite", w.Stored)
			}
			signed(out[row*width:][:width], padded, bits)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// signed turns codes around a zero in the middle into two's complement: the
// highest bit of each changes.
func signed(dst, src []byte, bits int) {
	flip := byte(0x80)
	if bits == 4 {
		flip = 0x88
	}
	for i := range dst {
		dst[i] = src[i] ^ flip
	}
}

// eachRow calls fn with some rows of a matrix at a time, on all cores.
func (e *Executor) eachRow(w decoder.Weight, fn func(row int, values []float32) error) error {
	m, err := e.archive.Matrix(w.Stored)
	if err != nil {
		return err
	}
	workers := runtime.GOMAXPROCS(0)
	step := max(1, (64<<10)/m.Cols)
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for k := range workers {
		wait.Go(func() {
			values := make([]float32, step*m.Cols)
			for row := k * step; row < m.Rows && errs[k] == nil; row += workers * step {
				part := values[:min(step, m.Rows-row)*m.Cols]
				if errs[k] = m.Read(part, row); errs[k] == nil {
					errs[k] = fn(row, part)
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
