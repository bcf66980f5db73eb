package export

import (
	"math"
	"testing"
)

// TestSums has two positions worked by hand.
func TestSums(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	s := sums{first: []float32{ln(0.5), ln(0.25), ln(0.25)}}
	// From {1/2, 1/4, 1/4} to {1/4, 1/2, 1/4}: 1/2 ln 2 + 1/4 ln 1/2 = 1/4 ln 2.
	// A shift of all logits changes nothing but the largest difference.
	if err := s.add([]float32{ln(0.25) + 3, ln(0.5) + 3, ln(0.25) + 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.add(s.first); err != nil {
		t.Fatal(err)
	}
	c := s.check(1)
	if c.Positions != 2 || math.Abs(c.MeanKL-math.Ln2/8) > 1e-7 || math.Abs(c.MaxLogit-3-math.Ln2) > 1e-6 || c.TopMatches != 0.5 || c.Warning == "" {
		t.Errorf("%+v", c)
	}
	if err := s.add([]float32{float32(math.Inf(1)), 0, 0}); err == nil {
		t.Error("an infinite logit was accepted")
	}
}

func TestProbe(t *testing.T) {
	rows := [][]int32{{1, 2, 3, 4}, nil, {5, 6, 7}, {8}}
	got := probe(rows, 3, 5)
	if len(got) != 2 || len(got[0]) != 3 || len(got[1]) != 2 {
		t.Errorf("%v", got)
	}
}
