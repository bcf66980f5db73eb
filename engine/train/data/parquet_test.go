package data_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"athanor/engine"
	"athanor/engine/train/data"
)

type tokenRow struct {
	InputIDs      []int32 `parquet:"input_ids,list"`
	AttentionMask []int32 `parquet:"attention_mask,list"`
	Labels        []int32 `parquet:"labels,list"`
}

func tokenFile(tb testing.TB, rows []tokenRow) string {
	tb.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestTokenizedFiles(t *testing.T) {
	t.Parallel()
	s := spec(t, tokenFile(t, []tokenRow{
		{[]int32{5, 6, 7, 8}, []int32{1, 1, 1, 1}, []int32{-100, -100, 7, 8}},
		{[]int32{0, 5, 6, 0, 0}, []int32{0, 1, 1, 0, 0}, []int32{0, 5, 6, 0, 0}},
		{[]int32{1, 2, 3, 4, 5, 6, 7}, []int32{1, 1, 1, 1, 1, 1, 1}, []int32{1, 2, 3, 4, 5, 6, 7}},
	}), "parquet")
	s.MaxSeqLength = 6
	set := mustTokenize(t, s, filepath.Join(t.TempDir(), "set"))
	want := []data.Sample{
		{Tokens: []int32{5, 6, 7, 8}, Weights: []float32{0, 0, 1, 1}},
		{Tokens: []int32{5, 6}, Weights: []float32{0, 1}},
		{Tokens: []int32{1, 2, 3, 4, 5, 6}, Weights: []float32{0, 1, 1, 1, 1, 1}},
	}
	for i, w := range want {
		got, err := set.Sample(i)
		if err != nil || !slices.Equal(got.Tokens, w.Tokens) || !slices.Equal(got.Weights, w.Weights) {
			t.Errorf("sequence %d: got %v, %v; want %v", i, got, err, w)
		}
	}
	if set.Len() != 3 || set.Truncated() != 1 || set.Format() != data.FormatTokens {
		t.Errorf("%d sequences, %d truncated, format %s", set.Len(), set.Truncated(), set.Format())
	}
	if n := mustSampler(t, set, data.Options{Packing: true, RowLength: 100, BatchRows: 1}).Rows(); n != 3 {
		t.Errorf("packing made %d rows of a Parquet file", n)
	}
}

func TestBadTokenizedFiles(t *testing.T) {
	t.Parallel()
	good := tokenRow{[]int32{1, 2}, []int32{1, 1}, []int32{1, 2}}
	tests := []struct {
		content    string
		preference bool
		line       int64
		want       string
	}{
		{"no such file", false, 1, "Line 1: the file is not a Parquet file: it does not begin with PAR1"},
		{tokenFile(t, nil), false, 0, "the file holds no samples"},
		{tokenFile(t, []tokenRow{good, {[]int32{1, 2}, []int32{1, 1}, []int32{1, 3}}}), false, 2, "Line 2: `labels[1]` must be -100 or the token in its place, 2, not 3"},
		{tokenFile(t, []tokenRow{good, {[]int32{1, 99999}, []int32{1, 1}, []int32{1, 99999}}}), false, 2, "Line 2: the token 99999 is outside of the model's vocabulary of 2048"},
		{tokenFile(t, []tokenRow{good}), true, 1, "Line 1: preference optimisation needs the preference format, and the file holds tokens"},
	}
	for _, tt := range tests {
		s := spec(t, tt.content, "parquet")
		s.Preference = tt.preference
		_, err := data.Tokenize(t.Context(), s, filepath.Join(t.TempDir(), "set"), nil)
		var bad *engine.DataError
		if !errors.As(err, &bad) || bad.Line != tt.line || bad.Message != tt.want {
			t.Errorf("got %v, want line %d: %s", err, tt.line, tt.want)
		}
	}
}
