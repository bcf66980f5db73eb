package train

import (
	"math"

	"athanor/engine"
)

// stopping decides after each evaluation whether the job goes on. It is part of
// the state.
//
// An evaluation is an improvement when its loss is finite and either the first
// such one or below the best by at least MinDelta. Evaluations are counted from
// 1. Those up to WarmupEvals set the best and are otherwise passed over; of
// those after them, Patience in a row without an improvement end the job.
type stopping struct {
	Evals    int      `json:"evals"`               // so far
	Waiting  int      `json:"waiting"`             // counted ones without improvement in a row
	Best     *float64 `json:"best,omitempty"`      // loss of the last improvement
	BestStep int      `json:"best_step,omitempty"` // its step
}

// observe takes the loss of an evaluation at a step.
func (s *stopping) observe(rule engine.EarlyStopping, step int, loss float64) (improved, stop bool) {
	s.Evals++
	finite := !math.IsNaN(loss) && !math.IsInf(loss, 0)
	if finite && (s.Best == nil || loss < *s.Best && *s.Best-loss >= rule.MinDelta) {
		s.Best, s.BestStep, s.Waiting = &loss, step, 0
		return true, false
	}
	if s.Evals <= rule.WarmupEvals {
		return false, false
	}
	s.Waiting++
	return false, s.Waiting >= rule.Patience
}
