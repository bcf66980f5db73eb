package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"athanor/server/egress"
	"athanor/server/finetunes"
	"athanor/server/finetunes/tracker"
	"athanor/server/jobs"
)

const (
	publicTracker = "https://api.wandb.ai"
	trackerFinish = 15 * time.Second // to send what waits at the end of a job
	trackerLeave  = 3 * time.Second  // the same when the server stops
	trackerCancel = 30 * time.Second // for a cancelled job to stop
)

// trackers reports jobs to experiment trackers, through the gate.
type trackers struct {
	gate *egress.Gate
	runs sync.WaitGroup
	open context.Context // ends when no tracker is waited for any more
	cut  context.CancelFunc
}

func newTrackers(gate *egress.Gate) *trackers {
	t := &trackers{gate: gate}
	t.open, t.cut = context.WithCancel(context.Background())
	return t
}

var _ finetunes.Tracker = (*trackers)(nil)

// Start begins to report a job in the background. When ctx ends before Finish, the
// run stays open at the tracker: the job goes on later.
func (t *trackers) Start(ctx context.Context, run finetunes.TrackerRun) finetunes.TrackerSession {
	base := run.BaseURL
	if base == "" {
		base = publicTracker
	}
	web := t.gate.Client(egress.Options{Purpose: "tracker of job " + run.ID, MaxBody: 16 << 20, Idle: 30 * time.Second})
	s := &trackerSession{run: tracker.Start(tracker.Config{
		BaseURL: base, Key: run.APIKey, Entity: run.Entity, Project: run.Project, RunID: run.ID, Name: run.Name,
		Settings: run.Config, HTTP: web, Started: run.Started, Warn: run.Failed,
	}), exitCode: make(chan int, 1)}
	t.runs.Go(func() {
		s.end(ctx, t.open)
		web.CloseIdleConnections()
	})
	return s
}

// wait returns when every run has ended; no other may start. When ctx ends, those
// that still wait for their tracker are cut off.
func (t *trackers) wait(ctx context.Context) {
	defer t.cut()
	defer context.AfterFunc(ctx, t.cut)()
	t.runs.Wait()
}

// trackerSession is one run.
type trackerSession struct {
	run      *tracker.Run
	exitCode chan int // of Finish
}

// Log reports metrics.
func (s *trackerSession) Log(step int, at time.Time, values map[string]float64) {
	s.run.Log(step, at, values)
}

// Finish ends the run; what waits is sent in the background.
func (s *trackerSession) Finish(succeeded bool) {
	exitCode := 1
	if succeeded {
		exitCode = 0
	}
	select {
	case s.exitCode <- exitCode:
	default: // it was finished before
	}
}

// end waits for the end of the job, or of this process, and tells the tracker as long
// as open has not ended.
func (s *trackerSession) end(ctx, open context.Context) {
	finish := func(exitCode int) {
		bounded, cancel := context.WithTimeout(open, trackerFinish)
		defer cancel()
		s.run.Finish(bounded, exitCode)
	}
	select {
	case exitCode := <-s.exitCode:
		finish(exitCode)
		return
	case <-ctx.Done():
	}
	// A finished job may end its context at once; one that is cancelled ends its
	// context first.
	var patience time.Duration
	if errors.Is(context.Cause(ctx), jobs.ErrCancelled) {
		patience = trackerCancel
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case exitCode := <-s.exitCode:
		finish(exitCode)
		return
	default:
	}
	select {
	case exitCode := <-s.exitCode:
		finish(exitCode)
		return
	case <-t.C:
	case <-open.Done():
	}
	bounded, cancel := context.WithTimeout(open, trackerLeave)
	defer cancel()
	s.run.Leave(bounded)
}
