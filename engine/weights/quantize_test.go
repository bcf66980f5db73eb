package weights_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// quantized runs one row through a format and back.
func quantized(t testing.TB, f weights.Format, row []float32) (back []float32, codes []byte, scales []float32, zeros []byte) {
	t.Helper()
	codes, zeros = make([]byte, f.RowBytes(len(row))), make([]byte, f.ZeroBytes(len(row)))
	scales, back = make([]float32, f.Blocks(len(row))), make([]float32, len(row))
	if !f.QuantizeRow(row, codes, scales, zeros) {
		t.Fatal("finite row refused")
	}
	f.DequantizeRow(back, codes, scales, zeros)
	return back, codes, scales, zeros
}

func normal(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 0.02)
	}
	return row
}

// relative is the root of squared error over squared value.
func relative(got, want []float32) float64 {
	var e, s float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		e += d * d
		s += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(e / s)
}

// TestRoundTripError bounds the relative error on normal weights: the bounds
// are a few percent above what was measured, so a worse search is noticed.
func TestRoundTripError(t *testing.T) {
	row := normal(1, 1<<17)
	for _, c := range []struct {
		f     weights.Format
		bound float64
	}{
		{weights.Format{Bits: 4, Block: 32}, 0.082},
		{weights.Format{Bits: 4, Block: 64}, 0.091},
		{weights.Format{Bits: 4, Block: 128}, 0.098},
		{weights.Format{Bits: 4, Block: 32, ZeroPoints: true}, 0.083},
		{weights.Format{Bits: 4, Block: 128, ZeroPoints: true}, 0.108},
		{weights.Format{Bits: 8, Block: 32}, 0.0054},
		{weights.Format{Bits: 8, Block: 128}, 0.0065},
		{weights.Format{Bits: 8, Block: 32, ZeroPoints: true}, 0.0050},
	} {
		back, _, _, _ := quantized(t, c.f, row)
		got := relative(back, row)
		t.Logf("%+v: relative error %.5f", c.f, got)
		if got > c.bound {
			t.Errorf("%+v: relative error %.5f, want at most %.5f", c.f, got, c.bound)
		}
	}
}

// TestSearchLowersError compares with the plain choice, the extreme value at
// code -8 and nothing tried.
func TestSearchLowersError(t *testing.T) {
	row := normal(2, 1<<14)
	f := weights.Format{Bits: 4, Block: 32}
	back, _, _, _ := quantized(t, f, row)
	plain := make([]float32, len(row))
	for b := 0; b < len(row); b += f.Block {
		x := row[b : b+f.Block]
		extreme := x[0]
		for _, v := range x {
			if math.Abs(float64(v)) > math.Abs(float64(extreme)) {
				extreme = v
			}
		}
		scale := extreme / -8
		for i, v := range x {
			plain[b+i] = float32(min(7, math.Round(float64(v/scale)))) * scale
		}
	}
	if got, want := relative(back, row), relative(plain, row); got > 0.96*want {
		t.Errorf("search gives %.5f, plain %.5f", got, want)
	} else {
		t.Logf("search %.5f, plain %.5f", got, want)
	}
}

func TestLayout(t *testing.T) {
	row := make([]float32, 40) // the second block is padded
	for i := range 16 {
		row[i] = float32(i - 8) // codes 0..15 at scale 1, an exact fit
	}
	row[39] = -8
	f := weights.Format{Bits: 4, Block: 32}
	back, codes, scales, _ := quantized(t, f, row)
	if !slices.Equal(back, row) {
		t.Errorf("exact row came back as %v", back)
	}
	if !slices.Equal(scales, []float32{1, 1}) {
		t.Errorf("scales %v", scales)
	}
	want := []byte{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}
	want = append(want, slices.Repeat([]byte{0x88}, 8+3)...)
	want = append(want, 0x08) // row[39] in the high half
	want = append(want, slices.Repeat([]byte{0x88}, 12)...)
	if !slices.Equal(codes, want) {
		t.Errorf("codes % x\nwant  % x", codes, want)
	}

	f = weights.Format{Bits: 4, Block: 16, ZeroPoints: true}
	row = make([]float32, 48)
	row[0], row[1] = 15, 0       // zero point 0
	row[16], row[17] = -5, 10    // zero point 5
	row[32], row[47] = -15, -7.0 // zero point 15
	back, _, _, zeros := quantized(t, f, row)
	if !slices.Equal(zeros, []byte{0x50, 0x0f}) || !slices.Equal(back, row) {
		t.Errorf("zeros % x, row %v", zeros, back)
	}
}

func TestQuantizeEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, f := range []weights.Format{{Bits: 4, Block: 16}, {Bits: 8, Block: 16}, {Bits: 4, Block: 16, ZeroPoints: true}, {Bits: 8, Block: 32, ZeroPoints: true}} {
		for _, v := range []float32{0, 1e-45, 1e-38, 1, -1, 1e30, -1e38, 1e38} {
			row := slices.Repeat([]float32{v}, 20)
			row[3] = 0
			back, _, scales, _ := quantized(t, f, row)
			for i, b := range back {
				if tol := math.Abs(float64(v))*0.13 + 1e-30; math.Abs(float64(b)-float64(row[i])) > tol || math.IsInf(float64(scales[0]), 0) {
					t.Errorf("%+v: %v became %v (scale %v)", f, row[i], b, scales[0])
					break
				}
			}
		}
		for _, v := range []float32{inf, -inf, nan} {
			row := make([]float32, 32)
			row[31] = v
			if f.QuantizeRow(row, make([]byte, f.RowBytes(32)), make([]float32, f.Blocks(32)), make([]byte, f.ZeroBytes(32))) {
				t.Errorf("%+v: %v accepted", f, v)
			}
		}
	}
	for _, f := range []weights.Format{{Bits: 3, Block: 32}, {Bits: 4, Block: 48}, {Bits: 4, Block: 8}, {Bits: 4, Block: 512}, {}} {
		if f.Check() == nil {
			t.Errorf("%+v accepted", f)
		}
	}
}

// source is a matrix in memory.
func source(rows, cols int, values []float32) weights.Matrix {
	return weights.Matrix{Name: "m", Rows: rows, Cols: cols, Read: func(dst []float32, row int) error {
		copy(dst, values[row*cols:])
		return nil
	}}
}

func TestWriter(t *testing.T) {
	const rows, cols = 700, 500 // more than two pieces of work, and a padded block
	values := normal(3, rows*cols)
	path := filepath.Join(t.TempDir(), "weights.bin")
	w, err := weights.NewWriter(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Bytes([]byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	plain, err := w.Matrix(source(rows, cols, values))
	if err != nil {
		t.Fatal(err)
	}
	f := weights.Format{Bits: 4, Block: 32, ZeroPoints: true}
	q, err := w.Quantize(source(rows, cols, values), f)
	if err != nil {
		t.Fatal(err)
	}
	last, err := w.Float32s([]float32{42})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) != w.Size() || last.Offset+last.Length != w.Size() {
		t.Fatalf("file of %d bytes, size %d, %v", len(data), w.Size(), err)
	}
	if plain.Offset%4096 != 0 || plain.Location != "weights.bin" || q.Codes.Offset%4096 != 0 || last.Offset%64 != 0 {
		t.Errorf("places %+v %+v %+v", plain, q.Codes, last)
	}
	got := make([]float32, rows*cols)
	if err := tensor.Float32s(got, data[plain.Offset:plain.Offset+plain.Length], tensor.F32); err != nil || !slices.Equal(got, values) {
		t.Errorf("float32 matrix differs: %v", err)
	}
	scales := make([]float32, f.Blocks(cols))
	for r := range rows {
		_, codes, wantScales, zeros := quantized(t, f, values[r*cols:(r+1)*cols])
		at := func(off, n int64) []byte { return data[off+int64(r)*n : off+int64(r+1)*n] }
		if err := tensor.Float32s(scales, at(q.Scales.Offset, int64(4*f.Blocks(cols))), tensor.F32); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(at(q.Codes.Offset, int64(f.RowBytes(cols))), codes) || !slices.Equal(scales, wantScales) ||
			!slices.Equal(at(q.Zeros.Offset, int64(f.ZeroBytes(cols))), zeros) {
			t.Fatalf("row %d differs from QuantizeRow", r)
		}
	}
	if v := math.Float32frombits(binary.LittleEndian.Uint32(data[last.Offset:])); v != 42 {
		t.Errorf("last value %v", v)
	}
}

func TestWriterFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights.bin")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := weights.NewWriter(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := weights.NewWriter(ctx, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("an existing file was opened: %v", err)
	}
	bad := normal(4, 1<<18)
	bad[5*1024+3] = float32(math.NaN())
	for name, write := range map[string]func(weights.Matrix) error{
		"float32": func(m weights.Matrix) error { _, err := w.Matrix(m); return err },
		"int4":    func(m weights.Matrix) error { _, err := w.Quantize(m, weights.Format{Bits: 4, Block: 32}); return err },
	} {
		if err := write(source(256, 1024, bad)); err == nil || !strings.Contains(err.Error(), `tensor "m": row 5 holds a value that is not finite`) {
			t.Errorf("%s: NaN: %v", name, err)
		}
		broken := errors.New("broken disk")
		m := source(256, 1024, bad)
		m.Read = func([]float32, int) error { return broken }
		if err := write(m); !errors.Is(err, broken) {
			t.Errorf("%s: read error: %v", name, err)
		}
	}
	if _, err := w.Quantize(source(1, 1, bad), weights.Format{Bits: 5, Block: 32}); err == nil {
		t.Error("five bits accepted")
	}
	cancel()
	if _, err := w.Matrix(source(256, 1024, bad)); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}

func BenchmarkQuantize(b *testing.B) {
	row := normal(5, 1<<16)
	for _, f := range []weights.Format{{Bits: 4, Block: 32}, {Bits: 4, Block: 128}, {Bits: 8, Block: 32}, {Bits: 4, Block: 32, ZeroPoints: true}} {
		b.Run(fmt.Sprintf("bits=%d/block=%d/zeros=%v", f.Bits, f.Block, f.ZeroPoints), func(b *testing.B) {
			codes, scales, zeros := make([]byte, f.RowBytes(len(row))), make([]float32, f.Blocks(len(row))), make([]byte, f.ZeroBytes(len(row)))
			b.SetBytes(int64(4 * len(row)))
			for b.Loop() {
				f.QuantizeRow(row, codes, scales, zeros)
			}
		})
	}
}
