package finetunes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/store"
	"athanor/store/resource"
)

// The kinds of jobs.
const (
	kindAdmit  = "finetune-admit"  // subject: a job that was created
	kindTrain  = "finetune-train"  // subject: a job that waits for the machine
	kindClean  = "finetune-clean"  // subject: a job that is final
	kindDelete = "finetune-delete" // subject: a job that was deleted
)

// Bounds of tries.
const (
	maxTries   = 5                // of a job whose worker goes away without a step more
	maxBackoff = time.Minute      // between them
	maxFails   = 10               // for reasons of the server's own, such as a store that is away
	maxCrashes = 1000             // of the whole server, which are rarely the job's fault
	busyWait   = 10 * time.Second // until a busy machine is asked again
)

// Kinds are the jobs of this slice, for the runner.
func (s *Service) Kinds() []jobs.Kind {
	patient := jobs.Policy{Failures: 1000, Crashes: maxCrashes, MaxBackoff: time.Hour}
	return []jobs.Kind{
		{Name: kindAdmit, Run: s.admit, Policy: patient},
		{Name: kindTrain, Workers: max(1, s.Workers), Run: s.train, GiveUp: s.giveUp, Policy: jobs.Policy{Failures: maxFails, Crashes: maxCrashes}},
		{Name: kindClean, Run: func(_ context.Context, job resource.Job) error { return s.cleanUp(resource.FineTuneID(job.Subject)) }, Policy: patient},
		{Name: kindDelete, Run: s.remove, Policy: patient},
	}
}

// admit puts a job that was created into the line of those that wait.
func (s *Service) admit(ctx context.Context, job resource.Job) error {
	now, id := s.Kit.Now(), s.newJob()
	err := s.DB.Update(ctx, func(tx *store.Tx) error {
		f, err := store.FineTunes.Get(tx, job.Subject)
		if err != nil || f.Status != resource.FineTunePending {
			return notFound(err)
		}
		_, err = store.FineTunes.Update(tx, job.Subject, func(f *resource.FineTune) error { return f.To(resource.FineTuneQueued, now) })
		if err != nil {
			return err
		}
		return jobs.Add(tx, id, kindTrain, job.Subject, now, now)
	})
	s.queue.Wake()
	return err
}

// train does a job. It returns an error only for what another try may mend.
func (s *Service) train(ctx context.Context, job resource.Job) error {
	id := resource.FineTuneID(job.Subject)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Before the record is read, so that a cancellation is either seen there or here.
	s.mu.Lock()
	s.running[id] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, id)
		s.mu.Unlock()
	}()
	f, err := s.takeUp(ctx, id)
	if f == nil || err != nil {
		return err
	}
	r, err := s.newRun(ctx, f)
	if err != nil {
		return err
	}
	err = r.untilDone(ctx)
	return r.end(ctx, err)
}

// takeUp reads a job that is to be done, and says so when an earlier run of it did
// not end. It returns nil for one that has nothing left to do.
func (s *Service) takeUp(ctx context.Context, id resource.FineTuneID) (f *resource.FineTune, err error) {
	now := s.Kit.Now()
	err = s.DB.Update(ctx, func(tx *store.Tx) (err error) {
		if f, err = store.FineTunes.Get(tx, string(id)); err != nil {
			return notFound(err)
		}
		switch f.Status {
		case resource.FineTuneQueued:
			return nil
		case resource.FineTuneCancelRequested:
			_, err = s.finish(tx, id, resource.FineTuneCancelled, "", nil)
			f = nil
			return err
		case resource.FineTuneRunning, resource.FineTuneCompressing, resource.FineTuneUploading:
			if f.Progress.QueuedBecause != "" {
				return nil // it was put back, and did not die
			}
			f, err = s.restarted(tx, f, now)
			return err
		}
		f = nil
		return nil
	})
	return f, err
}

// restarted notes that a job goes on from its last saved state. One that trained
// waits again; what comes after the training is done again in its own state.
func (s *Service) restarted(tx *store.Tx, f *resource.FineTune, now time.Time) (*resource.FineTune, error) {
	f, err := store.FineTunes.Update(tx, string(f.ID), func(f *resource.FineTune) error {
		if f.Status != resource.FineTuneRunning {
			return nil
		}
		return f.To(resource.FineTuneQueued, now)
	})
	if err != nil {
		return nil, err
	}
	return f, appendEvent(tx, f.ID, &resource.FineTuneEvent{
		Type: eventRestarted, Level: levelWarning, Message: "The job was interrupted; it goes on from its last saved state", At: now,
	})
}

// untilDone tries until the job is done, or another try would not help.
func (r *run) untilDone(ctx context.Context) error {
	backoff := r.s.Backoff
	for {
		err := r.attempt(ctx)
		var busy *engine.BusyError
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.As(err, &busy):
			if err := r.wait(ctx, busy.Reason); err != nil {
				return err
			}
			return jobs.Later(busyWait, err)
		case errors.Is(err, engine.ErrUnavailable):
			again, failed := r.retry(ctx, err)
			if failed != nil || !again {
				return errors.Join(failed, err)
			}
			if err := pause(ctx, backoff); err != nil {
				return err
			}
			backoff = min(2*backoff, maxBackoff)
		default:
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait notes that the machine has no room for the job now, with one event for all
// its tries until there is room.
func (r *run) wait(ctx context.Context, reason string) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if f.Status == resource.FineTuneRunning {
			if err := f.To(resource.FineTuneQueued, now); err != nil {
				return err
			}
		}
		first := f.Progress.QueuedBecause == ""
		if f.Progress.QueuedBecause = reason; !first {
			return nil // reasons have figures in them that are new each time
		}
		return appendEvent(tx, f.ID, &resource.FineTuneEvent{Type: eventPending, Level: levelInfo, Message: "Waiting for the machine: " + reason, At: now})
	})
}

// retry notes that the worker went away and says whether to try again.
func (r *run) retry(ctx context.Context, cause error) (again bool, err error) {
	err = r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if f.Progress.Step > f.TriedStep {
			f.TriedStep, f.Tries = f.Progress.Step, 0
		}
		f.Tries++
		if again = f.Tries < maxTries; !again {
			return nil
		}
		if f.Status == resource.FineTuneRunning {
			if err := f.To(resource.FineTuneQueued, now); err != nil {
				return err
			}
		}
		return appendEvent(tx, f.ID, &resource.FineTuneEvent{
			Type: eventRestarted, Level: levelWarning, Message: "The process that trained went away; the job goes on from its last saved state", At: now,
		})
	})
	r.s.Kit.Log.Warn("the worker of a training job went away", "job", r.id, "error", cause)
	return again, err
}

// end brings a job to its final state after the last try, unless the server stops.
func (r *run) end(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	r.recorder.close()
	status, problem := resource.FineTuneError, ""
	switch {
	case err == nil:
		r.session(0)
		return nil
	case errors.Is(cause, jobs.ErrStopping):
		return err
	case cause != nil, errors.Is(err, jobs.ErrCancelled), errors.Is(err, errGone):
		status = resource.FineTuneCancelled
	default:
		var fatal bool
		if problem, fatal = explain(err); !fatal {
			return err // tried again by the queue, and given up there
		}
	}
	// The job's own context may be over; its end has to be written nevertheless.
	failed := r.s.DB.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		f, err := store.FineTunes.Get(tx, string(r.id))
		if err != nil || f.Status.Final() {
			return notFound(err)
		}
		if f.Status == resource.FineTuneCancelRequested { // whatever went wrong meanwhile
			status, problem = resource.FineTuneCancelled, ""
		}
		_, err = r.s.finish(tx, r.id, status, problem, nil)
		return err
	})
	if failed != nil {
		return failed
	}
	r.session(1)
	return nil
}

// explain puts the end of a job into words for its owner. It reports false for an
// error of the server's own, whose text is not for others.
func explain(err error) (problem string, fatal bool) {
	var data *engine.DataError
	var refused *engine.RequestError
	var known *api.Error
	var own *problemError
	switch {
	case errors.As(err, &data):
		return fmt.Sprintf("The %s file cannot be trained on: %s", data.File, data.Message), true
	case errors.As(err, &refused):
		return fmt.Sprintf("%s: %s", refused.Param, refused.Message), true
	case errors.Is(err, engine.ErrNoMemory):
		return "The job does not fit into the memory of this machine, not even in its smallest form; try a smaller max_seq_length, batch_size or lora_r", true
	case errors.Is(err, engine.ErrUnavailable):
		return fmt.Sprintf("The process that trained went away %d times without a step forward", maxTries), true
	case errors.As(err, &own):
		return own.message, true
	case errors.As(err, &known):
		return known.Message, true
	}
	return "", false
}

// problemError is why a job cannot be done, in words for its owner.
type problemError struct {
	message string
	cause   error
}

func (e *problemError) Error() string {
	if e.cause != nil {
		return e.message + ": " + e.cause.Error()
	}
	return e.message
}

func (e *problemError) Unwrap() error { return e.cause }

// dataProblem turns the engine's words about a dataset into those of a request.
func dataProblem(err error, param string) error {
	var data *engine.DataError
	if errors.As(err, &data) {
		return api.Invalid(param, "%s: %s", param, data.Message)
	}
	return err
}

// giveUp is the end of a job that failed for reasons of the server's own.
func (s *Service) giveUp(tx *store.Tx, job resource.Job, reason error, _ time.Time) error {
	s.Kit.Log.Error("a fine-tuning job is given up", "job", job.Subject, "error", reason)
	f, err := store.FineTunes.Get(tx, job.Subject)
	if err != nil || f.Status.Final() {
		return notFound(err)
	}
	_, err = s.finish(tx, f.ID, resource.FineTuneError, "The server failed to do the job; its log says why", nil)
	return err
}

// finish brings a job to a final state with its event, deletes its secrets, and has
// its directory removed. more changes the record beside that; nil is fine.
func (s *Service) finish(tx *store.Tx, id resource.FineTuneID, status resource.FineTuneStatus, problem string, more func(*resource.FineTune)) (*resource.FineTune, error) {
	now := s.Kit.Now()
	f, err := store.FineTunes.Update(tx, string(id), func(f *resource.FineTune) error {
		f.Problem = problem
		f.Progress.ExpectedAt, f.Progress.QueuedBecause = time.Time{}, ""
		if more != nil {
			more(f)
		}
		return f.To(status, now)
	})
	if err != nil {
		return nil, err
	}
	e := &resource.FineTuneEvent{At: now, Level: levelInfo}
	switch status {
	case resource.FineTuneCompleted:
		e.Type, e.Message, e.Model = eventComplete, "Job completed: the model is "+f.OutputName, modelPath(f.Result.Revision)
	case resource.FineTuneCancelled:
		e.Type, e.Message = eventStopped, "Job stopped because it was cancelled"
	default:
		e.Type, e.Level, e.Message = eventError, levelError, problem
	}
	if err := appendEvent(tx, id, e); err != nil {
		return nil, err
	}
	if err := notFound(store.FineTuneSecrets.Delete(tx, string(id))); err != nil {
		return nil, err
	}
	if err := jobs.Add(tx, s.newJob(), kindClean, string(id), now, now); err != nil {
		return nil, err
	}
	s.Kit.Log.Info("fine-tuning job ended", "job", id, "status", status)
	if f.DeleteWhenFinal {
		return f, s.scheduleDeletion(tx, id)
	}
	return f, nil
}

// dir is the directory of a job.
func (s *Service) dir(id resource.FineTuneID) string { return filepath.Join(s.Dir, string(id)) }

// cleanUp removes the directory of a job that is final.
func (s *Service) cleanUp(id resource.FineTuneID) error {
	if err := os.RemoveAll(s.dir(id)); err != nil {
		return fmt.Errorf("remove the directory of job %s: %w", id, err)
	}
	return nil
}

// Sweep is for the start of the process: it removes the directories of jobs that
// are final or gone, whose process died before it could.
func (s *Service) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		var needed bool
		err := s.DB.View(func(tx *store.Tx) error {
			f, err := store.FineTunes.Get(tx, e.Name())
			needed = err == nil && !f.Status.Final()
			return notFound(err)
		})
		if err == nil && !needed {
			err = os.RemoveAll(filepath.Join(s.Dir, e.Name()))
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}
