package finetunes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"athanor/store"
	"athanor/store/resource"
)

// recorder keeps rows of metrics and progress until it is time to write them: with
// every other change of the job, and at the latest after Flush. Its methods may be
// called by any goroutine.
type recorder struct {
	s  *Service
	id resource.FineTuneID

	mu       sync.Mutex // guards what follows
	rows     []resource.FineTuneMetrics
	progress func(*resource.FineTuneProgress) // nil when nothing is new
	timer    *time.Timer
	closed   bool
	failed   error // of a write in the background

	writing sync.Mutex // one write at a time, so that rows keep their order
}

// maxRows is how many rows are kept at most before they are written.
const maxRows = 500

// add notes a row of metrics with what it says about the progress.
func (r *recorder) add(row resource.FineTuneMetrics, progress func(*resource.FineTuneProgress)) error {
	r.mu.Lock()
	row.Values = maps.Clone(row.Values)
	for name, v := range row.Values { // JSON has no such numbers
		if math.IsNaN(v) || math.IsInf(v, 0) {
			delete(row.Values, name)
		}
	}
	r.rows = append(r.rows, row)
	if progress != nil {
		r.progress = progress // what it sets, the one before set, too
	}
	full := len(r.rows) >= maxRows
	if r.timer == nil && !r.closed {
		r.timer = time.AfterFunc(r.s.Flush, r.flushLater)
	}
	failed := r.failed
	r.mu.Unlock()
	if full && failed == nil {
		failed = r.flush(context.Background())
	}
	return failed
}

func (r *recorder) flushLater() {
	if err := r.flush(context.Background()); err != nil {
		r.mu.Lock()
		r.failed = err
		r.mu.Unlock()
	}
}

// flush writes what waits.
func (r *recorder) flush(ctx context.Context) error {
	return r.write(ctx, func(*store.Tx, *resource.FineTune, time.Time) error { return nil }, false)
}

// write changes the record of the job and writes what waits with it, in one
// transaction. A job that is gone is an errGone.
func (r *recorder) write(ctx context.Context, change func(*store.Tx, *resource.FineTune, time.Time) error, always bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	rows, progress := r.take()
	if len(rows) == 0 && progress == nil && !always {
		return nil
	}
	err := r.s.DB.Update(ctx, func(tx *store.Tx) error {
		now := r.s.Kit.Now()
		_, err := store.FineTunes.Update(tx, string(r.id), func(f *resource.FineTune) error {
			if progress != nil {
				progress(&f.Progress)
			}
			f.UpdatedAt = now
			return change(tx, f, now)
		})
		if err != nil {
			return err
		}
		for i := range rows {
			if err := putMetrics(tx, &rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("fine-tuning job %s: %w", r.id, errGone)
	}
	if err != nil {
		return fmt.Errorf("write the progress of job %s: %w", r.id, err)
	}
	return nil
}

// errGone is returned when a job's record is not there any more.
var errGone = errors.New("the job has been deleted")

func (r *recorder) take() (rows []resource.FineTuneMetrics, progress func(*resource.FineTuneProgress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, progress = r.rows, r.progress
	r.rows, r.progress = nil, nil
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return rows, progress
}

// close writes what waits for the last time; what cannot be written now is lost,
// and reported again if the job goes on.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	if err := r.flush(context.Background()); err != nil {
		r.s.Kit.Log.Warn("the last metrics of a job are not written", "job", r.id, "error", err)
	}
}

// putMetrics writes a row in place of the one of the same step.
func putMetrics(tx *store.Tx, m *resource.FineTuneMetrics) error {
	id := store.FineTuneMetricsID(m.Job, m.Step, m.Eval)
	err := store.FineTuneMetrics.Insert(tx, id, m)
	if errors.Is(err, store.ErrExists) {
		_, err = store.FineTuneMetrics.Update(tx, id, func(old *resource.FineTuneMetrics) error { *old = *m; return nil })
	}
	return err
}
