package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	reference "github.com/parquet-go/parquet-go"

	"athanor/engine/parquet"
)

// seeds are small files of every kind.
func seeds(tb testing.TB) (out [][]byte) {
	tb.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	for _, codec := range []reference.WriterOption{
		reference.Compression(&reference.Uncompressed), reference.Compression(&reference.Snappy),
		reference.Compression(&reference.Gzip), reference.Compression(&reference.Zstd),
	} {
		for _, version := range []int{1, 2} {
			var a []plainRow
			var b []fullRow
			var c []optionalRow
			for i := range 30 {
				ids := sequence(r, 2+i)
				small := convert[int64, int32](ids)
				a = append(a, plainRow{small})
				b = append(b, fullRow{ids, make([]int32, len(ids)), ids})
				c = append(c, optionalRow{[]*int32{&small[0], &small[1]}, []*int64{&ids[0], nil}})
			}
			o := []reference.WriterOption{codec, reference.DataPageVersion(version), reference.PageBufferSize(512)}
			out = append(out, write(tb, a, 2, o...), write(tb, b, 1, o...), write(tb, c, 2, o...))
		}
	}
	return out
}

// readAll reads a file to its end or its first error.
func readAll(tb testing.TB, b []byte) (tokens int) {
	tb.Helper()
	r, err := parquet.Open(bytes.NewReader(b), int64(len(b)))
	for err == nil {
		var row *parquet.Row
		if row, err = r.Next(); err == nil {
			tokens += len(row.InputIDs)
			if row.Problem() != "" {
				continue // what it holds may not fit together
			}
			if from, to := row.Attended(); from > to || to > len(row.InputIDs) {
				tb.Fatalf("attended [%d, %d) of %d", from, to, len(row.InputIDs))
			}
		}
	}
	var bad *parquet.FormatError
	if err != io.EOF && !errors.As(err, &bad) {
		tb.Fatalf("bad bytes gave %v", err)
	}
	return tokens
}

func FuzzRead(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { readAll(t, b) })
}

// mutate changes a file as an attacker would: single bytes, long varints, cut and
// repeated stretches, most of them in the metadata.
func mutate(r *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	footer := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	at := func() int {
		if r.IntN(3) > 0 {
			return footer + r.IntN(len(b)-footer)
		}
		return r.IntN(len(b))
	}
	for range 1 + r.IntN(4) {
		i := at()
		switch r.IntN(4) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] ^= 1 << r.IntN(8)
		case 2:
			for k := i; k < min(len(b), i+1+r.IntN(9)); k++ {
				b[k] = 0xff
			}
		case 3:
			n := min(r.IntN(16), len(b)-i)
			copy(b[i:i+n], b[r.IntN(len(b)-n):])
		}
	}
	copy(b, "PAR1") // so that it is read at all
	copy(b[len(b)-4:], "PAR1")
	return b
}

// allocated bounds what reading a small file may allocate in all its time: three
// read buffers, pages and rows in proportion to the file, and one row and one
// decompressed page that are as long as they may be.
const allocated = 64 << 20

// TestMutatedFiles reads files with thousands of errors.
func TestMutatedFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	files := seeds(t)
	var before, after runtime.MemStats
	most := uint64(0)
	for range 3000 {
		b := mutate(r, files[r.IntN(len(files))])
		runtime.ReadMemStats(&before)
		readAll(t, b)
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
	}
	if most > allocated {
		t.Errorf("reading a broken file allocated %d bytes", most)
	}
	t.Logf("at most %d bytes were allocated", most)
}

// TestCutFiles reads every beginning of a file, with a valid end put on.
func TestCutFiles(t *testing.T) {
	t.Parallel()
	whole := seeds(t)[1]
	footer := len(whole) - 8 - int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
	for n := 4; n < footer; n++ {
		readAll(t, slices.Concat(whole[:n], whole[footer:]))
	}
}
