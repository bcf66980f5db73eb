package dataset_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"athanor/server/files/dataset"
)

type tokens struct {
	InputIDs []int32 `parquet:"input_ids,list"`
}

func tokenFile(tb testing.TB, rows ...tokens) string {
	tb.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func checkParquet(t *testing.T, purpose, content string) *dataset.Report {
	t.Helper()
	r, err := dataset.CheckParquet(t.Context(), strings.NewReader(content), int64(len(content)), dataset.Options{Purpose: purpose})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParquet(t *testing.T) {
	t.Parallel()
	r := checkParquet(t, dataset.FineTune, tokenFile(t, tokens{[]int32{1, 2}}, tokens{[]int32{3}}, tokens{[]int32{1, 2}}, tokens{[]int32{1, -2}}, tokens{[]int32{12, 0}}))
	want := []dataset.Problem{{Line: 2, Reason: "no token carries loss: a token with a label is needed behind the first"}, {Line: 4, Reason: "`input_ids[1]` must be a token id between 0 and 2147483647, not -2"}}
	if r.Lines != 5 || r.Errors != 2 || r.Duplicates != 1 || r.Format != dataset.Tokenized || !slices.Equal(r.Problems, want) {
		t.Errorf("got %+v", r)
	}
	many := make([]tokens, 5000)
	for i := range many {
		many[i] = tokens{[]int32{1}}
	}
	file := tokenFile(t, many...)
	progress := int64(0)
	r, err := dataset.CheckParquet(t.Context(), strings.NewReader(file), int64(len(file)), dataset.Options{Purpose: dataset.FineTune, Progress: func(bytes, _ int64) { progress = bytes }})
	if err != nil || r.Errors != 5000 || len(r.Problems) != 100 || progress < 1 || progress > int64(len(file)) {
		t.Errorf("%d errors, %d kept, progress %d, %v", r.Errors, len(r.Problems), progress, err)
	}
	for content, want := range map[string]string{
		"":           "Line 1: the file is not a Parquet file: it has only 0 bytes",
		tokenFile(t): "Line 1: the file holds no samples",
	} {
		if r := checkParquet(t, dataset.FineTune, content); r.Valid() || r.Problems[0].String() != want {
			t.Errorf("got %v, want %s", r.Problems, want)
		}
	}
	if r := checkParquet(t, dataset.Eval, "x"); r.Problems[0].String() != "Line 1: the file is Parquet, which is only for training: use JSON lines" {
		t.Errorf("got %v", r.Problems)
	}
}

// TestDamagedParquet: what is damaged behind good rows is said with the next row.
func TestDamagedParquet(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[tokens](&b, parquet.Compression(&parquet.Uncompressed))
	for range 3 {
		_, err := w.Write([]tokens{{[]int32{1, 2, 3}}, {[]int32{4, 5, 6}}})
		if err := errors.Join(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	value := []byte{4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0}
	last := bytes.LastIndex(file, value)
	file[last] = 9
	r := checkParquet(t, dataset.FineTune, string(file))
	if r.Errors != 1 || r.Problems[0].String() != "Line 5: a page does not have its checksum: the file is damaged" {
		t.Errorf("got %v", r.Problems)
	}
}

// TestShared counts what two files have in common.
func TestShared(t *testing.T) {
	t.Parallel()
	of := func(content string) *dataset.Hashes {
		h := &dataset.Hashes{}
		if _, err := dataset.Check(t.Context(), strings.NewReader(content), dataset.Options{Purpose: dataset.FineTune, Type: "jsonl", Hashes: h}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	line := func(s string) string { return `{"text":"` + s + `"}` + "\n" }
	training := of(line("a") + line("b") + line("c") + line("a") + "bad\n")
	if got := training.Shared(of(line("c") + line("x") + line("a") + line("a") + "bad\n")); got != 3 {
		t.Errorf("got %d lines, want 3", got)
	}
	if got := training.Shared(of("bad\n")); got != 0 {
		t.Errorf("got %d lines of a bad file", got)
	}
}
