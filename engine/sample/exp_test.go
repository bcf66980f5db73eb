package sample

import (
	"math"
	"testing"
)

func TestExp(t *testing.T) {
	worst := 0.0
	for x := 0.0; x > -699; x -= 0.0137 {
		worst = max(worst, math.Abs(exp(x)/math.Exp(x)-1))
	}
	if worst > 1e-9 {
		t.Errorf("relative error %g", worst)
	}
	for _, x := range []float64{-701, math.Inf(-1), math.NaN()} {
		if got := exp(x); got != 0 {
			t.Errorf("exp(%v) is %v, want 0", x, got)
		}
	}
	if exp(0) != 1 {
		t.Errorf("exp(0) is %v", exp(0))
	}
}

// TestLargestAndNucleus compares the selections with a full sort, on sets that
// are ordered, tied and random, and on one that median-of-three takes long for.
func TestLargestAndNucleus(t *testing.T) {
	const n = 3000
	sets := map[string]func(i int) float64{
		"rising": func(i int) float64 { return float64(i) }, "falling": func(i int) float64 { return float64(n - i) },
		"equal": func(int) float64 { return 1 }, "few values": func(i int) float64 { return float64(i * 7919 % 5) },
		"scattered": func(i int) float64 { return float64(i * 7919 % n) },
		"killer": func(i int) float64 { // Musser 1997
			switch k := n / 2; {
			case i < k && i%2 == 0:
				return float64(n - i)
			case i < k:
				return float64(n - (k + i - 1))
			default:
				return float64(n - (i-k+1)*2)
			}
		},
	}
	for name, weight := range sets {
		build := func() (set []candidate) {
			for i := range n {
				set = append(set, candidate{int32(i), weight(i)})
			}
			return set
		}
		sorted := build()
		split(sorted, maxTurns)
		for _, k := range []int{1, 2, 40, n / 2, n - 1, n} {
			in := map[candidate]bool{}
			for _, c := range largest(build(), k) {
				in[c] = true
			}
			for i, c := range sorted {
				if in[c] != (i < k) {
					t.Fatalf("%s: largest %d: the %d-th has %v", name, k, i+1, in[c])
				}
			}
		}
		for _, p := range []float64{0, 0.1, 0.5, 0.99} {
			target, want, sum := p*mass(sorted), 0, 0.0
			for want < n && (want == 0 || sum < target-1e-6) {
				sum += sorted[want].weight
				want++
			}
			if got := len(nucleus(build(), target)); got != want {
				t.Errorf("%s: nucleus of %v: got %d tokens, want %d", name, p, got, want)
			}
		}
	}
}
