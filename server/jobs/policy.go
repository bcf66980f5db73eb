package jobs

import (
	"errors"
	"fmt"
	"time"

	"athanor/store/resource"
)

// Policy says when a job is tried again. A zero field takes its default.
type Policy struct {
	Failures   int           // runs that may end with an error, default 3
	Crashes    int           // runs that may end with the process, default 20
	Backoff    time.Duration // after the first failure, doubled each time, default 1 s
	MaxBackoff time.Duration // default 5 min
}

func (p Policy) withDefaults() Policy {
	if p.Failures == 0 {
		p.Failures = 3
	}
	if p.Crashes == 0 {
		p.Crashes = 20
	}
	if p.Backoff == 0 {
		p.Backoff = time.Second
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = 5 * time.Minute
	}
	return p
}

// Decision is what follows a run that did not succeed.
type Decision struct {
	Retry  bool
	At     time.Time // of the next run
	Reason error     // why it is given up, when not tried again
}

// Decide says what follows for a job whose counters include the run that ended at
// now: with err, or with the process when err is nil.
func (p Policy) Decide(job *resource.Job, err error, now time.Time) Decision {
	p = p.withDefaults()
	var fatal *permanent
	switch {
	case errors.As(err, &fatal):
		return Decision{Reason: fatal.err}
	case err == nil && job.Crashes >= p.Crashes:
		return Decision{Reason: fmt.Errorf("the process ended %d times while it worked on this", job.Crashes)}
	case err == nil:
		return Decision{Retry: true, At: now}
	case job.Failures >= p.Failures:
		return Decision{Reason: fmt.Errorf("failed %d times: %w", job.Failures, err)}
	}
	wait := p.Backoff
	for i := 1; i < job.Failures && wait < p.MaxBackoff; i++ {
		wait *= 2
	}
	return Decision{Retry: true, At: now.Add(min(wait, p.MaxBackoff))}
}

// Later makes a job that cannot begin now be put back for a while: the run does
// not count as a failure. The result wraps reason.
func Later(wait time.Duration, reason error) error { return &later{wait, reason} }

type later struct {
	wait   time.Duration
	reason error
}

func (l *later) Error() string { return l.reason.Error() }

func (l *later) Unwrap() error { return l.reason }

// Permanent marks an error that another try cannot mend.
func Permanent(err error) error { return &permanent{err} }

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }

func (p *permanent) Unwrap() error { return p.err }
