package train

import (
	"math"

	"athanor/engine"
)

// rateAt is the learning rate of a step, from 1, as a share of the peak.
//
// It rises in equal parts over the first ceil(warmup*steps) steps and reaches
// the peak with the last of them. Over the steps that follow, of which the
// first has the peak too, it falls to MinLRRatio, which the step after the
// last one would have: no step is made with a rate of 0. The fall is a straight
// line, or NumCycles periods of a cosine.
func rateAt(s engine.Schedule, warmup float64, steps, step int) float64 {
	rising := warmupSteps(warmup, steps)
	if step <= rising {
		return float64(step) / float64(rising)
	}
	done := float64(step-1-rising) / float64(steps-rising)
	level := 1 - done
	if s.Type == scheduleCosine {
		level = (1 + math.Cos(2*math.Pi*s.NumCycles*done)) / 2
	}
	return s.MinLRRatio + (1-s.MinLRRatio)*level
}

func warmupSteps(ratio float64, steps int) int {
	return min(steps, int(math.Ceil(ratio*float64(steps))))
}

// Types of engine.Schedule.
const (
	scheduleLinear = "linear"
	scheduleCosine = "cosine"
)

// spread gives count steps at equal distances, the last of them at the end:
// fewer where there are fewer steps.
func spread(count, steps int) map[int]bool {
	at := map[int]bool{}
	count = min(count, steps)
	for i := 1; i <= count; i++ {
		at[i*steps/count] = true
	}
	return at
}
