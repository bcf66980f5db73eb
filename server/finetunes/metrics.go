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

// Metrics answers GET /fine-tunes/{id}/metrics in the order of steps.
func (s *Service) Metrics(ctx context.Context, r *api.FineTuneMetricsRequest) (*api.FineTuneMetrics, error) {
	var rows []*resource.FineTuneMetrics
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.ID, rest.Caller(ctx).ProjectID)
		if err != nil {
			return err
		}
		rows, err = readMetrics(ctx, tx, f.ID, func(m *resource.FineTuneMetrics) bool { return wanted(r, m) })
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.Resolution != nil {
		rows = thin(rows, *r.Resolution)
	}
	out := &api.FineTuneMetrics{Metrics: []map[string]float64{}}
	for _, m := range rows {
		out.Metrics = append(out.Metrics, wireMetrics(m))
	}
	return out, nil
}

// readMetrics lists the rows of a job that keep approves of.
func readMetrics(ctx context.Context, tx *store.Tx, id resource.FineTuneID, keep func(*resource.FineTuneMetrics) bool) ([]*resource.FineTuneMetrics, error) {
	var rows []*resource.FineTuneMetrics
	for page := (store.Page{Prefix: []byte(string(id) + " "), Limit: 1000}); ; {
		list, next, err := store.FineTuneMetrics.List(tx, "", page)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("read metrics of %s: %w", id, err)
		}
		for _, m := range list {
			if keep(m) {
				rows = append(rows, m)
			}
		}
		if page.After = next; next == "" {
			return rows, nil
		}
	}
}

func wanted(r *api.FineTuneMetricsRequest, m *resource.FineTuneMetrics) bool {
	return !(r.StepFrom != nil && m.Step < *r.StepFrom || r.StepTo != nil && m.Step > *r.StepTo ||
		r.LoggedFrom != nil && m.At.Before(*r.LoggedFrom) || r.LoggedTo != nil && m.At.After(*r.LoggedTo))
}

// thin keeps at most n rows of training, evenly spread with the first and the last
// among them, and all rows of evaluations.
func thin(rows []*resource.FineTuneMetrics, n int) []*resource.FineTuneMetrics {
	total := 0
	for _, m := range rows {
		if !m.Eval {
			total++
		}
	}
	if total <= n {
		return rows
	}
	var out []*resource.FineTuneMetrics
	seen, taken := 0, 0
	for _, m := range rows {
		if m.Eval {
			out = append(out, m)
			continue
		}
		// The k-th of n samples is the row at k*(total-1)/(n-1); of one, the last.
		next := total - 1
		if n > 1 {
			next = taken * (total - 1) / (n - 1)
		}
		if seen == next {
			out = append(out, m)
			taken++
		}
		seen++
	}
	return out
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
