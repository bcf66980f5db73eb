package sample_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"athanor/engine/sample"
)

// reference is the distribution that p makes of logits, the plain way: sort all,
// then temperature, top-k, top-p, min-p, each on what the one before left.
func reference(logits []float32, p sample.Params) map[int32]float64 {
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	sort.SliceStable(ids, func(i, j int) bool { return logits[ids[i]] > logits[ids[j]] })
	high := float64(logits[ids[0]])
	weight := func(id int32) float64 { return math.Exp((float64(logits[id]) - high) / p.Temperature) }
	if p.TopK > 0 {
		ids = ids[:min(p.TopK, len(ids))]
	}
	total := 0.0
	for _, id := range ids {
		total += weight(id)
	}
	if p.TopP < 1 {
		sum, n := 0.0, 0
		for n < len(ids) && (n == 0 || sum < p.TopP*total) {
			sum += weight(ids[n])
			n++
		}
		ids = ids[:n]
	}
	out := map[int32]float64{}
	total = 0
	for _, id := range ids {
		if w := weight(id); w >= p.MinP {
			out[id] = w
			total += w
		}
	}
	for id := range out {
		out[id] /= total
	}
	return out
}

// TestAgainstReference draws from a vocabulary large enough for every short cut
// and compares the frequencies with those of the plain way by chi-square.
func TestAgainstReference(t *testing.T) {
	const vocab, draws = 5000, 1200
	rng := rand.New(rand.NewPCG(3, 9))
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 2)
	}
	for i := range 30 { // a head, as language models have
		logits[rng.IntN(vocab)] = float32(9 + float64(i)/10)
	}
	for _, p := range []sample.Params{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.5, TopP: 1},
		{Temperature: 1, TopP: 0.9},
		{Temperature: 0.7, TopP: 0.99},
		{Temperature: 1, TopP: 1, TopK: 40},
		{Temperature: 1, TopP: 1, TopK: 5000},
		{Temperature: 1, TopP: 0.8, TopK: 20},
		{Temperature: 1, TopP: 1, MinP: 0.3},
		{Temperature: 1.5, TopP: 0.95, MinP: 0.1},
		{Temperature: 2, TopP: 0.5, TopK: 3000, MinP: 0.01},
	} {
		t.Run(fmt.Sprintf("T%v_p%v_k%d_m%v", p.Temperature, p.TopP, p.TopK, p.MinP), func(t *testing.T) {
			want := reference(logits, p)
			p.Seed = 17
			s := sample.New(p, vocab, nil)
			counts := map[int32]int{}
			scratch := make([]float32, vocab)
			for range draws {
				copy(scratch, logits)
				c, err := s.Sample(scratch, -1)
				if err != nil {
					t.Fatal(err)
				}
				counts[c.ID]++
			}
			for id := range counts {
				if want[id] == 0 {
					t.Fatalf("drew %d, which the parameters rule out", id)
				}
			}
			// Tokens expected fewer than 5 times are taken together.
			chi, classes, restWant, restGot := 0.0, 0, 0.0, 0
			for id, q := range want {
				if expected := q * draws; expected >= 5 {
					chi += math.Pow(float64(counts[id])-expected, 2) / expected
					classes++
				} else {
					restWant += expected
					restGot += counts[id]
				}
			}
			if restWant >= 5 {
				chi += math.Pow(float64(restGot)-restWant, 2) / restWant
				classes++
			}
			// Four standard deviations above the mean of chi-square.
			if free := float64(classes - 1); free > 0 && chi > free+4*math.Sqrt(2*free)+4 {
				t.Errorf("chi-square %.1f with %v degrees of freedom", chi, free)
			}
		})
	}
}

// TestMaskKeepsLogprobsRaw: what is reported does not know the mask.
func TestMaskKeepsLogprobsRaw(t *testing.T) {
	s := sample.New(sample.Defaults(), 2, nil)
	s.SetMask([]uint64{2})
	c, err := s.Sample([]float32{float32(math.Log(3)), 0}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != 1 || math.Abs(float64(c.Logprob)-math.Log(0.25)) > 1e-6 || len(c.Top) != 2 || c.Top[0].ID != 0 {
		t.Errorf("got %+v, want token 1 with ln(1/4) and token 0 on top", c)
	}
	s.SetMask([]uint64{1})
	if c, err := s.Sample([]float32{0, 99}, -1); err != nil || c.ID != 0 {
		t.Errorf("got %d, %v; want 0", c.ID, err)
	}
	if c, err := s.Sample([]float32{0, 99}, -1); err != nil || c.ID != 1 {
		t.Errorf("a mask is used once: got %d, %v; want 1", c.ID, err)
	}
}

func TestExtremes(t *testing.T) {
	inf := float32(math.Inf(-1))
	for name, p := range map[string]sample.Params{
		"almost cold": {Temperature: 1e-320, TopP: 0.5}, "cold": {Temperature: 1.1e-5, TopP: 1}, "no mass": {Temperature: 1, TopP: 0},
		"only the best": {Temperature: 1, TopP: 1, MinP: 1}, "one": {Temperature: 1, TopP: 1, TopK: 1},
	} {
		c, err := sample.New(p, 4, []int32{-5, 99, 2}).Sample([]float32{inf, 1, 3, -3e38}, 4)
		if err != nil || c.ID != 2 {
			t.Errorf("%s: got %d, %v; want 2", name, c.ID, err)
		}
		if len(c.Top) != 4 || c.Top[3].Logprob != -9999 || slices.ContainsFunc(c.Top, func(l sample.TopLogprob) bool { return l.Logprob > 0 }) {
			t.Errorf("%s: top %v", name, c.Top)
		}
	}
	if lp, _ := sample.Logprobs([]float32{1, 2}, 2, 7, 0); lp != -9999 {
		t.Errorf("an id outside the vocabulary: got %v", lp)
	}
}
