package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/engine/worker"
	"athanor/gpu"
)

// fake is a process that exists only in this one.
type fake struct {
	mock   *enginetest.Mock
	pid    int
	health func(ctx context.Context) error // nil is healthy
	stuck  bool                            // ignores Terminate

	mu     sync.Mutex
	memory Memory
	exited chan struct{}
	exit   Exit
}

func (f *fake) Generator() engine.Generator { return f.mock }
func (f *fake) PID() int                    { return f.pid }
func (f *fake) Exited() <-chan struct{}     { return f.exited }
func (f *fake) Exit() Exit                  { return f.exit }
func (f *fake) Terminate() {
	if !f.stuck {
		f.end(Exit{Class: ClassStopped, Err: errStopped})
	}
}
func (f *fake) Kill(class Class, why error) { f.end(Exit{Class: class, Err: why}) }
func (f *fake) crash()                      { f.end(Exit{Class: ClassCrash, Err: errors.New("signal: killed")}) }
func (f *fake) Health(ctx context.Context) error {
	if f.health != nil {
		return f.health(ctx)
	}
	return nil
}
func (f *fake) Memory() (Memory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory, nil
}
func (f *fake) setMemory(own int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory = Memory{RSS: own, Own: own}
}
func (f *fake) end(e Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if exited(f) {
		return
	}
	f.exit = e
	close(f.exited)
}

// stage starts fakes and remembers them.
type stage struct {
	mu     sync.Mutex
	starts []time.Time
	procs  map[string][]*fake // by key, in order
	make   func(spec Spec, nth int) (*fake, time.Duration, error)

	jobs  []engine.TrainSpec // as they were started
	train func(spec *engine.TrainSpec, job *fakeTrainee)
}

func (s *stage) launch(ctx context.Context, spec Spec) (process, Exit) {
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	nth := len(s.procs[spec.Key])
	f, delay, err := &fake{mock: &enginetest.Mock{}}, time.Duration(0), error(nil)
	if s.make != nil {
		f, delay, err = s.make(spec, nth)
	}
	if f != nil {
		f.exited = make(chan struct{})
		f.pid = 1000 + len(s.starts)
	}
	if s.procs == nil {
		s.procs = map[string][]*fake{}
	}
	s.procs[spec.Key] = append(s.procs[spec.Key], f)
	s.mu.Unlock()
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, Exit{Class: ClassStart, Err: ctx.Err()}
	}
	if err != nil {
		return nil, Exit{Class: ClassLoad, Err: err, Tail: []string{"last words"}}
	}
	return f, Exit{}
}

func (s *stage) last(key string) *fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.procs[key]
	return list[len(list)-1]
}

func (s *stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts)
}

// play runs f with a Host over s in a bubble with a clock of its own.
func play(t *testing.T, s *stage, cfg Config, f func(t *testing.T, h *Host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.launch, cfg.launchTrain = s.launch, s.launchTrain
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		h, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, h)
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		for key, procs := range s.procs {
			for _, p := range procs {
				if p != nil && p.exited != nil && !exited(p) && h.slots[key] != nil && h.slots[key].proc == process(p) {
					t.Errorf("worker %s lives on", key)
				}
			}
		}
		if h.cfg.Ledger != nil && len(h.cfg.Ledger.Snapshot()) != 0 {
			t.Errorf("reservations are left: %v", h.cfg.Ledger.Snapshot())
		}
	})
}

func key(k string) Spec { return Spec{Key: k, Spec: worker.Spec{Name: k}} }

func mustAcquire(t *testing.T, h *Host, spec Spec) *Lease {
	t.Helper()
	l, err := h.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatalf("Acquire %s: %v", spec.Key, err)
	}
	return l
}

// pass lets time go by on the clock of the bubble.
func pass(d time.Duration) { <-time.After(d) }

// say runs a short request.
func say(t *testing.T, l *Lease) error {
	t.Helper()
	_, err := enginetest.Collect(t.Context(), t, l.Generator(), &engine.GenerateRequest{MaxTokens: 3})
	return err
}

func state(h *Host, key string) State {
	for _, s := range h.Snapshot() {
		if s.Key == key {
			return s.State
		}
	}
	return Absent
}

func status(t *testing.T, h *Host, key string) Status {
	t.Helper()
	for _, s := range h.Snapshot() {
		if s.Key == key {
			return s
		}
	}
	t.Fatalf("no worker %s", key)
	return Status{}
}

func TestOneStartForAllWhoWait(t *testing.T) {
	s := &stage{make: func(spec Spec, _ int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}}, map[string]time.Duration{"slow": time.Minute, "quick": time.Second}[spec.Key], nil
	}}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				l := mustAcquire(t, h, key("slow"))
				if took := time.Since(start); took != time.Minute {
					t.Errorf("the slow worker took %v", took)
				}
				l.Release()
			})
		}
		synctest.Wait()
		if got := status(t, h, "slow"); got.State != Loading || got.PID != 0 {
			t.Errorf("while loading: %+v", got)
		}
		wg.Go(func() {
			mustAcquire(t, h, key("quick")).Release()
			if took := time.Since(start); took != time.Second {
				t.Errorf("the quick worker took %v: it waited for the slow one", took)
			}
		})
		wg.Wait()
		if got := s.count(); got != 2 {
			t.Errorf("%d starts, want 2", got)
		}
		if got := status(t, h, "slow"); got.State != Ready || got.PID == 0 || got.InFlight != 0 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

func TestCancelWhileLoading(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}}, time.Minute, nil
	}}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := h.Acquire(ctx, key("a")); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		mustAcquire(t, h, key("a")).Release() // the load went on
		if took := time.Since(start); took != time.Minute || s.count() != 1 {
			t.Errorf("ready after %v and %d starts", took, s.count())
		}
		if _, err := h.Acquire(ctx, key("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestLoadFailure(t *testing.T) {
	broken := &worker.LoadError{Message: "config.json: unknown architecture"}
	s := &stage{make: func(_ Spec, nth int) (*fake, time.Duration, error) {
		if nth < 3 {
			return nil, time.Second, broken
		}
		return &fake{mock: &enginetest.Mock{}}, 0, nil
	}}
	play(t, s, Config{Policy: Policy{Base: 5 * time.Second}}, func(t *testing.T, h *Host) {
		_, err := h.Acquire(t.Context(), key("a"))
		if got := new(worker.LoadError); !errors.As(err, &got) || !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("first: %v, want the load error as ErrUnavailable", err)
		}
		_, err = h.Acquire(t.Context(), key("a"))
		failed := new(FailedError)
		if !errors.As(err, &failed) || !errors.Is(err, engine.ErrUnavailable) || time.Until(failed.Until) != 5*time.Second {
			t.Errorf("at once again: %v, want failed for 5 s", err)
		}
		if got := status(t, h, "a"); got.State != Failed || got.Failures != 1 || got.Class != ClassLoad ||
			!strings.Contains(got.LastError, "unknown architecture") || len(got.Tail) != 1 || got.Until != failed.Until {
			t.Errorf("status %+v", got)
		}
		pass(3500 * time.Millisecond)
		if _, err = h.Acquire(t.Context(), key("a")); !errors.Is(err, broken) { // 1.5 s early: waits and tries
			t.Errorf("shortly before the end of the pause: %v", err)
		}
		if s.count() != 2 {
			t.Errorf("%d starts, want 2", s.count())
		}
		if err := h.Evict(t.Context(), "a"); err != nil { // the files were repaired
			t.Error(err)
		}
		if _, err := h.Acquire(t.Context(), key("a")); !errors.Is(err, broken) {
			t.Errorf("after Evict: %v, want a new try", err)
		}
		if got := status(t, h, "a").Failures; got != 1 {
			t.Errorf("%d failures in a row after Evict, want 1", got)
		}
		pass(5 * time.Second)
		if err := say(t, mustAcquire(t, h, key("a"))); err != nil {
			t.Error(err)
		}
		if got := status(t, h, "a"); got.Failures != 0 || got.Restarts != 1 || got.State != Ready {
			t.Errorf("after a success: %+v", got)
		}
	})
}

// TestCrashLoop has a worker that dies a second after each start.
func TestCrashLoop(t *testing.T) {
	s := &stage{}
	s.make = func(Spec, int) (*fake, time.Duration, error) {
		f := &fake{mock: &enginetest.Mock{}}
		time.AfterFunc(time.Second, func() { f.crash() })
		return f, 0, nil
	}
	play(t, s, Config{Policy: Policy{Base: time.Second, Max: 16 * time.Second, GiveUp: 5}}, func(t *testing.T, h *Host) {
		spec := key("a")
		spec.Resident = true
		start := time.Now()
		mustAcquire(t, h, spec).Release()
		pass(time.Hour)
		if got := status(t, h, "a"); got.State != Failed || got.Failures != 6 || got.Restarts != 5 {
			t.Errorf("after an hour: %+v", got)
		}
		l := mustAcquire(t, h, spec) // a request starts it once more
		if err := say(t, l); err != nil {
			t.Error(err)
		}
		l.Release()
		var at []string
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range s.starts {
			at = append(at, x.Sub(start).String())
		}
		// Pauses 0, 1, 2, 4, 8 s after each second of life, then only on request.
		if got, want := strings.Join(at, " "), "0s 1s 3s 6s 11s 20s 1h0m0s"; got != want {
			t.Errorf("starts at %s, want %s", got, want)
		}
	})
}

func TestStableWorkersAreForgiven(t *testing.T) {
	s := &stage{}
	play(t, s, Config{Policy: Policy{Base: time.Hour, Max: time.Hour, Stable: time.Minute}}, func(t *testing.T, h *Host) {
		for i := range 10 {
			l, err := h.Acquire(t.Context(), key("a"))
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			l.Release()
			pass(time.Minute)
			s.last("a").crash()
			synctest.Wait()
		}
		mustAcquire(t, h, key("a")).Release()
		s.last("a").crash()
		synctest.Wait()
		if _, err := h.Acquire(t.Context(), key("a")); !errors.As(err, new(*FailedError)) {
			t.Errorf("two quick deaths: %v, want a pause", err)
		}
	})
}

// TestWorkerThatServedIsForgiven: deaths after a first token do not add up,
// even when no answer ever came to its end.
func TestWorkerThatServedIsForgiven(t *testing.T) {
	s := &stage{}
	play(t, s, Config{Policy: Policy{Base: time.Hour, Max: time.Hour}}, func(t *testing.T, h *Host) {
		crash := errors.New("it dies here")
		for i := range 50 {
			l, err := h.Acquire(t.Context(), key("a"))
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			err = l.Generator().Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 3}, func(ev *engine.Event) error {
				if len(ev.Tokens) > 0 {
					return crash
				}
				return nil
			})
			if !errors.Is(err, crash) {
				t.Fatalf("round %d: %v", i, err)
			}
			s.last("a").crash()
			l.Release()
			synctest.Wait()
		}
		if got := status(t, h, "a"); got.Restarts != 49 || got.Failures != 1 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

func TestDeadWorkerIsNotLent(t *testing.T) {
	s := &stage{}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		l := mustAcquire(t, h, key("a"))
		first := s.last("a")
		first.mock.StepDelay = time.Second
		broken := &leased{host: h, slot: l.slot, proc: first}
		first.mock.FailAfter, first.mock.FailErr = 2, engine.ErrUnavailable
		go func() { pass(2*time.Second + 100*time.Millisecond); first.crash() }()
		_, err := enginetest.Collect(t.Context(), t, broken, &engine.GenerateRequest{MaxTokens: 9})
		if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("got %v, want the cause of the death", err)
		}
		l.Release()
		if err := say(t, mustAcquire(t, h, key("a"))); err != nil || s.count() != 2 {
			t.Errorf("the next request: %v after %d starts", err, s.count())
		}
	})
}

func TestKeepAlive(t *testing.T) {
	s := &stage{}
	play(t, s, Config{KeepAlive: 5 * time.Minute}, func(t *testing.T, h *Host) {
		resident := key("resident")
		resident.Resident = true
		mustAcquire(t, h, resident).Release()
		a := mustAcquire(t, h, key("a"))
		pass(time.Hour)
		if got := state(h, "a"); got != Ready {
			t.Errorf("a worker in use is %s", got)
		}
		a.Release()
		a.Release()
		pass(4 * time.Minute)
		mustAcquire(t, h, key("a")).Release()
		pass(5*time.Minute - time.Second)
		if got := state(h, "a"); got != Ready {
			t.Errorf("a second before its time it is %s", got)
		}
		pass(2 * time.Second)
		if got := state(h, "a"); got != Absent {
			t.Errorf("after its time it is %s", got)
		}
		if got := state(h, "resident"); got != Ready {
			t.Errorf("the resident worker is %s", got)
		}
		if got := status(t, h, "a"); got.Failures != 0 || got.Class != ClassStopped {
			t.Errorf("%+v", got)
		}
	})
}

func TestRoomIsMade(t *testing.T) {
	s := &stage{}
	ledger := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 100}, gpu.Device{ID: "GPU-1", MemoryBytes: 100})
	play(t, s, Config{Ledger: ledger}, func(t *testing.T, h *Host) {
		spec := func(k string, bytes int64) Spec {
			s := key(k)
			s.MemoryBytes = bytes
			return s
		}
		elsewhere := spec("elsewhere", 90)
		elsewhere.Device = "GPU-1"
		mustAcquire(t, h, elsewhere).Release()
		busy := mustAcquire(t, h, spec("busy", 40))
		mustAcquire(t, h, spec("old", 30)).Release()
		pass(time.Second)
		mustAcquire(t, h, spec("new", 30)).Release()

		// 60 can be had by stopping both idle ones, 61 cannot: then nobody is stopped.
		_, err := h.Acquire(t.Context(), spec("huge", 61))
		if !errors.Is(err, gpu.ErrNoRoom) || !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("too much: %v", err)
		}
		if state(h, "old") != Ready || state(h, "new") != Ready || state(h, "huge") != Absent {
			t.Errorf("a refusal changed something: %+v", h.Snapshot())
		}
		mustAcquire(t, h, spec("next", 20)).Release()
		if state(h, "old") != Absent || state(h, "new") != Ready {
			t.Errorf("the longest idle should go: %+v", h.Snapshot())
		}
		mustAcquire(t, h, spec("big", 60)).Release()
		if state(h, "new") != Absent || state(h, "next") != Absent || state(h, "busy") != Ready || state(h, "elsewhere") != Ready {
			t.Errorf("both should go: %+v", h.Snapshot())
		}
		if got := status(t, h, "big").Reserved; got != 60 || ledger.Reserved("cpu") != 100 {
			t.Errorf("%d reserved by big, %d in all", got, ledger.Reserved("cpu"))
		}
		busy.Release()
		nowhere := spec("nowhere", 1)
		nowhere.Device = "GPU-9"
		if _, err := h.Acquire(t.Context(), nowhere); !errors.Is(err, gpu.ErrNoDevice) {
			t.Errorf("an unknown device: %v", err)
		}
	})
}

func TestResidentWorkersKeepTheirRoom(t *testing.T) {
	s := &stage{}
	ledger := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 100})
	play(t, s, Config{Ledger: ledger}, func(t *testing.T, h *Host) {
		resident := key("resident")
		resident.Resident, resident.MemoryBytes = true, 60
		mustAcquire(t, h, resident).Release()
		other := key("other")
		other.MemoryBytes = 60
		if _, err := h.Acquire(t.Context(), other); !errors.Is(err, gpu.ErrNoRoom) {
			t.Errorf("got %v, want ErrNoRoom", err)
		}
		s.last("resident").crash()
		synctest.Wait()
		if got := status(t, h, "resident"); got.State != Ready || got.Restarts != 1 {
			t.Errorf("after a crash nobody asked about: %+v", got)
		}
	})
}

// TestResidentWorkerWaitsForRoom has a resident worker that finds no room when it
// is started, and later gets it without a request.
func TestResidentWorkerWaitsForRoom(t *testing.T) {
	s := &stage{}
	ledger := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 100})
	play(t, s, Config{Ledger: ledger}, func(t *testing.T, h *Host) {
		other := key("other")
		other.MemoryBytes = 60
		lease := mustAcquire(t, h, other)
		resident := key("resident")
		resident.Resident, resident.MemoryBytes = true, 60
		if _, err := h.Acquire(t.Context(), resident); !errors.Is(err, gpu.ErrNoRoom) {
			t.Fatalf("got %v, want ErrNoRoom", err)
		}
		pass(10 * time.Minute)
		if state(h, "resident") != Absent {
			t.Fatalf("without room: %+v", h.Snapshot())
		}
		lease.Release()
		pass(time.Minute)
		if got := status(t, h, "resident"); got.State != Ready || got.Failures != 0 || got.Restarts != 0 {
			t.Errorf("with room: %+v", got)
		}

		// One that is not wanted any more is not tried again.
		busy := mustAcquire(t, h, resident)
		third := resident
		third.Key = "third"
		if _, err := h.Acquire(t.Context(), third); !errors.Is(err, gpu.ErrNoRoom) {
			t.Fatalf("got %v, want ErrNoRoom", err)
		}
		if err := h.Evict(t.Context(), "third"); err != nil {
			t.Error(err)
		}
		busy.Release()
		if err := h.Evict(t.Context(), "resident"); err != nil {
			t.Error(err)
		}
		pass(10 * time.Minute)
		if left := h.Snapshot(); len(left) != 1 || left[0].Key != "other" {
			t.Errorf("left: %+v", left)
		}
	})
}

func TestStopWaitsForRequests(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{StepDelay: time.Second}}, 0, nil
	}}
	play(t, s, Config{DrainTimeout: time.Minute}, func(t *testing.T, h *Host) {
		l := mustAcquire(t, h, key("a"))
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			defer l.Release()
			_, err := enginetest.Collect(t.Context(), t, l.Generator(), &engine.GenerateRequest{MaxTokens: 10})
			done <- err
		}()
		synctest.Wait()
		go func() {
			if err := h.Evict(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if got := status(t, h, "a"); got.State != Draining || got.InFlight != 1 {
			t.Errorf("while it drains: %+v", got)
		}
		next := mustAcquire(t, h, key("a")) // waits for the end of the old one
		if took := time.Since(start); took != 10*time.Second || s.count() != 2 {
			t.Errorf("the next worker came after %v", took)
		}
		if err := <-done; err != nil {
			t.Errorf("the request in flight: %v", err)
		}
		next.Release()
	})
}

func TestStopHasAnEnd(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}, stuck: true}, 0, nil
	}}
	play(t, s, Config{DrainTimeout: 10 * time.Second}, func(t *testing.T, h *Host) {
		l := mustAcquire(t, h, key("a"))
		start := time.Now()
		if err := h.Evict(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 10*time.Second+stopGrace {
			t.Errorf("a stuck worker with a lease that is never released took %v to stop", took)
		}
		l.Release()
		mustAcquire(t, h, key("a")).Release()
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("Close with a deadline of 1 s took %v", took)
		}
		if _, err := h.Acquire(t.Context(), key("a")); !errors.Is(err, ErrClosed) || !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestCloseWhileLoading(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}}, time.Hour, nil
	}}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		got := make(chan error, 1)
		go func() { _, err := h.Acquire(t.Context(), key("a")); got <- err }()
		synctest.Wait()
		start := time.Now()
		if err := h.Close(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if err := <-got; !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("who waited got %v", err)
		}
	})
}

func TestEvictWhileLoading(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}}, time.Hour, nil
	}}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		got := make(chan error, 1)
		go func() { _, err := h.Acquire(t.Context(), key("a")); got <- err }()
		synctest.Wait()
		if err := errors.Join(h.Evict(t.Context(), "a"), h.Evict(t.Context(), "a"), h.Evict(t.Context(), "never")); err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, errStopped) {
			t.Errorf("who waited got %v", err)
		}
		if len(h.Snapshot()) != 0 || s.count() != 1 {
			t.Errorf("%d starts, left: %+v", s.count(), h.Snapshot())
		}
	})
}

func TestLoadTimeout(t *testing.T) {
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}}, time.Hour, nil
	}}
	play(t, s, Config{LoadTimeout: time.Minute}, func(t *testing.T, h *Host) {
		start := time.Now()
		if _, err := h.Acquire(t.Context(), key("a")); !errors.Is(err, engine.ErrUnavailable) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if got := status(t, h, "a"); got.State != Failed || got.Class != ClassStart {
			t.Errorf("%+v", got)
		}
	})
}

func TestHungWorkerIsKilled(t *testing.T) {
	var sick atomic.Bool
	s := &stage{make: func(Spec, int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{}, health: func(ctx context.Context) error {
			if sick.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}, 0, nil
	}}
	play(t, s, Config{HealthEvery: 10 * time.Second, HealthTimeout: 2 * time.Second}, func(t *testing.T, h *Host) {
		mustAcquire(t, h, key("a")).Release()
		pass(time.Minute + time.Second)
		sick.Store(true)
		pass(32 * time.Second) // asked after 9, 19 and 29 s, for 2 s each time
		if got := status(t, h, "a"); got.State != Failed || got.Class != ClassHung || !strings.Contains(got.LastError, "did not answer 3 times") {
			t.Errorf("%+v", got)
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	s := &stage{}
	play(t, s, Config{}, func(t *testing.T, h *Host) {
		spec := key("a")
		spec.MemoryLimit = 1 << 30
		mustAcquire(t, h, spec).Release()
		s.last("a").setMemory(1 << 30)
		pass(time.Second)
		if got := status(t, h, "a"); got.State != Ready || got.Memory.Own != 1<<30 {
			t.Errorf("at its limit: %+v", got)
		}
		s.last("a").setMemory(3 << 29)
		pass(memoryEvery)
		synctest.Wait()
		if got := status(t, h, "a"); got.State != Failed || got.Class != ClassMemory || got.LastError != "killed: it has 1.5 GiB of memory, its limit is 1.0 GiB" {
			t.Errorf("above it: %+v", got)
		}
	})
}

// TestManyKeys lets crashes, evictions and requests meet.
func TestManyKeys(t *testing.T) {
	s := &stage{make: func(_ Spec, nth int) (*fake, time.Duration, error) {
		return &fake{mock: &enginetest.Mock{StepDelay: 7 * time.Millisecond}}, time.Duration(nth%3) * 10 * time.Millisecond, nil
	}}
	ledger := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 3})
	play(t, s, Config{Ledger: ledger, KeepAlive: 50 * time.Millisecond}, func(t *testing.T, h *Host) {
		var wg sync.WaitGroup
		served := make(chan bool, 2000)
		for i := range 6 {
			spec := key(fmt.Sprint("k", i))
			spec.MemoryBytes = 1
			for j := range 4 {
				wg.Go(func() {
					for n := range 20 {
						l, err := h.Acquire(t.Context(), spec)
						if err != nil {
							if !errors.Is(err, engine.ErrUnavailable) {
								t.Errorf("Acquire: %v", err)
							}
							pass(time.Duration(10+i) * time.Millisecond)
							continue
						}
						if got := ledger.Reserved("cpu"); got > 3 {
							t.Errorf("%d reserved of 3", got)
						}
						served <- say(t, l) == nil
						if (n+i+j)%17 == 0 {
							s.last(spec.Key).crash()
						}
						l.Release()
						pass(time.Duration(n) * time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		close(served)
		good := 0
		for ok := range served {
			if ok {
				good++
			}
		}
		if good < 100 {
			t.Errorf("only %d of 480 requests were served", good)
		}
		t.Logf("%d of 480 served, %d starts", good, s.count())
	})
}
