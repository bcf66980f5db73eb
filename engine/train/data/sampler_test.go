package data_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"athanor/engine/train/data"
)

func mustSampler(tb testing.TB, s *data.Set, o data.Options) *data.Sampler {
	tb.Helper()
	out, err := data.NewSampler(s, o)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// sequences takes a batch apart and checks its shape.
func sequences(tb testing.TB, b *data.Batch) (out []data.Sample) {
	tb.Helper()
	if n := b.Rows * b.Length; len(b.Tokens) != n || len(b.Targets) != n || len(b.Weights) != n || len(b.Positions) != n || len(b.Segments) != n || b.Noise == 0 {
		tb.Fatalf("a batch of %d rows of %d has %d tokens", b.Rows, b.Length, len(b.Tokens))
	}
	for r := range b.Rows {
		want := int32(-1)
		for i := r * b.Length; i < (r+1)*b.Length; i++ {
			switch seg := b.Segments[i]; {
			case seg == -1:
				if b.Tokens[i] != 0 || b.Weights[i] != 0 || b.Positions[i] != 0 {
					tb.Fatalf("padding at %d", i)
				}
				continue
			case seg == want+1:
				want++
				out = append(out, data.Sample{Weights: []float32{0}})
			case seg != want:
				tb.Fatalf("segment %d after %d", seg, want)
			}
			s := &out[len(out)-1]
			if int(b.Positions[i]) != len(s.Tokens) {
				tb.Fatalf("position %d of token %d", b.Positions[i], len(s.Tokens))
			}
			if w := s.Weights[len(s.Tokens)]; w > 0 && b.Targets[i-1] != b.Tokens[i] {
				tb.Fatalf("the target of %d is %d, and %d follows", i-1, b.Targets[i-1], b.Tokens[i])
			}
			s.Tokens, s.Weights = append(s.Tokens, b.Tokens[i]), append(s.Weights, b.Weights[i])
		}
	}
	for i := range out {
		n := len(out[i].Tokens)
		if out[i].Weights[n] != 0 {
			tb.Fatal("the last token of a sample predicts something")
		}
		out[i].Weights = out[i].Weights[:n]
	}
	return out
}

func fingerprint(s data.Sample) string { return fmt.Sprint(s.Tokens, s.Weights) }

// TestEpochs: every epoch has every sample once, exactly as it is in the set, in
// an order of its own that only depends on the seed.
func TestEpochs(t *testing.T) {
	t.Parallel()
	set := mustTokenize(t, spec(t, lines(203), "jsonl"), filepath.Join(t.TempDir(), "set"))
	var want []string
	for i := range set.Len() {
		s, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fingerprint(s))
	}
	sorted := slices.Sorted(slices.Values(want))
	for _, o := range []data.Options{
		{BatchRows: 4}, {BatchRows: 4, Shuffle: true, Seed: 1}, {BatchRows: 300, Shuffle: true},
		{BatchRows: 3, Packing: true, RowLength: 64}, {BatchRows: 3, Packing: true, RowLength: 64, Shuffle: true}, {BatchRows: 1, Packing: true},
	} {
		s := mustSampler(t, set, o)
		noises := map[uint64]bool{}
		var orders []string
		for epoch := range 3 {
			var got []string
			for i := range s.Batches() {
				b, err := s.Batch(epoch, i)
				if err != nil {
					t.Fatal(err)
				}
				if noises[b.Noise] {
					t.Fatalf("noise %d twice", b.Noise)
				}
				noises[b.Noise] = true
				if o.Packing && b.Length > max(o.RowLength, set.Longest()) {
					t.Fatalf("a packed row of %d", b.Length)
				}
				for _, q := range sequences(t, b) {
					got = append(got, fingerprint(q))
				}
			}
			orders = append(orders, fmt.Sprint(got))
			if !o.Shuffle && !o.Packing && !slices.Equal(got, want) {
				t.Errorf("%+v: not the order of the file", o)
			}
			if !slices.Equal(slices.Sorted(slices.Values(got)), sorted) {
				t.Fatalf("%+v: epoch %d has other samples", o, epoch)
			}
		}
		if (orders[0] == orders[1]) == o.Shuffle && s.Batches() > 1 {
			t.Errorf("%+v: epochs have the same order: %v", o, !o.Shuffle)
		}
	}
}

// TestBatchIsPure: a batch does not depend on what was asked before, and its order
// is what it was when this test was written.
func TestBatchIsPure(t *testing.T) {
	t.Parallel()
	set := mustTokenize(t, spec(t, lines(40), "jsonl"), filepath.Join(t.TempDir(), "set"))
	o := data.Options{BatchRows: 2, Shuffle: true, Seed: 42}
	first := mustSampler(t, set, o)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		epoch, index := r.IntN(4), r.IntN(first.Batches())
		a, err := first.Batch(epoch, index)
		if err != nil {
			t.Fatal(err)
		}
		b, err := mustSampler(t, set, o).Batch(epoch, index)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(*a) != fmt.Sprint(*b) {
			t.Fatalf("batch %d of epoch %d differs", index, epoch)
		}
	}
	var lengths []int
	for i := range first.Batches() {
		b, err := first.Batch(0, i)
		if err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, b.Length)
	}
	if got, want := fmt.Sprint(lengths), wantLengths; got != want {
		t.Errorf("the order changed: got %s, want %s", got, want)
	}
}

const wantLengths = "[37 30 27 29 16 26 39 34 31 40 19 22 20 25 38 33 32 23 24 36]"

func TestPairs(t *testing.T) {
	t.Parallel()
	content := ""
	for i := range 9 {
		content += preference(fmt.Sprintf("good %d", i), fmt.Sprintf("bad, very bad %d", i)) + "\n"
	}
	sp := spec(t, content, "jsonl")
	sp.Preference = true
	set := mustTokenize(t, sp, filepath.Join(t.TempDir(), "set"))
	s := mustSampler(t, set, data.Options{BatchRows: 2, Packing: true, RowLength: 4096, Shuffle: true})
	if s.Batches() != 5 || s.Rows() != 9 {
		t.Fatalf("%d batches of %d pairs", s.Batches(), s.Rows())
	}
	where := map[string]int{}
	for i := range set.Len() {
		q, err := set.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		where[fingerprint(q)] = i
	}
	seen := 0
	for i := range s.Batches() {
		b, err := s.Batch(0, i)
		if err != nil {
			t.Fatal(err)
		}
		got := sequences(t, b)
		if len(got) != b.Rows || b.Rows%2 != 0 {
			t.Fatalf("%d sequences in %d rows", len(got), b.Rows)
		}
		for k := 0; k < len(got); k += 2 {
			chosen, rejected := where[fingerprint(got[k])], where[fingerprint(got[k+1])]
			if chosen%2 != 0 || rejected != chosen+1 {
				t.Errorf("rows %d and %d are the sequences %d and %d", k, k+1, chosen, rejected)
			}
			seen++
		}
	}
	if seen != 9 {
		t.Errorf("%d pairs", seen)
	}
}

// TestPacking: rows are nearly full.
func TestPacking(t *testing.T) {
	t.Parallel()
	set := mustTokenize(t, spec(t, lines(1000), "jsonl"), filepath.Join(t.TempDir(), "set"))
	s := mustSampler(t, set, data.Options{BatchRows: 1, Packing: true, RowLength: 256})
	best := (int(set.Tokens()) + 255) / 256
	if s.Rows() > best+best/50+1 {
		t.Errorf("%d rows, %d could do", s.Rows(), best)
	}
}

func TestSamplerRefuses(t *testing.T) {
	t.Parallel()
	set := mustTokenize(t, spec(t, lines(3), "jsonl"), filepath.Join(t.TempDir(), "set"))
	if _, err := data.NewSampler(set, data.Options{}); err == nil {
		t.Error("a batch of no rows")
	}
	s := mustSampler(t, set, data.Options{BatchRows: 2})
	for _, at := range [][2]int{{-1, 0}, {0, -1}, {0, 2}} {
		if _, err := s.Batch(at[0], at[1]); err == nil {
			t.Errorf("there is a batch %v", at)
		}
	}
}
