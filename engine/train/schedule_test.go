package train

import (
	"maps"
	"math"
	"slices"
	"testing"

	"athanor/engine"
)

func TestRateAt(t *testing.T) {
	linear, cosine := engine.Schedule{Type: "linear"}, engine.Schedule{Type: "cosine", NumCycles: 0.5}
	cases := []struct {
		name   string
		s      engine.Schedule
		warmup float64
		want   []float64 // of all steps
	}{
		{"one step has the peak", linear, 0, []float64{1}},
		{"linear", linear, 0, []float64{1, 0.75, 0.5, 0.25}},
		{"linear to a tenth", engine.Schedule{Type: "linear", MinLRRatio: 0.1}, 0, []float64{1, 0.82, 0.64, 0.46, 0.28}},
		{"linear after a warm-up", linear, 1. / 3, []float64{0.5, 1, 1, 0.75, 0.5, 0.25}},
		{"warm-up is rounded up", linear, 0.3, []float64{0.5, 1, 1, 0.5}},
		{"warm-up only", linear, 1, []float64{0.25, 0.5, 0.75, 1}},
		{"cosine", cosine, 0, []float64{1, (1 + math.Sqrt2/2) / 2, 0.5, (1 - math.Sqrt2/2) / 2}},
		{"cosine after a warm-up", cosine, 0.2, []float64{1, 1, (1 + math.Sqrt2/2) / 2, 0.5, (1 - math.Sqrt2/2) / 2}},
		{"cosine to a half", engine.Schedule{Type: "cosine", NumCycles: 0.5, MinLRRatio: 0.5}, 0, []float64{1, 0.75}},
		{"cosine of a whole period", engine.Schedule{Type: "cosine", NumCycles: 1}, 0, []float64{1, 0.5, 0, 0.5}},
		{"cosine of no period", engine.Schedule{Type: "cosine"}, 0, []float64{1, 1, 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for i, want := range c.want {
				if got := rateAt(c.s, c.warmup, len(c.want), i+1); math.Abs(got-want) > 1e-12 {
					t.Errorf("step %d: %g, want %g", i+1, got, want)
				}
			}
		})
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		count, steps int
		want         []int
	}{
		{0, 5, nil}, {1, 5, []int{5}}, {2, 5, []int{2, 5}}, {3, 10, []int{3, 6, 10}}, {5, 5, []int{1, 2, 3, 4, 5}}, {10, 3, []int{1, 2, 3}},
	} {
		if got := slices.Sorted(maps.Keys(spread(c.count, c.steps))); !slices.Equal(got, c.want) {
			t.Errorf("spread(%d, %d) = %v, want %v", c.count, c.steps, got, c.want)
		}
	}
}

func TestStopping(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		name     string
		rule     engine.EarlyStopping
		losses   []float64
		stopAt   int // evaluation from 1, 0 = never
		bestEval int // 0 = none
	}{
		{"improves for ever", engine.EarlyStopping{Patience: 1}, []float64{5, 4, 3, 2}, 0, 4},
		{"patience of one", engine.EarlyStopping{Patience: 1}, []float64{5, 4, 4.5, 3}, 3, 2},
		{"patience of two in a row", engine.EarlyStopping{Patience: 2}, []float64{5, 6, 4, 6, 5, 3}, 5, 3},
		{"an equal loss is no improvement", engine.EarlyStopping{Patience: 2}, []float64{5, 5, 5}, 3, 1},
		{"warm-up sets the best and does not stop", engine.EarlyStopping{Patience: 1, WarmupEvals: 3}, []float64{1, 2, 3, 4}, 4, 1},
		{"warm-up does not count", engine.EarlyStopping{Patience: 2, WarmupEvals: 2}, []float64{1, 2, 3, 4}, 4, 1},
		{"the default warm-up of one", engine.EarlyStopping{Patience: 2, WarmupEvals: 1}, []float64{1, 2, 3, 4}, 3, 1},
		{"a small step is no improvement", engine.EarlyStopping{Patience: 2, MinDelta: 0.5}, []float64{5, 4.75, 4.625}, 3, 1},
		{"small steps add up", engine.EarlyStopping{Patience: 2, MinDelta: 0.5}, []float64{5, 4.75, 4.5, 4.25, 4.125}, 5, 3},
		{"exactly the delta counts", engine.EarlyStopping{Patience: 1, MinDelta: 0.5}, []float64{5, 4.5, 4}, 0, 3},
		{"no number is no improvement", engine.EarlyStopping{Patience: 2}, []float64{5, nan, inf}, 3, 1},
		{"never a number", engine.EarlyStopping{Patience: 2, WarmupEvals: 1}, []float64{nan, nan, inf}, 3, 0},
		{"a number after none", engine.EarlyStopping{Patience: 3}, []float64{nan, inf, 7}, 0, 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s stopping
			stopped, best := 0, 0
			for i, loss := range c.losses {
				improved, stop := s.observe(c.rule, 10*(i+1), loss)
				if improved {
					best = i + 1
				}
				if stop {
					stopped = i + 1
					break
				}
			}
			if stopped != c.stopAt || best != c.bestEval || s.BestStep != 10*best {
				t.Errorf("stopped at %d with the best %d (step %d), want %d and %d", stopped, best, s.BestStep, c.stopAt, c.bestEval)
			}
			if (s.Best == nil) != (best == 0) || best != 0 && *s.Best != c.losses[best-1] {
				t.Errorf("best loss %v", s.Best)
			}
		})
	}
}
