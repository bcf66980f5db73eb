package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Alignment of tensors in the external-data file: whole pages for what is
// worth mapping on its own, a cache line for the rest.
const (
	pageAlign   = 4096
	lineAlign   = 64
	pageFrom    = 64 << 10 // bytes from which a tensor starts on a page
	chunkValues = 1 << 17  // values converted at a time by one core
)

// Writer appends tensors to the external-data file of an ONNX model. It is for
// one goroutine; the conversions use all cores inside. Making the file appear
// atomically, by writing into a folder that is renamed afterwards, is up to
// the caller.
type Writer struct {
	ctx      context.Context
	file     *os.File
	location string
	size     int64
}

// NewWriter creates the file at path, which must not exist. The end of ctx
// stops a conversion in the middle.
func NewWriter(ctx context.Context, path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create weight file: %w", err)
	}
	return &Writer{ctx: ctx, file: f, location: filepath.Base(path)}, nil
}

// Size is the length of the file so far.
func (w *Writer) Size() int64 { return w.size }

// Close makes the file durable and closes it.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	// The last tensor may end in padding that was never written.
	return errors.Join(f.Truncate(w.size), f.Sync(), f.Close())
}

// reserve sets n bytes of the file aside.
func (w *Writer) reserve(n int64) *onnx.External {
	align := int64(lineAlign)
	if n >= pageFrom {
		align = pageAlign
	}
	offset := (w.size + align - 1) / align * align
	w.size = offset + n
	return &onnx.External{Location: w.location, Offset: offset, Length: n}
}

// Bytes writes data as it is.
func (w *Writer) Bytes(data []byte) (*onnx.External, error) {
	ext := w.reserve(int64(len(data)))
	return ext, w.writeAt(data, ext.Offset)
}

// Float32s writes values as float32.
func (w *Writer) Float32s(values []float32) (*onnx.External, error) {
	buf := make([]byte, 4*len(values))
	if err := tensor.PutFloat32s(buf, values, tensor.F32); err != nil {
		return nil, err
	}
	return w.Bytes(buf)
}

// Matrix writes m as float32, row by row.
func (w *Writer) Matrix(m Matrix) (*onnx.External, error) {
	ext := w.reserve(4 * int64(m.Rows) * int64(m.Cols))
	err := w.rows(m, func() func(row int, values []float32) error {
		buf := make([]byte, 0)
		return func(row int, values []float32) error {
			for i, v := range values {
				if v-v != 0 {
					return notFinite(m, row+i/m.Cols)
				}
			}
			if cap(buf) < 4*len(values) {
				buf = make([]byte, 4*len(values))
			}
			buf = buf[:4*len(values)]
			if err := tensor.PutFloat32s(buf, values, tensor.F32); err != nil {
				return err
			}
			return w.writeAt(buf, ext.Offset+4*int64(row)*int64(m.Cols))
		}
	})
	return ext, err
}

// Quantized locates a matrix in a block format.
type Quantized struct {
	Format     Format
	Rows, Cols int
	Codes      *onnx.External // [Rows, Blocks, BlockBytes] uint8
	Scales     *onnx.External // [Rows, Blocks] float32
	Zeros      *onnx.External // [Rows, ZeroBytes] uint8, nil without zero points
}

// Quantize converts m row by row into the given format.
func (w *Writer) Quantize(m Matrix, f Format) (Quantized, error) {
	if err := f.Check(); err != nil {
		return Quantized{}, fmt.Errorf("tensor %q: %w", m.Name, err)
	}
	rows, blocks := int64(m.Rows), f.Blocks(m.Cols)
	q := Quantized{Format: f, Rows: m.Rows, Cols: m.Cols,
		Codes:  w.reserve(rows * int64(f.RowBytes(m.Cols))),
		Scales: w.reserve(rows * int64(4*blocks)),
	}
	if f.ZeroPoints {
		q.Zeros = w.reserve(rows * int64(f.ZeroBytes(m.Cols)))
	}
	err := w.rows(m, func() func(row int, values []float32) error { return w.quantizer(m, q) })
	return q, err
}

// quantizer returns the work of one core: it converts whole rows and writes
// them where they belong.
func (w *Writer) quantizer(m Matrix, q Quantized) func(row int, values []float32) error {
	f, blocks := q.Format, q.Format.Blocks(m.Cols)
	codeBytes, zeroBytes := f.RowBytes(m.Cols), f.ZeroBytes(m.Cols)
	var codes, zeros, scaleBytes []byte
	var scales []float32
	return func(row int, values []float32) error {
		n := len(values) / m.Cols
		if len(codes) != n*codeBytes {
			codes, zeros = make([]byte, n*codeBytes), make([]byte, n*zeroBytes)
			scales, scaleBytes = make([]float32, n*blocks), make([]byte, 4*n*blocks)
		}
		for i := range n {
			if !f.QuantizeRow(values[i*m.Cols:(i+1)*m.Cols], codes[i*codeBytes:(i+1)*codeBytes],
				scales[i*blocks:(i+1)*blocks], zeros[i*zeroBytes:(i+1)*zeroBytes]) {
				return notFinite(m, row+i)
			}
		}
		if err := tensor.PutFloat32s(scaleBytes, scales, tensor.F32); err != nil {
			return err
		}
		if err := w.writeAt(codes, q.Codes.Offset+int64(row)*int64(codeBytes)); err != nil {
			return err
		}
		if err := w.writeAt(scaleBytes, q.Scales.Offset+int64(row)*int64(4*blocks)); err != nil {
			return err
		}
		if zeroBytes == 0 {
			return nil
		}
		return w.writeAt(zeros, q.Zeros.Offset+int64(row)*int64(zeroBytes))
	}
}

func notFinite(m Matrix, row int) error {
	return fmt.Errorf("tensor %q: row %d holds a value that is not finite", m.Name, row)
}

func (w *Writer) writeAt(data []byte, offset int64) error {
	if _, err := w.file.WriteAt(data, offset); err != nil {
		return fmt.Errorf("write weight file: %w", err)
	}
	return nil
}

// rows reads m in pieces of whole rows on all cores and hands each piece to a
// function that start made for that core. The first error stops all.
func (w *Writer) rows(m Matrix, start func() func(row int, values []float32) error) error {
	if m.Cols == 0 || m.Rows == 0 {
		return nil
	}
	step := max(1, chunkValues/m.Cols)
	workers := min(runtime.GOMAXPROCS(0), (m.Rows+step-1)/step)
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			buf := make([]float32, step*m.Cols)
			work := start()
			for ctx.Err() == nil {
				row := int(next.Add(int64(step))) - step
				if row >= m.Rows {
					return
				}
				values := buf[:min(step, m.Rows-row)*m.Cols]
				err := m.Read(values, row)
				if err == nil {
					err = work(row, values)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
