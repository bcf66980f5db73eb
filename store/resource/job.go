package resource

import (
	"slices"
	"time"
)

// Job is one entry of the durable queue: work that has to be done once for a
// subject, whatever happens to the process. It is deleted when it is done or given
// up; what came of it stands in the record of its subject.
type Job struct {
	ID        JobID     `json:"id"`
	Kind      string    `json:"kind"`    // which runner does it
	Subject   string    `json:"subject"` // id of the record it is about
	Status    JobStatus `json:"status"`
	Failures  int       `json:"failures,omitempty"` // runs that ended with an error
	Crashes   int       `json:"crashes,omitempty"`  // runs that ended with the process
	LastError string    `json:"last_error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	DueAt     time.Time `json:"due_at"` // not before
	StartedAt time.Time `json:"started_at,omitzero"`
}

// JobStatus says whether somebody works on a job.
type JobStatus string

// The states of a job.
const (
	JobQueued  JobStatus = "queued"
	JobRunning JobStatus = "running"
)

// JobMoves is the table of what may follow each state; a job ends by deletion.
var JobMoves = map[JobStatus][]JobStatus{
	JobQueued:  {JobRunning},
	JobRunning: {JobQueued},
}

// To moves the job on, or returns *BadMove.
func (j *Job) To(next JobStatus, now time.Time) error {
	if !slices.Contains(JobMoves[j.Status], next) {
		return &BadMove{Kind: "job", From: string(j.Status), To: string(next)}
	}
	if j.Status = next; next == JobRunning {
		j.StartedAt = now
	}
	return nil
}
