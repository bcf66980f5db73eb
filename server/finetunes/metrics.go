package finetunes

import (
	"context"
	"fmt"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Names of the steps in rows of metrics.
const (
	trainStep = "train/global_step"
	evalStep  = "eval/global_step"
)

// maxTrainRows bounds the rows of training in one answer, also when the client names
// no resolution, or a higher one. A client that wants more of them asks in parts, by
// global_step_from and global_step_to. There are at most api.MaxEvals of evaluations.
const maxTrainRows = 10000

// Metrics answers GET /fine-tunes/{id}/metrics in the order of steps.
func (s *Service) Metrics(ctx context.Context, r *api.FineTuneMetricsRequest) (*api.FineTuneMetrics, error) {
	most := maxTrainRows
	if r.Resolution != nil {
		most = min(most, *r.Resolution)
	}
	out := &api.FineTuneMetrics{Metrics: []map[string]float64{}}
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.ID, rest.Caller(ctx).ProjectID)
		if err != nil {
			return err
		}
		// Counted first: a job may have more rows than shall be in memory at once.
		total := 0
		err = eachMetrics(ctx, tx, f.ID, func(m *resource.FineTuneMetrics) {
			if !m.Eval && wanted(r, m) {
				total++
			}
		})
		if err != nil {
			return err
		}
		pick := thinned(total, most)
		return eachMetrics(ctx, tx, f.ID, func(m *resource.FineTuneMetrics) {
			if wanted(r, m) && (m.Eval || pick()) {
				out.Metrics = append(out.Metrics, wireMetrics(m))
			}
		})
	})
	return out, err
}

// eachMetrics gives the rows of a job to do, in the order of steps.
func eachMetrics(ctx context.Context, tx *store.Tx, id resource.FineTuneID, do func(*resource.FineTuneMetrics)) error {
	for page := (store.Page{Prefix: []byte(string(id) + " "), Limit: 1000}); ; {
		list, next, err := store.FineTuneMetrics.List(tx, "", page)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read metrics of %s: %w", id, err)
		}
		for _, m := range list {
			do(m)
		}
		if page.After = next; next == "" {
			return nil
		}
	}
}

// thinned says of each of total rows, in their order, whether it is one of at most n
// that are evenly spread, with the first and the last among them.
func thinned(total, n int) (pick func() bool) {
	seen, taken := 0, 0
	return func() bool {
		// The k-th of n samples is the row at k*(total-1)/(n-1); of one, the last.
		next := total - 1
		switch {
		case total <= n:
			next = seen
		case n > 1:
			next = taken * (total - 1) / (n - 1)
		}
		picked := seen == next
		if seen++; picked {
			taken++
		}
		return picked
	}
}

func wanted(r *api.FineTuneMetricsRequest, m *resource.FineTuneMetrics) bool {
	return !(r.StepFrom != nil && m.Step < *r.StepFrom || r.StepTo != nil && m.Step > *r.StepTo ||
		r.LoggedFrom != nil && m.At.Before(*r.LoggedFrom) || r.LoggedTo != nil && m.At.After(*r.LoggedTo))
}

func wireMetrics(m *resource.FineTuneMetrics) map[string]float64 {
	out := make(map[string]float64, len(m.Values)+1)
	for k, v := range m.Values {
		out[k] = v
	}
	step := trainStep
	if m.Eval {
		step = evalStep
	}
	out[step] = float64(m.Step)
	return out
}
