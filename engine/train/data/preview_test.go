package data_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/train/data"
)

func source(content, kind string) data.Source {
	return data.Source{Type: kind, Content: strings.NewReader(content), Size: int64(len(content))}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	got, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{}, source(lines(20), "jsonl"), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Format != data.FormatConversation || got.MaxSeqLength != 1024 || len(got.Rows) != 3 {
		t.Fatalf("got %+v", got)
	}
	for _, r := range got.Rows {
		var said string
		trained := 0
		for _, s := range r.TrainedSpans {
			said += strings.Join(r.Tokens[s[0]:s[1]], "")
			trained += s[1] - s[0]
			if !slices.Equal(r.Labels[s[0]:s[1]], r.InputIDs[s[0]:s[1]]) || s[0] > 0 && r.Labels[s[0]-1] != -100 {
				t.Errorf("labels %v of spans %v", r.Labels, r.TrainedSpans)
			}
		}
		if r.NumTokens != len(r.InputIDs) || r.NumTrained != trained || r.Truncated || strings.TrimRight(strings.ReplaceAll(said, "word ", ""), " ") != "<|im_end|>" {
			t.Errorf("got %+v", r)
		}
	}
	pairs, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{Preference: true, MaxSeqLength: 12}, source(preference("a", "b c d e f g h i j k l m"), "jsonl"), 50)
	if err != nil || len(pairs.Rows) != 2 || pairs.Rows[0].Answer != "chosen" || pairs.Rows[1].Answer != "rejected" || !pairs.Rows[1].Truncated || pairs.Rows[1].NumTokens != 12 {
		t.Errorf("got %+v, %v", pairs, err)
	}
	if _, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{}, source("x", "jsonl"), 1); err == nil || !strings.HasPrefix(err.Error(), "Line 1: ") {
		t.Errorf("got %v", err)
	}
	if _, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{}, source("", "jsonl"), 1001); err == nil {
		t.Error("1001 lines")
	}
}

// TestCounts: what is counted without a set is what a set and its sampler have.
func TestCounts(t *testing.T) {
	t.Parallel()
	s := spec(t, lines(500), "jsonl")
	s.MaxSeqLength = 30
	set := mustTokenize(t, s, filepath.Join(t.TempDir(), "set"))
	e, err := data.NewEncoder(demo.FS(), data.EncodeOptions{MaxSeqLength: 30})
	if err != nil {
		t.Fatal(err)
	}
	c, err := data.Count(t.Context(), e, source(lines(500), "jsonl"), "training", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Samples != 500 || c.Tokens != set.Tokens() || c.Trained != set.Trained() || c.Truncated != set.Truncated() || c.Format != set.Format() || c.Truncated == 0 {
		t.Errorf("got %+v", c)
	}
	for _, o := range []data.Options{
		{BatchRows: 7}, {BatchRows: 4, Shuffle: true}, {BatchRows: 900, Shuffle: true}, {BatchRows: 3, Packing: true, RowLength: 64}, {BatchRows: 1, Packing: true, RowLength: 64, Shuffle: true},
	} {
		sampler := mustSampler(t, set, o)
		got := c.Epoch(o)
		if got.Rows != int64(sampler.Rows()) || got.Batches != int64(sampler.Batches()) || got.Tokens != set.Tokens() || got.Trained != set.Trained() {
			t.Errorf("%+v: got %+v", o, got)
		}
		positions, squares := 0.0, 0.0
		for i := range sampler.Batches() {
			b, err := sampler.Batch(0, i)
			if err != nil {
				t.Fatal(err)
			}
			positions, squares = positions+float64(b.Rows*b.Length), squares+float64(b.Rows*b.Length*b.Length)
		}
		most := 0.1 // of what is expected of rows in a random order
		if o.Shuffle && (!o.Packing && sampler.Batches() <= 50 || o.BatchRows == 1) {
			most = 1e-9
		}
		if math.Abs(got.Positions/positions-1) > most || math.Abs(got.Squares/squares-1) > most {
			t.Errorf("%+v: got %.0f positions and %.0f squares, want %.0f and %.0f", o, got.Positions, got.Squares, positions, squares)
		}
	}
	if first, n, err := data.CountFirst(t.Context(), e, source(lines(500), "jsonl"), "training", 20, math.MaxInt64); err != nil || n != 20 || first.Samples != 20 || first.Sequences() != 20 {
		t.Errorf("first 20 lines: %+v, %d, %v", first, n, err)
	}
	if first, n, err := data.CountFirst(t.Context(), e, source(lines(500), "jsonl"), "training", 1000, 100); err != nil || n >= 20 || first.Tokens < 100 || first.Tokens > 130 {
		t.Errorf("first 100 tokens: %+v, %d, %v", first, n, err)
	}
	if all, n, err := data.CountFirst(t.Context(), e, source(lines(500), "jsonl"), "training", 1000, math.MaxInt64); err != nil || n != 500 || all.Tokens != c.Tokens {
		t.Errorf("all lines: %+v, %d, %v", all, n, err)
	}
	var lengths []int
	for n, k := range c.Lengths {
		lengths = append(lengths, slices.Repeat([]int{n}, int(k))...)
	}
	if len(lengths) != 500 || c.Percentile(0) != lengths[0] || c.Percentile(1) != lengths[499] || c.Percentile(0.5) != lengths[249] || c.Percentile(0.9) != lengths[449] || lengths[499] <= 30 {
		t.Errorf("%d lengths, percentiles %s", len(lengths), fmt.Sprint(c.Percentile(0), c.Percentile(0.5), c.Percentile(0.9), c.Percentile(1)))
	}
	trained, evaluated := data.JobTokens(c, c, 3, 2)
	if trained != 3*c.Tokens || evaluated != 2*c.Tokens {
		t.Errorf("got %d, %d", trained, evaluated)
	}
}

// TestStream: what can only be read once gives the same preview.
func TestStream(t *testing.T) {
	t.Parallel()
	tokens := tokenFile(t, []tokenRow{{[]int32{1, 2}, []int32{1, 1}, []int32{1, 2}}})
	for kind, content := range map[string]string{"jsonl": lines(3000), "parquet": tokens} {
		want, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{}, source(content, kind), 1000)
		if err != nil {
			t.Fatal(err)
		}
		src, done, err := data.Stream(kind, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		got, err := data.Preview(t.Context(), demo.FS(), data.EncodeOptions{}, src, 1000)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %d rows, %v", kind, len(got.Rows), err)
		}
		if err := done(); err != nil {
			t.Error(err)
		}
	}
}
