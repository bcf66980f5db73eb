package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/worker"
	"athanor/gpu"
)

// Config sets up a Host. Zero values have the stated meaning.
type Config struct {
	Exe  string              // program to start, "" is this executable
	Args func(Spec) []string // its arguments, nil means "worker"; other users see them, so no secrets
	Env  []string            // its environment, nil means this process's

	RunDir    string // for sockets; made with mode 0700, and nobody else's
	CgroupDir string // delegated control group of version 2, "" looks for one

	Ledger    *gpu.Ledger   // where memory is reserved, nil means nothing is
	KeepAlive time.Duration // an idle worker is stopped after this, 0 means never

	LoadTimeout   time.Duration // 0 means 10 minutes
	DrainTimeout  time.Duration // how long requests may run on when a worker is stopped, 0 means 30 s
	HealthEvery   time.Duration // 0 means 5 s
	HealthTimeout time.Duration // 0 means 5 s; three in a row mean hung

	// Of training.
	Inventory    gpu.Inventory // measures memory before a job is started, nil means nobody does
	TrainingJobs int           // jobs at the same time, 0 means 1; they share the cores evenly
	TrainMemory  int64         // bytes that one job may use, 0 means what is free
	TrainSilence time.Duration // a job that says nothing for so long is killed, 0 means 1 minute
	TrainStop    time.Duration // between SIGTERM and SIGKILL, 0 means 10 s

	Policy Policy
	Now    func() time.Time // nil means time.Now
	Log    *slog.Logger     // nil means slog.Default()

	launch      launchFunc      // starts a process, nil means a real one
	launchTrain launchTrainFunc // nil exactly when launch is
}

func (c Config) withDefaults() Config {
	setDefault := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	setDefault(&c.LoadTimeout, 10*time.Minute)
	setDefault(&c.DrainTimeout, 30*time.Second)
	setDefault(&c.HealthEvery, 5*time.Second)
	setDefault(&c.HealthTimeout, 5*time.Second)
	setDefault(&c.TrainSilence, time.Minute)
	setDefault(&c.TrainStop, 10*time.Second)
	c.TrainingJobs = max(1, c.TrainingJobs)
	c.Policy = c.Policy.withDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Spec says which worker is wanted.
type Spec struct {
	// Key names the worker. Two Specs with one Key mean the same worker: while
	// it lives its first Spec counts, a new one is used at its next start.
	Key string
	worker.Spec
	// Resident workers are restarted without waiting for a request, and are
	// not stopped for being idle or to make room.
	Resident bool
	// MemoryLimit is how much memory of its own the worker may have, in bytes;
	// 0 is no limit. Spec.MemoryBytes is what is reserved for it.
	MemoryLimit int64
}

func (s Spec) device() string {
	if s.Device == "" {
		return gpu.HostID
	}
	return s.Device
}

// ErrClosed is returned after Close; it wraps engine.ErrUnavailable.
var ErrClosed = fmt.Errorf("%w: the server is shutting down", engine.ErrUnavailable)

// errStopped ends a load that is not wanted any more.
var errStopped = fmt.Errorf("%w: the worker was stopped", engine.ErrUnavailable)

// FailedError is returned for a worker that failed and is not to be started
// before Until. It wraps engine.ErrUnavailable.
type FailedError struct {
	Key    string
	Class  Class
	Until  time.Time
	Reason string
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%v: %s (no new start before %s)", engine.ErrUnavailable, e.Reason, e.Until.UTC().Format(time.RFC3339))
}

func (e *FailedError) Unwrap() error { return engine.ErrUnavailable }

// patience is how long Acquire waits for the end of a back-off by itself.
const patience = 2 * time.Second

// Host owns the workers of this process. Its methods are safe for concurrent
// use.
type Host struct {
	cfg     Config
	close   func() // after the last worker ended
	cores   int    // of each training job, 0 when nobody counts them
	running sync.WaitGroup

	// mu guards the fields below and all fields of slots and training jobs. It is
	// never held while waiting.
	mu       sync.Mutex
	slots    map[string]*slot
	training map[*training]struct{}
	tooSmall map[string]int64 // bytes in which a job did not fit, by job
	closed   bool
}

// New makes a Host and clears sockets of an earlier process out of RunDir.
func New(cfg Config) (*Host, error) {
	h := &Host{
		cfg: cfg.withDefaults(), close: func() {},
		slots: map[string]*slot{}, training: map[*training]struct{}{}, tooSmall: map[string]int64{},
	}
	h.shareCores()
	if h.cfg.launch == nil {
		l, err := newLauncher(h.cfg)
		if err != nil {
			return nil, err
		}
		h.cfg.launch, h.cfg.launchTrain, h.close = l.launch, l.launchTrain, l.close
	}
	return h, nil
}

// Acquire lends the worker of spec, starting it when it is not there. The
// caller releases the Lease. All who wait for one worker share one start; the
// end of ctx ends the wait, not the start. An error of a failed start wraps
// engine.ErrUnavailable and, where it applies, *worker.LoadError, *FailedError
// or gpu.ErrNoRoom.
func (h *Host) Acquire(ctx context.Context, spec Spec) (*Lease, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		lease, w, err := h.tryAcquire(spec)
		if lease != nil || err != nil {
			return lease, err
		}
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// tryAcquire does what can be done without waiting; it returns a lease, an
// error or what to wait for.
func (h *Host) tryAcquire(spec Spec) (*Lease, wait, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, wait{}, ErrClosed
	}
	s := h.slots[spec.Key]
	if s == nil {
		s = newSlot(spec, h.cfg.Now())
		h.slots[spec.Key] = s
	}
	switch s.state {
	case Ready:
		if !exited(s.proc) { // else its owner is about to notice
			return h.lend(s), wait{}, nil
		}
	case Absent:
		h.start(s, spec)
	case Failed:
		left := s.until.Sub(h.cfg.Now())
		if left > patience {
			return nil, wait{}, &FailedError{Key: s.spec.Key, Class: s.class, Until: s.until, Reason: s.lastErr.Error()}
		}
		if left > 0 {
			return nil, wait{changed: s.changed, atMost: left}, nil
		}
		h.start(s, spec)
	}
	if s.state == Loading {
		return nil, wait{load: s.load}, nil
	}
	return nil, wait{changed: s.changed}, nil
}

// wait is what a caller waits for: the end of a load, which gives its error, or
// a change of state, for some time at most.
type wait struct {
	load    *load
	changed <-chan struct{}
	atMost  time.Duration // 0 means without end
}

func (w wait) wait(ctx context.Context) error {
	if w.load != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.load.done:
			return w.load.err
		}
	}
	var late <-chan time.Time
	if w.atMost > 0 {
		t := time.NewTimer(w.atMost)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.changed:
	case <-late:
	}
	return nil
}

// Evict stops the worker of key, if there is one, lets its requests end, and
// forgets its failures. It waits until the worker is gone or ctx ends. Somebody
// who acquires it meanwhile gets a new one.
func (h *Host) Evict(ctx context.Context, key string) error {
	h.mu.Lock()
	s := h.slots[key]
	if s == nil {
		h.mu.Unlock()
		return nil
	}
	switch s.state {
	case Absent, Failed:
		s.cancelRetry()
		delete(h.slots, key)
		h.mu.Unlock()
		return nil
	case Loading, Ready:
		h.drain(s)
	}
	s.evicted = true
	w := wait{changed: s.changed}
	h.mu.Unlock()
	return w.wait(ctx)
}

// Close stops all workers: requests in flight run on for DrainTimeout at most,
// and until the end of ctx at most; training jobs are stopped at once and can be
// taken up later. It returns when every process is gone. Later calls of Acquire
// and Train get ErrClosed.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	for _, s := range h.slots {
		s.cancelRetry()
		if s.state == Loading || s.state == Ready {
			h.drain(s)
		}
	}
	for t := range h.training {
		t.cancel(ErrClosed)
	}
	h.mu.Unlock()
	stop := context.AfterFunc(ctx, h.killAll)
	defer stop()
	h.running.Wait()
	if first {
		h.close()
	}
	return nil
}

func (h *Host) killAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.slots {
		if s.proc != nil {
			s.proc.Kill(ClassStopped, errors.New("no time left to drain"))
		}
	}
	for t := range h.training {
		if t.proc != nil {
			t.proc.Kill(ClassStopped, errors.New("no time left to stop"))
		}
	}
}
