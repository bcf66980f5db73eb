package parquet_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	reference "github.com/parquet-go/parquet-go"

	"athanor/engine/parquet"
)

// Layouts of files, as the reference library writes them.
type (
	plainRow struct {
		InputIDs []int32 `parquet:"input_ids,list"`
	}
	fullRow struct {
		InputIDs      []int64 `parquet:"input_ids,list" parquet-element:",delta"`
		AttentionMask []int32 `parquet:"attention_mask,list" parquet-element:",dict"`
		Labels        []int64 `parquet:"labels,list" parquet-element:",dict"`
	}
	optionalRow struct {
		InputIDs []*int32 `parquet:"input_ids,optional,list" parquet-element:",optional"`
		Labels   []*int64 `parquet:"labels,optional,list" parquet-element:",optional"`
	}
	repeatedRow struct {
		InputIDs []int32 `parquet:"input_ids,dict"`
	}
)

// write makes a file of rows.
func write[T any](tb testing.TB, rows []T, groups int, options ...reference.WriterOption) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := reference.NewGenericWriter[T](&b, options...)
	per := (len(rows) + groups - 1) / max(groups, 1)
	for i, r := range rows {
		_, err := w.Write([]T{r})
		if err == nil && per > 0 && (i+1)%per == 0 {
			err = w.Flush()
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// seen is a row as the tests compare it.
type seen struct {
	ids, mask, labels []int64
	problem           string
}

func read(b []byte) (out []seen, err error) {
	r, err := parquet.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for {
		row, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, seen{slices.Clone(row.InputIDs), slices.Clone(row.AttentionMask), slices.Clone(row.Labels), row.Problem()})
	}
}

func sequence(r *rand.Rand, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = r.Int64N(50000)
		if r.IntN(3) == 0 && i > 0 {
			out[i] = out[i-1] // something to run-length encode
		}
	}
	return out
}

func convert[A, B int32 | int64](a []A) []B {
	out := make([]B, len(a))
	for i, v := range a {
		out[i] = B(v)
	}
	return out
}

// TestReadsWhatTheReferenceWrites goes through layouts, encodings, codecs, versions
// of pages and sizes.
func TestReadsWhatTheReferenceWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var want [][]int64
	for i := range 120 {
		want = append(want, sequence(r, 2+i%37*(1+i%5)))
	}
	codecs := map[string]reference.WriterOption{
		"none": reference.Compression(&reference.Uncompressed), "snappy": reference.Compression(&reference.Snappy),
		"gzip": reference.Compression(&reference.Gzip), "zstd": reference.Compression(&reference.Zstd),
	}
	for name, codec := range codecs {
		for _, version := range []int{1, 2} {
			for _, page := range []int{256, 1 << 20} {
				for _, groups := range []int{1, 7} {
					options := []reference.WriterOption{codec, reference.DataPageVersion(version), reference.PageBufferSize(page)}
					var a []plainRow
					var b []fullRow
					var c []repeatedRow
					var d []optionalRow
					for _, ids := range want {
						small := convert[int64, int32](ids)
						mask := slices.Repeat([]int32{1}, len(ids))
						labels := slices.Clone(ids)
						labels[0] = -100
						a, c = append(a, plainRow{small}), append(c, repeatedRow{small})
						b = append(b, fullRow{ids, mask, labels})
						o := optionalRow{}
						for i := range small {
							o.InputIDs, o.Labels = append(o.InputIDs, &small[i]), append(o.Labels, &ids[i])
						}
						d = append(d, o)
					}
					for k, file := range [][]byte{write(t, a, groups, options...), write(t, b, groups, options...), write(t, c, groups, options...), write(t, d, groups, options...)} {
						got, err := read(file)
						if err != nil || len(got) != len(want) {
							t.Fatalf("%s, version %d, pages of %d, layout %d: %d rows, %v", name, version, page, k, len(got), err)
						}
						for i, g := range got {
							if g.problem != "" || !slices.Equal(g.ids, want[i]) {
								t.Fatalf("%s, version %d, pages of %d, layout %d, row %d: got %v, %q", name, version, page, k, i, g.ids, g.problem)
							}
							if k == 1 && (len(g.mask) != len(g.ids) || g.labels[0] != -100 || !slices.Equal(g.labels[1:], want[i][1:])) {
								t.Fatalf("row %d: %v", i, g)
							}
						}
					}
				}
			}
		}
	}
}

// TestDeltas: differences wrap around as integers of their width do.
func TestDeltas(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var rows []fullRow
	for i := range 300 {
		ids := make([]int64, 1+i)
		for k := range ids {
			ids[k] = int64(r.Uint64()) >> r.IntN(64)
		}
		rows = append(rows, fullRow{InputIDs: ids, AttentionMask: make([]int32, len(ids)), Labels: ids})
	}
	got, err := read(write(t, rows, 3))
	if err != nil || len(got) != len(rows) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	for i, g := range got {
		if !slices.Equal(g.ids, rows[i].InputIDs) {
			t.Fatalf("row %d: got %v, want %v", i, g.ids, rows[i].InputIDs)
		}
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	one := int32(1)
	long := int64(7)
	full := func(ids []int64, mask []int32, labels []int64) []byte {
		return write(t, []fullRow{{ids, mask, labels}}, 1)
	}
	tests := []struct {
		file []byte
		want string
	}{
		{full([]int64{1, 2}, []int32{1, 1}, []int64{-100, 2}), ""},
		{full([]int64{0, 0, 1, 2, 0}, []int32{0, 0, 1, 1, 0}, []int64{9, 9, 1, 2, 9}), ""},
		{full(nil, nil, nil), "`input_ids` must not be empty"},
		{full([]int64{1, -2}, []int32{1, 1}, []int64{1, 2}), "`input_ids[1]` must be a token id between 0 and 2147483647, not -2"},
		{full([]int64{1 << 31, 2}, []int32{1, 1}, []int64{1, 2}), "`input_ids[0]` must be a token id between 0 and 2147483647, not 2147483648"},
		{full([]int64{1, 2}, []int32{1}, []int64{1, 2}), "`attention_mask` must have as many values as `input_ids`, 2, not 1"},
		{full([]int64{1, 2}, []int32{1, 1}, []int64{1, 2, 3}), "`labels` must have as many values as `input_ids`, 2, not 3"},
		{full([]int64{1, 2}, []int32{1, 2}, []int64{1, 2}), "`attention_mask[1]` must be 0 or 1, not 2"},
		{full([]int64{1, 2, 3}, []int32{1, 0, 1}, []int64{1, 2, 3}), "`attention_mask[1]` must be 1: zeros are only for padding at the ends"},
		{full([]int64{1, 2}, []int32{0, 0}, []int64{1, 2}), "`attention_mask` must hold a 1"},
		{full([]int64{1, 2}, []int32{1, 1}, []int64{1, 3}), "`labels[1]` must be -100 or the token in its place, 2, not 3"},
		{full([]int64{1, 2}, []int32{1, 1}, []int64{1, -100}), "no token carries loss: a token with a label is needed behind the first"},
		{write(t, []plainRow{{[]int32{5}}}, 1), "no token carries loss: a token with a label is needed behind the first"},
		{write(t, []optionalRow{{nil, nil}}, 1), "`input_ids` must not be null"},
		{write(t, []optionalRow{{[]*int32{&one, nil}, []*int64{&long, &long}}}, 1), "`input_ids` must not hold null"},
		{write(t, []optionalRow{{[]*int32{&one, &one}, []*int64{&long, nil}}}, 1), "`labels` must not hold null"},
		{write(t, []plainRow{{make([]int32, parquet.MaxTokens+1)}}, 1), "`input_ids` must have at most 1048576 values"},
	}
	for _, tt := range tests {
		got, err := read(tt.file)
		if err != nil || len(got) != 1 || got[0].problem != tt.want {
			t.Errorf("got %+v, %v; want %q", got, err, tt.want)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	type text struct {
		Text string `parquet:"text"`
	}
	type flat struct {
		InputIDs int32 `parquet:"input_ids"`
	}
	type strange struct {
		InputIDs []string `parquet:"input_ids,list"`
	}
	type nested struct {
		InputIDs [][]int32 `parquet:"input_ids,list"`
	}
	type extra struct {
		InputIDs []int32 `parquet:"input_ids,list"`
		Name     string  `parquet:"na\nme"`
	}
	type without struct {
		Labels []int32 `parquet:"labels,list"`
	}
	good := write(t, []plainRow{{[]int32{1, 2, 3}}}, 1)
	damaged := slices.Clone(good)
	damaged[40] ^= 1
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "the file is not a Parquet file: it has only 0 bytes"},
		{"text", []byte("{\"text\": \"a\"}\n"), "the file is not a Parquet file: it does not begin with PAR1"},
		{"cut", good[:len(good)-10], "the file is not a Parquet file, or not all of it: it does not end with PAR1"},
		{"encrypted", []byte("PARE" + strings.Repeat("x", 30) + "PARE"), "the file is encrypted"},
		{"long footer", append(slices.Clone(good[:len(good)-8]), "\xff\xff\xff\x7fPAR1"...), "the metadata has 2147483647 bytes, at most"},
		{"column", write(t, []text{{"a"}}, 1), "the column `text` is not known: a file of tokens has `input_ids`, and may have `attention_mask` and `labels`"},
		{"further column", write(t, []extra{{[]int32{1}, "a"}}, 1), "the column `na me` is not known"},
		{"no list", write(t, []flat{{1}}, 1), "the column `input_ids` must be a list of integers"},
		{"list of strings", write(t, []strange{{[]string{"a"}}}, 1), "the column `input_ids` must be a list of integers"},
		{"list of lists", write(t, []nested{{[][]int32{{1}}}}, 1), "the column `input_ids` must be a list of integers"},
		{"no ids", write(t, []without{{[]int32{1}}}, 1), "the file must have a column `input_ids`"},
		{"codec", write(t, []plainRow{{[]int32{1, 2}}}, 1, reference.Compression(&reference.Brotli)), "the compression BROTLI is not supported"},
		{"other codec", write(t, []plainRow{{[]int32{1, 2}}}, 1, reference.Compression(&reference.Lz4Raw)), "the compression LZ4_RAW is not supported"},
	}
	for _, tt := range tests {
		_, err := read(tt.file)
		var bad *parquet.FormatError
		if !errors.As(err, &bad) || !strings.HasPrefix(bad.Reason, tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

// failing cannot be read behind a place.
type failing struct{ b []byte }

var errDisk = errors.New("the disk is gone")

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at > 3 && at < int64(len(f.b))/4 {
		return 0, errDisk
	}
	return bytes.NewReader(f.b).ReadAt(p, at)
}

func TestReadErrorsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	var rows []plainRow
	for i := range 1000 {
		rows = append(rows, plainRow{[]int32{int32(i), 2, 3}})
	}
	b := write(t, rows, 1, reference.Compression(&reference.Uncompressed))
	r, err := parquet.Open(failing{b}, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
}
