package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"athanor/engine"
	"athanor/engine/worker"
	"athanor/gpu"
)

// fakeTrainee is a training process that exists only in this one.
type fakeTrainee struct {
	fake
	lines chan said
	term  chan struct{}
	once  sync.Once
}

func (f *fakeTrainee) Lines() <-chan said { return f.lines }
func (f *fakeTrainee) Terminate()         { f.once.Do(func() { close(f.term) }) }

// say reports; a process that was killed says nothing.
func (f *fakeTrainee) say(p worker.Progress) {
	select {
	case f.lines <- said{Progress: p}:
	case <-f.exited:
	}
}

func (f *fakeTrainee) done() { f.say(worker.Progress{Result: &engine.TrainResult{Steps: 1}}) }

func (f *fakeTrainee) alive() { f.say(worker.Progress{Alive: true}) }

func (f *fakeTrainee) planned(bytes int64) {
	f.say(worker.Progress{Event: &engine.TrainEvent{Type: engine.TrainPlanned, Plan: &engine.TrainPlan{MemoryBytes: bytes}}})
}

// launchTrain plays s.train as a job that ends by itself after it.
func (s *stage) launchTrain(_ Spec, train *engine.TrainSpec) (trainee, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, *train)
	f := &fakeTrainee{fake: fake{pid: 5000 + len(s.jobs), exited: make(chan struct{})}, lines: make(chan said), term: make(chan struct{})}
	go func() {
		s.train(train, f)
		f.end(Exit{Class: ClassCrash, Err: errors.New("it ended by itself")})
		close(f.lines)
	}()
	return f, nil
}

func (s *stage) started() []engine.TrainSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]engine.TrainSpec(nil), s.jobs...)
}

const gib = 1 << 30

// machine has 8 GiB, of which 1 GiB is left to others, and 4 cores.
func machine() *gpu.Ledger {
	return gpu.NewLedger(gpu.Device{ID: gpu.HostID, Kind: gpu.CPU, MemoryBytes: 8 * gib, Cores: 4})
}

func serving(name string, bytes int64) Spec {
	s := key(name)
	s.MemoryBytes = bytes
	return s
}

func job(name string, bytes int64) *engine.TrainSpec {
	return &engine.TrainSpec{Job: name, MemoryBytes: bytes}
}

// goTrain trains in the background.
func goTrain(h *Host, spec *engine.TrainSpec) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := h.Train(context.Background(), spec, func(*engine.TrainEvent) error { return nil })
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// isBusy checks that a job has to wait for a reason.
func isBusy(t *testing.T, err error, reason string) {
	t.Helper()
	if busy := new(engine.BusyError); !errors.As(err, &busy) || !strings.Contains(busy.Reason, reason) {
		t.Errorf("got %v, want a BusyError with %q", err, reason)
	}
}

func TestTrainingTakesRoomFromIdleWorkers(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { pass(30 * time.Second); job.done() }}
	play(t, s, Config{Ledger: machine()}, func(t *testing.T, h *Host) {
		busy := mustAcquire(t, h, serving("busy", gib))
		mustAcquire(t, h, serving("old", gib)).Release()
		pass(time.Second)
		mustAcquire(t, h, serving("new", gib)).Release()

		isBusy(t, <-goTrain(h, job("large", 6.5*gib)), "needs 6.5 GiB of memory, and 4.0 GiB are free")
		if err := <-goTrain(h, job("huge", 7.5*gib)); !errors.Is(err, engine.ErrNoMemory) || !strings.Contains(err.Error(), "7.5 GiB are needed, this machine has 7.0 GiB") {
			t.Errorf("more than there is: %v", err)
		}
		if state(h, "old") != Ready || state(h, "new") != Ready || len(s.started()) != 0 {
			t.Errorf("a refusal changed something: %+v", h.Snapshot())
		}
		ended := goTrain(h, job("a", 5*gib))
		if state(h, "old") != Absent || state(h, "new") != Ready || state(h, "busy") != Ready {
			t.Errorf("the longest idle should go: %+v", h.Snapshot())
		}
		if got := h.cfg.Ledger.Reserved("cpu"); got != 7*gib {
			t.Errorf("%d are reserved", got)
		}
		if _, err := h.Acquire(t.Context(), serving("next", 3*gib)); !errors.Is(err, gpu.ErrNoRoom) {
			t.Errorf("a model beside the job: %v", err)
		}
		busy.Release()
		if err := <-ended; err != nil {
			t.Errorf("the job: %v", err)
		}
		if got := s.started(); len(got) != 1 || got[0].MemoryBytes != 5*gib || got[0].Threads != 4 {
			t.Errorf("started %+v", got)
		}
		mustAcquire(t, h, serving("next", 6*gib)).Release()
	})
}

func TestTrainingJobsDoNotShareCores(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { pass(30 * time.Second); job.done() }}
	play(t, s, Config{Ledger: machine()}, func(t *testing.T, h *Host) {
		mustAcquire(t, h, serving("idle", 2*gib)).Release()
		first := goTrain(h, job("first", 4*gib))
		isBusy(t, <-goTrain(h, job("second", 3*gib)), "another training job has the processor")
		if state(h, "idle") != Ready {
			t.Error("a worker was stopped for a job that could not start")
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-goTrain(h, job("second", 3*gib)); err != nil {
			t.Errorf("after the first: %v", err)
		}
	})
	s = &stage{train: s.train}
	play(t, s, Config{Ledger: machine(), TrainingJobs: 2}, func(t *testing.T, h *Host) {
		first, second := goTrain(h, job("first", 0)), goTrain(h, job("second", 0))
		isBusy(t, <-goTrain(h, job("third", 0)), "another training job has the processor")
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		for _, j := range s.started() {
			if j.Threads != 2 || j.MemoryBytes != 3.5*gib {
				t.Errorf("%s got %d threads and %d bytes, want half of the machine", j.Job, j.Threads, j.MemoryBytes)
			}
		}
	})
}

// TestMoreJobsThanCores has an operator who wants jobs to share them.
func TestMoreJobsThanCores(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { pass(30 * time.Second); job.done() }}
	play(t, s, Config{Ledger: machine(), TrainingJobs: 6}, func(t *testing.T, h *Host) {
		var all []<-chan error
		for i := range 6 {
			all = append(all, goTrain(h, job(fmt.Sprint(i), gib)))
		}
		for i, ended := range all {
			if err := <-ended; err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		}
	})
}

// used is an Inventory that measures what it is told.
type used struct{ bytes int64 }

func (u *used) Devices(context.Context) ([]gpu.Device, error) { return nil, nil }
func (u *used) Usage(context.Context) ([]gpu.Usage, error) {
	return []gpu.Usage{{Device: gpu.HostID, UsedBytes: u.bytes}}, nil
}

// TestBudget is what a job gets that does not say what it needs.
func TestBudget(t *testing.T) {
	tests := []struct {
		name   string
		others int64 // used by other programs
		busy   int64 // reserved by a worker in use, which holds as much
		most   int64 // configured
		want   int64
	}{
		{"an empty machine", 0, 0, 0, 7 * gib},
		{"other programs", 4 * gib, 0, 0, 3 * gib},
		{"a worker", 0, 2 * gib, 0, 5 * gib},
		{"both", 4 * gib, 2 * gib, 0, 1 * gib},
		{"a configured limit", 0, 0, 2 * gib, 2 * gib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { job.done() }}
			inventory := &used{tt.others + tt.busy}
			play(t, s, Config{Ledger: machine(), Inventory: inventory, TrainMemory: tt.most}, func(t *testing.T, h *Host) {
				if tt.busy > 0 {
					defer mustAcquire(t, h, serving("busy", tt.busy)).Release()
					s.last("busy").setMemory(tt.busy)
					pass(time.Second)
				}
				if err := <-goTrain(h, job("a", 0)); err != nil {
					t.Fatal(err)
				}
				if got := s.started()[0].MemoryBytes; got != tt.want {
					t.Errorf("got %s, want %s", gpu.Size(got), gpu.Size(tt.want))
				}
			})
		})
	}
	s := &stage{}
	play(t, s, Config{Ledger: machine(), Inventory: &used{7 * gib}}, func(t *testing.T, h *Host) {
		isBusy(t, <-goTrain(h, job("a", 0)), "0 B are free")
	})
}

// TestJobThatNeedsMore has a job that finds out itself what it needs.
func TestJobThatNeedsMore(t *testing.T) {
	needs := int64(6 * gib)
	s := &stage{train: func(spec *engine.TrainSpec, job *fakeTrainee) {
		if spec.MemoryBytes < needs {
			p, err := worker.NewProgressReader(strings.NewReader(`{"error":{"kind":"no_memory","message":"too little"}}` + "\n")).Next()
			if err != nil {
				panic(err)
			}
			job.say(p)
			return
		}
		job.done()
	}}
	play(t, s, Config{Ledger: machine()}, func(t *testing.T, h *Host) {
		mustAcquire(t, h, serving("idle", 3*gib)).Release()
		if err := <-goTrain(h, job("a", 0)); err != nil || state(h, "idle") != Absent || len(s.started()) != 2 {
			t.Errorf("with an idle worker: %v after %d starts", err, len(s.started()))
		}
		lease := mustAcquire(t, h, serving("busy", 3*gib))
		for range 3 {
			isBusy(t, <-goTrain(h, job("b", 0)), "needs more than the 4.0 GiB of memory that are free")
		}
		if n := len(s.started()); n != 3 {
			t.Errorf("%d starts, want 3: it is known not to fit", n)
		}
		lease.Release()
		if err := <-goTrain(h, job("b", 0)); err != nil {
			t.Errorf("with the worker idle: %v", err)
		}
		needs = 20 * gib
		for range 2 {
			if err := <-goTrain(h, job("c", 0)); !errors.Is(err, engine.ErrNoMemory) {
				t.Errorf("more than the machine has: %v", err)
			}
		}
		needs = 3 * gib
		if err := <-goTrain(h, job("d", 2*gib)); !errors.Is(err, engine.ErrNoMemory) {
			t.Errorf("with a given budget: %v", err)
		}
	})
}

// TestJobThatNeedsMoreAgain takes up a job that fitted when it was planned and says
// itself that it has to wait.
func TestJobThatNeedsMoreAgain(t *testing.T) {
	s := &stage{train: func(spec *engine.TrainSpec, job *fakeTrainee) {
		if spec.MemoryBytes < 7*gib {
			p, err := worker.NewProgressReader(strings.NewReader(`{"error":{"kind":"busy","message":"it needs 7 GiB as at its start"}}` + "\n")).Next()
			if err != nil {
				panic(err)
			}
			job.say(p)
			return
		}
		job.done()
	}}
	play(t, s, Config{Ledger: machine(), Inventory: &used{gib / 2}}, func(t *testing.T, h *Host) {
		isBusy(t, <-goTrain(h, job("a", 0)), "as at its start")
	})
	s = &stage{train: s.train}
	play(t, s, Config{Ledger: machine()}, func(t *testing.T, h *Host) {
		mustAcquire(t, h, serving("idle", 3*gib)).Release()
		if err := <-goTrain(h, job("a", 0)); err != nil || state(h, "idle") != Absent {
			t.Errorf("with an idle worker: %v", err)
		}
	})
}

// TestPlanGivesBack has a job that needs less than it got.
func TestPlanGivesBack(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { job.planned(2 * gib); pass(30 * time.Second); job.done() }}
	play(t, s, Config{Ledger: machine()}, func(t *testing.T, h *Host) {
		ended := goTrain(h, job("a", 0))
		if got := h.Training(); len(got) != 1 || got[0].Reserved != 2.5*gib || got[0].Cores != 4 {
			t.Errorf("status %+v", got)
		}
		mustAcquire(t, h, serving("next", 5*gib)).Release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSignsOfLife(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) {
		for range 10 {
			pass(50 * time.Second)
			job.alive()
		}
		job.planned(1)
		job.alive()
		pass(50 * time.Second)
		job.alive()
		<-job.exited // silent
	}}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		began := time.Now()
		_, err := h.Train(t.Context(), job("a", 0), func(*engine.TrainEvent) error {
			pass(10 * time.Minute) // the time of others is not the job's silence
			return nil
		})
		if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "no sign of life for 1m0s") {
			t.Errorf("got %v", err)
		}
		if got, want := time.Since(began), 500*time.Second+10*time.Minute+50*time.Second+time.Minute; got != want {
			t.Errorf("killed after %v, want %v", got, want)
		}
	})
}

func TestStubbornTrainingIsKilled(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) {
		<-job.term
		job.planned(1) // somebody must read it, or the job hangs
		<-job.exited
	}}
	play(t, s, Config{TrainStop: 7 * time.Second}, func(t *testing.T, h *Host) {
		began := time.Now()
		ended := goTrain(h, job("a", 0))
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) || time.Since(began) != 7*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// TestCloseWithoutTime ends the context of Close before a job has stopped.
func TestCloseWithoutTime(t *testing.T) {
	s := &stage{train: func(_ *engine.TrainSpec, job *fakeTrainee) { <-job.exited }}
	play(t, s, Config{TrainStop: time.Hour}, func(t *testing.T, h *Host) {
		began := time.Now()
		ended := goTrain(h, job("a", 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}
