package jobs

import (
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
