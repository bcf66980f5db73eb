package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"athanor/server/jobs"
	"athanor/server/kit"
	"athanor/server/servertest"
	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestPolicy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	oops := errors.New("oops")
	p := jobs.Policy{Failures: 3, Crashes: 2, Backoff: time.Second, MaxBackoff: 3 * time.Second}
	tests := []struct {
		name              string
		failures, crashes int
		err               error
		retry             bool
		wait              time.Duration
		reason            string
	}{
		{"first failure", 1, 0, oops, true, time.Second, ""},
		{"second failure", 2, 0, oops, true, 2 * time.Second, ""},
		{"last failure", 3, 0, oops, false, 0, "failed 3 times: oops"},
		{"not worth another try", 1, 0, jobs.Permanent(oops), false, 0, "oops"},
		{"first crash", 0, 1, nil, true, 0, ""},
		{"last crash", 0, 2, nil, false, 0, "the process ended 2 times while it worked on this"},
		{"failure after crashes", 1, 9, oops, true, time.Second, ""},
	}
	for _, tt := range tests {
		d := p.Decide(&resource.Job{Failures: tt.failures, Crashes: tt.crashes}, tt.err, now)
		if d.Retry != tt.retry || tt.retry && !d.At.Equal(now.Add(tt.wait)) {
			t.Errorf("%s: got %+v", tt.name, d)
		}
		if !tt.retry && (d.Reason == nil || d.Reason.Error() != tt.reason) {
			t.Errorf("%s: got reason %v, want %s", tt.name, d.Reason, tt.reason)
		}
	}
	p.Failures = 10
	if d := p.Decide(&resource.Job{Failures: 9}, oops, now); d.At.Sub(now) != 3*time.Second {
		t.Errorf("the wait grows to %s", d.At.Sub(now))
	}
}

// world is a queue in synthetic time, with a record of what ran.
type world struct {
	t      *testing.T
	kit    kit.Kit
	db     *store.DB
	runner *jobs.Runner

	mu      sync.Mutex // guards what follows
	ran     []string
	givenUp []string
}

func newWorld(t *testing.T, run func(ctx context.Context, job resource.Job) error, kind jobs.Kind) *world {
	t.Helper()
	k, _ := servertest.NewKit(t)
	k.Now = func() time.Time { return time.Now().UTC() } // the bubble's
	w := &world{t: t, kit: k, db: storetest.Open(t)}
	kind.Name = "work"
	kind.Run = func(ctx context.Context, job resource.Job) error {
		w.mu.Lock()
		w.ran = append(w.ran, job.Subject)
		w.mu.Unlock()
		return run(ctx, job)
	}
	kind.GiveUp = func(_ *store.Tx, job resource.Job, reason error, _ time.Time) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.givenUp = append(w.givenUp, job.Subject+": "+reason.Error())
		return nil
	}
	var err error
	if w.runner, err = jobs.New(k, w.db, kind); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.runner.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) add(subject string, in time.Duration) {
	w.t.Helper()
	now := w.kit.Now()
	id := resource.JobID(w.kit.NewID("job"))
	err := w.db.Update(w.t.Context(), func(tx *store.Tx) error { return jobs.Add(tx, id, "work", subject, now, now.Add(in)) })
	if err != nil {
		w.t.Fatal(err)
	}
	w.runner.Wake()
}

// queue lists what is stored, by subject.
func (w *world) queue() map[string]resource.Job {
	w.t.Helper()
	out := map[string]resource.Job{}
	err := w.db.View(func(tx *store.Tx) error {
		list, _, err := store.Jobs.List(tx, "", store.Page{})
		for _, j := range list {
			out[j.Subject] = *j
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) expect(ran ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.ran, ran) {
		w.t.Errorf("ran %q, want %q", w.ran, ran)
	}
}

func TestRunsWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(context.Context, resource.Job) error { return nil }, jobs.Kind{})
		w.add("later", time.Hour)
		w.add("now", 0)
		w.start()
		defer w.runner.Stop()
		w.expect("now")
		w.add("soon", time.Minute)
		w.expect("now")
		time.Sleep(time.Minute)
		w.expect("now", "soon")
		time.Sleep(time.Hour)
		w.expect("now", "soon", "later")
		if q := w.queue(); len(q) != 0 {
			t.Errorf("left in the queue: %+v", q)
		}
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(_ context.Context, j resource.Job) error {
			if j.Subject == "panics" {
				panic("oh no")
			}
			return errors.New("oops")
		}, jobs.Kind{Policy: jobs.Policy{Failures: 2}})
		w.start()
		defer w.runner.Stop()
		w.add("fails", 0)
		w.expect("fails")
		if j := w.queue()["fails"]; j.Failures != 1 || j.LastError != "oops" || j.Status != resource.JobQueued {
			t.Errorf("after a failure: %+v", j)
		}
		time.Sleep(time.Second)
		w.expect("fails", "fails")
		w.add("panics", 0)
		time.Sleep(time.Second)
		w.expect("fails", "fails", "panics", "panics")
		if want := []string{"fails: failed 2 times: oops", "panics: failed 2 times: panic: oh no"}; !slices.Equal(w.givenUp, want) || len(w.queue()) != 0 {
			t.Errorf("given up %q, left %v", w.givenUp, w.queue())
		}
	})
}

func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, func(context.Context, resource.Job) error { <-release; return nil }, jobs.Kind{Workers: 2})
		for _, s := range []string{"a", "b", "c"} {
			w.add(s, 0)
			time.Sleep(time.Millisecond) // keeps the order
		}
		w.start()
		defer w.runner.Stop()
		synctest.Wait()
		if len(w.ran) != 2 {
			t.Fatalf("%d run at once, want 2", len(w.ran))
		}
		release <- struct{}{}
		synctest.Wait()
		if len(w.ran) != 3 {
			t.Errorf("the third did not start when a worker was free")
		}
		close(release)
	})
}

// TestLaterPutsBack has a job that finds no room three times, which is no failure.
func TestLaterPutsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		full := errors.New("the machine is full")
		w := newWorld(t, func(_ context.Context, job resource.Job) error {
			if job.Subject == "big" {
				if tries++; tries <= 3 {
					return fmt.Errorf("train: %w", jobs.Later(10*time.Second, full))
				}
			}
			return nil
		}, jobs.Kind{Policy: jobs.Policy{Failures: 1}})
		w.add("big", 0)
		w.start()
		synctest.Wait()
		if j := w.queue()["big"]; j.Failures != 0 || j.Crashes != 0 || j.Status != resource.JobQueued || !j.DueAt.Equal(w.kit.Now().Add(10*time.Second)) {
			t.Errorf("after the first try: %+v", j)
		}
		w.add("small", 0)
		synctest.Wait()
		w.expect("big", "small")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		w.expect("big", "small", "big", "big", "big")
		if left := w.queue(); len(left) != 0 || len(w.givenUp) != 0 {
			t.Errorf("left %v, given up %v", left, w.givenUp)
		}
		if err := jobs.Later(time.Second, full); !errors.Is(err, full) || err.Error() != full.Error() {
			t.Errorf("Later hides its reason: %v", err)
		}
		w.runner.Stop()
	})
}

func TestStopPutsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		w := newWorld(t, func(ctx context.Context, _ resource.Job) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}, jobs.Kind{})
		w.start()
		w.add("long", 0)
		w.expect("long")
		w.runner.Stop()
		if j := w.queue()["long"]; j.Status != resource.JobQueued || j.Failures != 0 || j.Crashes != 0 || !errors.Is(cause, jobs.ErrStopping) {
			t.Errorf("after Stop: %+v, cause %v", j, cause)
		}
	})
}

func TestRemoveInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		w := newWorld(t, func(ctx context.Context, _ resource.Job) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}, jobs.Kind{})
		w.start()
		defer w.runner.Stop()
		w.add("long", 0)
		w.add("other", 0)
		w.expect("long")
		for _, subject := range []string{"other", "long"} { // one waits, one runs
			var ids []resource.JobID
			err := w.db.Update(t.Context(), func(tx *store.Tx) (err error) {
				ids, err = jobs.Remove(tx, subject)
				return err
			})
			if err != nil || len(ids) != 1 {
				t.Fatalf("removed %v, %v", ids, err)
			}
			w.runner.Interrupt(ids...)
		}
		w.expect("long")
		if len(w.queue()) != 0 || !errors.Is(cause, jobs.ErrCancelled) || len(w.givenUp) != 0 {
			t.Errorf("left %v, cause %v, given up %v", w.queue(), cause, w.givenUp)
		}
	})
}

// TestStartTakesUpWhatCrashed makes a queue as a killed process leaves it.
func TestStartTakesUpWhatCrashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(context.Context, resource.Job) error { return nil }, jobs.Kind{Policy: jobs.Policy{Crashes: 3}})
		for subject, crashes := range map[string]int{"again": 0, "enough": 2} {
			w.add(subject, 0)
			err := w.db.Update(t.Context(), func(tx *store.Tx) error {
				list, _, err := store.Jobs.List(tx, store.BySubject, store.Page{Prefix: store.Key(subject, "")})
				if err != nil {
					return err
				}
				_, err = store.Jobs.Update(tx, string(list[0].ID), func(j *resource.Job) error {
					j.Crashes = crashes
					return j.To(resource.JobRunning, w.kit.Now())
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		defer w.runner.Stop()
		w.expect("again")
		if want := []string{"enough: the process ended 3 times while it worked on this"}; !slices.Equal(w.givenUp, want) || len(w.queue()) != 0 {
			t.Errorf("given up %q, left %v", w.givenUp, w.queue())
		}
	})
}

func TestNewRefusesBadKinds(t *testing.T) {
	t.Parallel()
	run := func(context.Context, resource.Job) error { return nil }
	for name, kinds := range map[string][]jobs.Kind{
		"twice": {{Name: "a", Run: run}, {Name: "a", Run: run}}, "no name": {{Run: run}}, "no function": {{Name: "a"}},
	} {
		if _, err := jobs.New(kit.Kit{}, nil, kinds...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
