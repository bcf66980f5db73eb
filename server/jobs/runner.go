package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"athanor/server/kit"
	"athanor/store"
	"athanor/store/resource"
)

// Why the context of a job ends.
var (
	// ErrCancelled is the cause when the job was removed from the queue.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrStopping is the cause when the process shuts down; the job will run again.
	ErrStopping = errors.New("the server is shutting down")
)

// Kind is a sort of job.
type Kind struct {
	Name    string
	Workers int // jobs of this kind at once, default 1
	Policy  Policy
	// Run does the job. It is called by a goroutine of its own and must return
	// soon after ctx ends. It may have been run before, up to any of its steps.
	Run func(ctx context.Context, job resource.Job) error
	// GiveUp tells the subject that the job will not be tried again, in the
	// transaction that removes it. It may be nil.
	GiveUp func(tx *store.Tx, job resource.Job, reason error, now time.Time) error
}

// Runner runs the jobs of its kinds. Its methods may be called by any goroutine.
type Runner struct {
	kit   kit.Kit
	db    *store.DB
	kinds map[string]*Kind
	order []string
	wake  chan struct{} // one slot

	mu      sync.Mutex // guards what follows
	started bool
	stop    context.CancelCauseFunc
	running map[resource.JobID]context.CancelCauseFunc
	busy    map[string]int // jobs by kind
	work    sync.WaitGroup // the loop and the running jobs
}

// New makes a Runner that does nothing before Start. Kinds are fixed.
func New(k kit.Kit, db *store.DB, kinds ...Kind) (*Runner, error) {
	r := &Runner{
		kit: k, db: db, kinds: map[string]*Kind{}, wake: make(chan struct{}, 1),
		running: map[resource.JobID]context.CancelCauseFunc{}, busy: map[string]int{},
	}
	for _, kind := range kinds {
		if kind.Name == "" || kind.Run == nil || r.kinds[kind.Name] != nil {
			return nil, fmt.Errorf("jobs: kind %q is named twice, not named, or does nothing", kind.Name)
		}
		kind.Workers = max(1, kind.Workers)
		r.kinds[kind.Name] = &kind
		r.order = append(r.order, kind.Name)
	}
	return r, nil
}

// Start puts back into the queue what the last process left running, and begins
// to work. ctx bounds only the former.
func (r *Runner) Start(ctx context.Context) error {
	if err := r.sweep(ctx); err != nil {
		return fmt.Errorf("take up the jobs of the last process: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return errors.New("jobs: the runner was started before")
	}
	base, stop := context.WithCancelCause(context.Background())
	r.started, r.stop = true, stop
	r.work.Go(func() { r.loop(base) })
	return nil
}

// Stop ends the running jobs' contexts, waits for them and puts them back into
// the queue. Without Start, and again, it does nothing.
func (r *Runner) Stop() {
	r.mu.Lock()
	stop := r.stop
	r.mu.Unlock()
	if stop != nil {
		stop(ErrStopping)
		r.work.Wait()
	}
}

// Wake makes the runner look at the queue now.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Interrupt ends the runs of jobs that Remove took out of the queue.
func (r *Runner) Interrupt(ids ...resource.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if cancel := r.running[id]; cancel != nil {
			cancel(ErrCancelled)
		}
	}
}

// sweep counts a crash for each job that is marked as running.
func (r *Runner) sweep(ctx context.Context) error {
	for _, name := range r.order {
		for {
			var left int
			err := r.db.Update(ctx, func(tx *store.Tx) error {
				list, _, err := store.Jobs.List(tx, store.ByRunning, store.Page{Prefix: store.Key(name)})
				left = len(list)
				for _, j := range list {
					if err == nil && j.Kind == name {
						err = r.settle(tx, j.ID, nil, true)
					}
				}
				return err
			})
			if err != nil {
				return err
			}
			if left == 0 {
				break
			}
		}
	}
	return nil
}

// settle ends a run that did not succeed: with err, or by a crash.
func (r *Runner) settle(tx *store.Tx, id resource.JobID, err error, crashed bool) error {
	now := r.kit.Now()
	var decision Decision
	job, failed := store.Jobs.Update(tx, string(id), func(j *resource.Job) error {
		if crashed {
			j.Crashes++
		} else {
			j.Failures++
			j.LastError = clip(err.Error())
		}
		decision = r.kinds[j.Kind].Policy.Decide(j, err, now)
		j.DueAt = decision.At
		return j.To(resource.JobQueued, now)
	})
	if errors.Is(failed, store.ErrNotFound) { // cancelled meanwhile
		return nil
	}
	if failed != nil || decision.Retry {
		return failed
	}
	if giveUp := r.kinds[job.Kind].GiveUp; giveUp != nil {
		if err := giveUp(tx, *job, decision.Reason, now); err != nil {
			return err
		}
	}
	return store.Jobs.Delete(tx, string(id))
}

// clip bounds an error that is stored.
func clip(s string) string {
	const most = 4000
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// The loop looks at the queue when it is woken, when the next job is due, and
// every so often, should the clock have been changed.
const lookAgain = time.Minute

func (r *Runner) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, err := r.claim(ctx)
		if err != nil && ctx.Err() == nil {
			r.kit.Log.Error("the queue cannot be read, trying again", "error", err)
			wait = time.Second
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// claim starts every job that is due and has a free worker, and returns how long
// nothing will be due.
func (r *Runner) claim(ctx context.Context) (time.Duration, error) {
	wait := lookAgain
	for _, name := range r.order {
		r.mu.Lock()
		free := r.kinds[name].Workers - r.busy[name]
		r.mu.Unlock()
		if free <= 0 {
			continue // the end of a job wakes the loop
		}
		claimed, next, err := r.take(ctx, name, free)
		if err != nil {
			return 0, fmt.Errorf("claim jobs of %s: %w", name, err)
		}
		for _, j := range claimed {
			r.launch(ctx, *j)
		}
		wait = min(wait, next)
	}
	return wait, nil
}

// take marks up to free jobs that are due as running. next is how long nothing
// more will be due; only when nothing was due does it matter.
func (r *Runner) take(ctx context.Context, kind string, free int) (claimed []*resource.Job, next time.Duration, err error) {
	now := r.kit.Now()
	next = lookAgain
	due := 0
	page := store.Page{Prefix: store.Key(kind, ""), Limit: free}
	look := func(tx *store.Tx) ([]*resource.Job, error) {
		list, _, err := store.Jobs.List(tx, store.ByDue, page)
		for i, j := range list {
			if j.DueAt.After(now) {
				next = min(next, max(j.DueAt.Sub(now), time.Millisecond))
				return list[:i], err
			}
		}
		return list, err
	}
	err = r.db.View(func(tx *store.Tx) error { // without a commit when there is nothing to do
		list, err := look(tx)
		due = len(list)
		return err
	})
	if err != nil || due == 0 {
		return nil, next, err
	}
	err = r.db.Update(ctx, func(tx *store.Tx) error {
		claimed = nil
		list, err := look(tx)
		for _, j := range list {
			if err != nil {
				return err
			}
			j, err = store.Jobs.Update(tx, string(j.ID), func(j *resource.Job) error { return j.To(resource.JobRunning, now) })
			claimed = append(claimed, j)
		}
		return err
	})
	return claimed, next, err
}

// launch runs a claimed job on a goroutine of its own.
func (r *Runner) launch(base context.Context, job resource.Job) {
	ctx, cancel := context.WithCancelCause(base)
	r.mu.Lock()
	r.running[job.ID] = cancel
	r.busy[job.Kind]++
	r.mu.Unlock()
	r.work.Go(func() {
		err := r.run(ctx, job)
		r.end(ctx, job, err)
		cancel(nil)
		r.mu.Lock()
		delete(r.running, job.ID)
		r.busy[job.Kind]--
		r.mu.Unlock()
		r.Wake()
	})
}

// putBack returns a job to the queue without counting the run: at its old place,
// or for later.
func (r *Runner) putBack(tx *store.Tx, id resource.JobID, wait *later) error {
	now := r.kit.Now()
	_, err := store.Jobs.Update(tx, string(id), func(j *resource.Job) error {
		if wait != nil {
			j.DueAt = now.Add(wait.wait)
		}
		return j.To(resource.JobQueued, now)
	})
	if errors.Is(err, store.ErrNotFound) { // cancelled meanwhile
		return nil
	}
	return err
}

// run calls the kind's function; a panic is a failure like others.
func (r *Runner) run(ctx context.Context, job resource.Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.kit.Log.Error("panic in a job", "job", job.ID, "kind", job.Kind, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.kinds[job.Kind].Run(ctx, job)
}

// end writes down how a run ended. The process may be shutting down, so the write
// has no context to end it.
func (r *Runner) end(ctx context.Context, job resource.Job, err error) {
	cause := context.Cause(ctx)
	wait := new(later)
	if errors.As(err, &wait) && cause == nil {
		r.kit.Log.Info("a job has to wait", "job", job.ID, "kind", job.Kind, "subject", job.Subject, "reason", err)
	} else if err != nil && cause == nil {
		r.kit.Log.Warn("a job failed", "job", job.ID, "kind", job.Kind, "subject", job.Subject, "error", err)
	}
	failed := r.db.Update(context.Background(), func(tx *store.Tx) error {
		switch {
		case err == nil, errors.Is(cause, ErrCancelled):
			err := store.Jobs.Delete(tx, string(job.ID))
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			return err
		case errors.Is(cause, ErrStopping):
			return r.putBack(tx, job.ID, nil)
		case errors.As(err, &wait):
			return r.putBack(tx, job.ID, wait)
		}
		return r.settle(tx, job.ID, err, false)
	})
	if failed != nil { // it stays marked as running: the next start takes it up
		r.kit.Log.Error("the end of a job cannot be written", "job", job.ID, "kind", job.Kind, "error", failed)
	}
}
