package finetunes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Ops are the operations of this slice.
func (s *Service) Ops() []rest.Op {
	const tag = "fine-tuning"
	return append(s.downloadOps(),
		rest.Post("/fine-tunes", tag, rest.ProjectEditor, s.Create),
		rest.Get("/fine-tunes", tag, rest.AnyKey, s.List),
		rest.Post("/fine-tunes/estimate-price", tag, rest.AnyKey, s.EstimatePrice),
		rest.Post("/fine-tunes/preview", tag, rest.AnyKey, s.Preview),
		rest.Get("/fine-tunes/lineage", tag, rest.AnyKey, s.Lineage),
		rest.Get("/fine-tunes/models/limits", tag, rest.AnyKey, s.Limits),
		rest.Get("/fine-tunes/models/supported", tag, rest.AnyKey, s.Supported),
		rest.Get("/fine-tunes/:id", tag, rest.AnyKey, s.Retrieve),
		rest.Delete("/fine-tunes/:id", tag, rest.ProjectEditor, s.Delete),
		rest.Post("/fine-tunes/:id/cancel", tag, rest.ProjectEditor, s.Cancel, rest.OptionalBody()),
		rest.Get("/fine-tunes/:id/events", tag, rest.AnyKey, s.Events),
		rest.Get("/fine-tunes/:id/checkpoints", tag, rest.AnyKey, s.Checkpoints),
		rest.Get("/fine-tunes/:id/metrics", tag, rest.AnyKey, s.Metrics),
	)
}

// maxList bounds the jobs that GET /fine-tunes lists, which has no pages.
const maxList = 10000

// List answers GET /fine-tunes, the newest job first and all without their events.
func (s *Service) List(ctx context.Context, _ *rest.None) (*api.FineTuneList, error) {
	out := &api.FineTuneList{Data: []api.FineTune{}}
	err := s.DB.View(func(tx *store.Tx) error {
		page := store.Page{Prefix: store.Key(rest.Caller(ctx).ProjectID, ""), Limit: 1000, Reverse: true}
		for len(out.Data) < maxList {
			list, next, err := store.FineTunes.List(tx, store.ByProject, page)
			if err != nil {
				return fmt.Errorf("list fine-tuning jobs: %w", err)
			}
			for _, f := range list {
				out.Data = append(out.Data, *s.wire(f))
			}
			if page.After = next; next == "" {
				return nil
			}
		}
		return nil
	})
	return out, err
}

// Retrieve answers GET /fine-tunes/{id}.
func (s *Service) Retrieve(ctx context.Context, r *api.FineTuneIDRequest) (out *api.FineTune, err error) {
	err = s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.ID, rest.Caller(ctx).ProjectID)
		if err != nil {
			return err
		}
		out = s.wire(f)
		err = s.details(tx, f, out)
		spell(ctx, out.Events)
		return err
	})
	return out, err
}

// Events answers GET /fine-tunes/{id}/events.
func (s *Service) Events(ctx context.Context, r *api.FineTuneIDRequest) (*api.FineTuneEventList, error) {
	out := &api.FineTuneEventList{}
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.ID, rest.Caller(ctx).ProjectID)
		if err != nil {
			return err
		}
		out.Data, err = wireEvents(tx, f.ID)
		spell(ctx, out.Data)
		return err
	})
	return out, err
}

// Checkpoints answers GET /fine-tunes/{id}/checkpoints.
func (s *Service) Checkpoints(ctx context.Context, r *api.FineTuneIDRequest) (*api.FineTuneCheckpointList, error) {
	out := &api.FineTuneCheckpointList{}
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.ID, rest.Caller(ctx).ProjectID)
		if err == nil {
			out.Data, err = wireCheckpoints(tx, f)
		}
		return err
	})
	return out, err
}

// Cancel answers POST /fine-tunes/{id}/cancel. A job that runs stops soon after.
func (s *Service) Cancel(ctx context.Context, r *api.FineTuneIDRequest) (*api.FineTune, error) {
	caller := rest.Caller(ctx)
	var f *resource.FineTune
	var removed []resource.JobID
	err := s.DB.Update(ctx, func(tx *store.Tx) (err error) {
		if f, err = find(tx, r.ID, caller.ProjectID); err != nil {
			return err
		}
		if f.Status.Final() {
			return api.Invalid("id", "job %s is %s already and cannot be cancelled", f.ID, f.Status)
		}
		f, removed, err = s.requestCancel(tx, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.interrupt(f.ID, removed)
	return s.answer(ctx, f)
}

// answer renders the truncated form of one job, with its events.
func (s *Service) answer(ctx context.Context, f *resource.FineTune) (*api.FineTune, error) {
	out := s.wire(f)
	err := s.DB.View(func(tx *store.Tx) (err error) {
		out.Events, err = wireEvents(tx, f.ID)
		return err
	})
	spell(ctx, out.Events)
	return out, err
}

// requestCancel notes that a job that is not final shall end. One that nobody works
// on now, whatever its state, ends in the same transaction; its entries of the queue
// are returned.
func (s *Service) requestCancel(tx *store.Tx, f *resource.FineTune) (*resource.FineTune, []resource.JobID, error) {
	if f.Status == resource.FineTuneCancelRequested {
		return f, nil, nil
	}
	runs, err := running(tx, f.ID)
	if err != nil {
		return nil, nil, err
	}
	now := s.Kit.Now()
	f, err = store.FineTunes.Update(tx, string(f.ID), func(f *resource.FineTune) error {
		return f.To(resource.FineTuneCancelRequested, now)
	})
	if err == nil {
		err = appendEvent(tx, f.ID, &resource.FineTuneEvent{Type: eventCancel, Level: levelInfo, Message: "Cancellation requested", At: now})
	}
	if err != nil || runs {
		return f, nil, err
	}
	removed, err := jobs.Remove(tx, string(f.ID))
	if err != nil {
		return nil, nil, err
	}
	f, err = s.finish(tx, f.ID, resource.FineTuneCancelled, "", nil)
	return f, removed, err
}

// running reports whether somebody works on a job. One that has to wait for a busy
// machine, or for its next try, keeps its state meanwhile.
func running(tx *store.Tx, id resource.FineTuneID) (bool, error) {
	list, _, err := store.Jobs.List(tx, store.BySubject, store.Page{Prefix: store.Key(string(id), kindTrain), Limit: 10})
	return slices.ContainsFunc(list, func(j *resource.Job) bool { return j.Status == resource.JobRunning }), err
}

// interrupt ends the run of a job whose record says that it shall end.
func (s *Service) interrupt(id resource.FineTuneID, removed []resource.JobID) {
	s.mu.Lock()
	cancel := s.running[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(jobs.ErrCancelled)
	}
	s.queue.Interrupt(removed...)
	s.queue.Wake()
}

// Delete answers DELETE /fine-tunes/{id}. The model that came of the job stays; its
// checkpoints, merged weights, events and metrics go.
func (s *Service) Delete(ctx context.Context, r *api.DeleteFineTuneRequest) (*api.FineTuneDeleted, error) {
	caller := rest.Caller(ctx)
	var f *resource.FineTune
	var removed []resource.JobID
	message := ""
	err := s.DB.Update(ctx, func(tx *store.Tx) (err error) {
		if f, err = find(tx, r.ID, caller.ProjectID); err != nil {
			return err
		}
		if !f.Status.Final() && !r.Force {
			return api.Invalid("id", "job %s is %s: cancel it first, or delete it with force=true", f.ID, f.Status)
		}
		if !f.Status.Final() {
			if f, removed, err = s.requestCancel(tx, f); err != nil {
				return err
			}
		}
		if f.Status.Final() {
			message = fmt.Sprintf("Fine-tuning job %s deleted", f.ID)
			return s.scheduleDeletion(tx, f.ID)
		}
		message = fmt.Sprintf("Fine-tuning job %s is being cancelled and will be deleted", f.ID)
		_, err = store.FineTunes.Update(tx, string(f.ID), func(f *resource.FineTune) error { f.DeleteWhenFinal = true; return nil })
		return err
	})
	if err != nil {
		return nil, err
	}
	s.interrupt(f.ID, removed)
	return &api.FineTuneDeleted{Message: message}, nil
}

// ahead counts the jobs that will be done before the one of this id, or before a
// new one when it is "" or not in the queue.
func ahead(tx *store.Tx, id resource.FineTuneID) (int, error) {
	running, _, err := store.Jobs.List(tx, store.ByRunning, store.Page{Prefix: store.Key(kindTrain, ""), Limit: 1000})
	if err != nil {
		return 0, err
	}
	for _, j := range running {
		if j.Subject == string(id) {
			return 0, nil
		}
	}
	waiting, _, err := store.Jobs.List(tx, store.ByDue, store.Page{Prefix: store.Key(kindTrain, ""), Limit: 1000})
	for i, j := range waiting {
		if j.Subject == string(id) {
			return len(running) + i, err
		}
	}
	return len(running) + len(waiting), err
}

// notFound is nil for a record that is gone, which is fine where it was deleted.
func notFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
