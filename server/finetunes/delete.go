package finetunes

import (
	"context"
	"errors"
	"fmt"

	"athanor/server/jobs"
	"athanor/store"
	"athanor/store/resource"
)

// scheduleDeletion takes a job that is final out of sight; what belongs to it is
// deleted by a job of the queue.
func (s *Service) scheduleDeletion(tx *store.Tx, id resource.FineTuneID) error {
	now := s.Kit.Now()
	_, err := store.FineTunes.Update(tx, string(id), func(f *resource.FineTune) error { f.Deleted = true; return nil })
	if err != nil {
		return err
	}
	return jobs.Add(tx, s.newJob(), kindDelete, string(id), now, now)
}

// remove deletes what belongs to a deleted job. Each step may have been done before
// by a process that died; the record goes last.
func (s *Service) remove(ctx context.Context, job resource.Job) error {
	id := resource.FineTuneID(job.Subject)
	var f *resource.FineTune
	err := s.DB.View(func(tx *store.Tx) (err error) {
		f, err = store.FineTunes.Get(tx, string(id))
		return err
	})
	if err != nil {
		return notFound(err)
	}
	if err := s.cleanUp(id); err != nil {
		return err
	}
	// A job that was cancelled, or whose process died, may have stored it unnoted.
	if err := s.Objects.Delete(ctx, archiveKey(id)); err != nil {
		return fmt.Errorf("delete the tokenized dataset of %s: %w", id, err)
	}
	files, err := s.unregister(ctx, f)
	if err != nil {
		return err
	}
	s.Models.Changed()
	if err := s.Weights.Release(ctx, files); err != nil {
		return fmt.Errorf("delete the weights of %s: %w", id, err)
	}
	if err := s.removeMetrics(ctx, id); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *store.Tx) error {
		if err := store.DropEvents(tx, resource.FineTuneLog, string(id)); err != nil {
			return err
		}
		return notFound(store.FineTunes.Delete(tx, string(id)))
	})
}

// unregister deletes the models of the checkpoints, except those that other models
// or jobs build on, and lists the files that nobody may need any more.
func (s *Service) unregister(ctx context.Context, f *resource.FineTune) (files []resource.ModelFile, err error) {
	err = s.DB.Update(ctx, func(tx *store.Tx) error {
		files = nil
		if f.Result != nil {
			files = append(files, f.Result.Merged...)
			files = append(files, f.Result.Adapter...)
		}
		used, err := inUse(tx)
		if err != nil {
			return err
		}
		for _, c := range f.Checkpoints {
			files = append(files, c.Files...)
			if c.ModelID == "" || used[c.ModelID] {
				continue
			}
			m, err := store.Models.Get(tx, string(c.ModelID))
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			files = append(files, m.Files...)
			if err := store.Models.Delete(tx, string(m.ID)); err != nil {
				return err
			}
		}
		// From now on the record names none of them.
		_, err = store.FineTunes.Update(tx, string(f.ID), func(f *resource.FineTune) error {
			f.Leftover, f.Checkpoints, f.Result = append(f.Leftover, files...), nil, nil
			files = f.Leftover
			return nil
		})
		return err
	})
	return files, err
}

// inUse lists the models that others build on.
func inUse(tx *store.Tx) (map[resource.ModelID]bool, error) {
	used := map[resource.ModelID]bool{}
	for page := (store.Page{Limit: 1000}); ; {
		list, next, err := store.Models.List(tx, "", page)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			used[m.BaseID] = true
		}
		if page.After = next; next == "" {
			break
		}
	}
	for page := (store.Page{Limit: 1000}); ; {
		list, next, err := store.FineTunes.List(tx, "", page)
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			if !f.Status.Final() {
				used[f.Base.ModelID], used[f.Base.AdapterID] = true, true
			}
		}
		if page.After = next; next == "" {
			return used, nil
		}
	}
}

// removeMetrics deletes the rows of a job, some at a time.
func (s *Service) removeMetrics(ctx context.Context, id resource.FineTuneID) error {
	for {
		left := 0
		err := s.DB.Update(ctx, func(tx *store.Tx) error {
			list, _, err := store.FineTuneMetrics.List(tx, "", store.Page{Prefix: []byte(string(id) + " "), Limit: 1000})
			left = len(list)
			for _, m := range list {
				if err == nil {
					err = store.FineTuneMetrics.Delete(tx, store.FineTuneMetricsID(m.Job, m.Step, m.Eval))
				}
			}
			return err
		})
		if err != nil || left == 0 {
			return err
		}
	}
}
