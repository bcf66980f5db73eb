package jobs

import (
	"fmt"
	"time"

	"athanor/store"
	"athanor/store/resource"
)

// Add puts a job into the queue as part of the caller's transaction: id is new,
// kind is a registered kind, subject the id of the record it is about; it runs
// from due on. After the commit, call [Runner.Wake].
func Add(tx *store.Tx, id resource.JobID, kind, subject string, now, due time.Time) error {
	return store.Jobs.Insert(tx, string(id), &resource.Job{
		ID: id, Kind: kind, Subject: subject, Status: resource.JobQueued, CreatedAt: now, DueAt: due,
	})
}

// Place is where a job stands.
type Place struct {
	Running bool
	// Before counts the jobs of its kind that run or come first, 0 when it runs.
	Before int
	// Waiting is why it was put back when it last could have begun, "" when its
	// turn has not come.
	Waiting string
}

// PlaceOf finds the job of a kind for a subject, one of them if there are several;
// store.ErrNotFound means that it is done or given up.
func PlaceOf(tx *store.Tx, kind, subject string) (Place, error) {
	list, _, err := store.Jobs.List(tx, store.BySubject, store.Page{Prefix: store.Key(subject, kind), Limit: 1})
	if err != nil {
		return Place{}, err
	}
	if len(list) == 0 || list[0].Subject != subject || list[0].Kind != kind {
		return Place{}, fmt.Errorf("job %s of %s: %w", kind, subject, store.ErrNotFound)
	}
	job := list[0]
	if job.Status == resource.JobRunning {
		return Place{Running: true}, nil
	}
	p := Place{Waiting: job.Waiting}
	if p.Before, err = running(tx, kind); err != nil {
		return Place{}, err
	}
	for page := (store.Page{Prefix: store.Key(kind, ""), Limit: 1000}); ; {
		list, next, err := store.Jobs.List(tx, store.ByDue, page)
		if err != nil {
			return Place{}, err
		}
		for _, j := range list {
			if j.ID == job.ID {
				return p, nil
			}
			p.Before++
		}
		if page.After = next; next == "" {
			return p, nil
		}
	}
}

// running counts the jobs of a kind that run; the number of workers bounds it.
func running(tx *store.Tx, kind string) (n int, err error) {
	list, _, err := store.Jobs.List(tx, store.ByRunning, store.Page{Prefix: store.Key(kind)})
	for _, j := range list {
		if j.Kind == kind {
			n++
		}
	}
	return n, err
}

// Remove takes all jobs of a subject out of the queue and returns their ids.
// After the commit, give them to [Runner.Interrupt], which ends those that run.
// Like every function of a transaction it may run more than once.
func Remove(tx *store.Tx, subject string) ([]resource.JobID, error) {
	var removed []resource.JobID
	for {
		list, _, err := store.Jobs.List(tx, store.BySubject, store.Page{Prefix: store.Key(subject, "")})
		if err != nil || len(list) == 0 {
			return removed, err
		}
		for _, j := range list {
			if err := store.Jobs.Delete(tx, string(j.ID)); err != nil {
				return nil, err
			}
			removed = append(removed, j.ID)
		}
	}
}
