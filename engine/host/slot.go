package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"athanor/engine"
	"athanor/gpu"
)

// State is where a worker stands.
type State string

// The states; see the drawing in the package comment.
const (
	Absent   State = "absent"
	Loading  State = "loading"
	Ready    State = "ready"
	Draining State = "draining"
	Failed   State = "failed"
)

// slot is everything about one key. Its fields are guarded by Host.mu.
type slot struct {
	spec    Spec
	state   State
	since   time.Time
	changed chan struct{} // closed at the next change of state
	load    *load         // of the current or last start

	proc   process            // in ready and draining
	cancel context.CancelFunc // tells the owner to stop
	wake   chan struct{}      // tells the owner that leases have come to an end

	leases    int
	readyAt   time.Time
	idleSince time.Time
	memory    Memory // last measured

	evicted  bool // forget it when it is gone
	failures int  // in a row
	restarts int  // after failures, ever
	class    Class
	lastErr  error
	tail     []string
	until    time.Time   // in failed
	refused  int         // starts in a row for which there was no room
	retry    *time.Timer // in failed, or absent without room: for a resident worker
}

// load is one start; err is set before done is closed.
type load struct {
	done chan struct{}
	err  error
}

func newSlot(spec Spec, now time.Time) *slot {
	return &slot{spec: spec, state: Absent, since: now, changed: make(chan struct{}), wake: make(chan struct{}, 1)}
}

func (s *slot) cancelRetry() {
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
}

// to changes the state. The caller holds mu, as for all methods up to own.
func (h *Host) to(s *slot, state State) {
	s.state, s.since = state, h.cfg.Now()
	close(s.changed)
	s.changed = make(chan struct{})
}

// start begins a load with an owner of its own.
func (h *Host) start(s *slot, spec Spec) {
	s.cancelRetry()
	if s.state == Failed {
		s.restarts++
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.spec, s.cancel, s.load = spec, cancel, &load{done: make(chan struct{})}
	h.to(s, Loading)
	h.running.Go(func() {
		defer cancel()
		h.own(ctx, s, spec)
	})
}

// drain asks the owner of a live worker to stop it.
func (h *Host) drain(s *slot) {
	h.to(s, Draining)
	s.cancel()
}

// own is the whole life of one worker, on its own goroutine.
func (h *Host) own(ctx context.Context, s *slot, spec Spec) {
	log := h.cfg.Log.With("worker", spec.Key, "model", spec.Name)
	log.Info("worker starts")
	exit := h.live(ctx, s, spec)
	if ctx.Err() != nil && exit.Class != ClassStopped {
		// A worker that is not wanted any more has not failed.
		exit.Class, exit.Err = ClassStopped, errStopped
	}
	next := h.ended(s, exit)
	switch exit.Class {
	case ClassStopped:
		log.Info("worker stopped")
	case ClassNoRoom:
		log.Warn("worker not started", "error", exit.Err, "next", next.Reason)
	default:
		log.Warn("worker failed", "class", string(exit.Class), "error", exit.Err, "next", next.Reason)
	}
}

// live returns when the process is gone and its memory is given back.
func (h *Host) live(ctx context.Context, s *slot, spec Spec) Exit {
	reserved, err := h.admit(ctx, spec)
	if err != nil {
		return Exit{Class: admission(err), Err: err}
	}
	defer reserved.Release()
	began := h.cfg.Now()
	loading, cancel := context.WithTimeout(ctx, h.cfg.LoadTimeout)
	defer cancel()
	proc, exit := h.cfg.launch(loading, spec)
	if proc == nil {
		return exit
	}
	h.cfg.Log.Info("worker ready", "worker", spec.Key, "pid", proc.PID(), "seconds", h.cfg.Now().Sub(began).Seconds())
	h.loaded(s, proc)
	return h.watch(ctx, s, proc)
}

func admission(err error) Class {
	if errors.Is(err, gpu.ErrNoRoom) {
		return ClassNoRoom
	}
	return ClassStart
}

// loaded publishes a process; a stop that came in the meantime wins.
func (h *Host) loaded(s *slot, proc process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.proc, s.readyAt, s.refused = proc, h.cfg.Now(), 0
	s.idleSince = s.readyAt
	if s.state == Loading {
		h.to(s, Ready)
	} else {
		s.load.err = errStopped
	}
	close(s.load.done)
}

// ended files how a worker ended and decides what comes next.
func (h *Host) ended(s *slot, exit Exit) (next Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stable := false
	if s.proc != nil {
		stable = h.cfg.Now().Sub(s.readyAt) >= h.cfg.Policy.Stable
	} else {
		s.load.err = unavailable(exit.Err)
		close(s.load.done)
	}
	s.proc, s.memory = nil, Memory{}
	s.class, s.lastErr, s.tail = exit.Class, exit.Err, exit.Tail
	if exit.Class == ClassStopped || exit.Class == ClassNoRoom {
		h.to(s, Absent)
		if s.evicted {
			delete(h.slots, s.spec.Key)
		} else if exit.Class == ClassNoRoom {
			s.refused++
			next = h.cfg.Policy.Decide(s.refused, ClassNoRoom, h.cfg.Now())
			h.retryLater(s, next)
		}
		return next
	}
	if stable {
		s.failures = 0
	}
	s.failures++
	next = h.cfg.Policy.Decide(s.failures, exit.Class, h.cfg.Now())
	s.until = next.Until
	h.to(s, Failed)
	h.retryLater(s, next)
	return next
}

// retryLater starts a resident worker again by itself. The caller holds mu.
func (h *Host) retryLater(s *slot, next Decision) {
	if s.spec.Resident && next.Restart && !h.closed {
		s.retry = time.AfterFunc(next.Until.Sub(h.cfg.Now()), func() { h.retry(s) })
	}
}

// retry starts a resident worker again unless somebody else did.
func (h *Host) retry(s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && (s.state == Failed || s.state == Absent) && h.slots[s.spec.Key] == s {
		h.start(s, s.spec)
	}
}

// unavailable makes err one of engine.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, engine.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
}

// admit reserves memory, stopping idle workers when that makes enough room.
func (h *Host) admit(ctx context.Context, spec Spec) (*gpu.Reservation, error) {
	if h.cfg.Ledger == nil || spec.MemoryBytes == 0 {
		return nil, nil
	}
	for {
		r, err := h.cfg.Ledger.Reserve(gpu.Entry{Owner: spec.Key, Device: spec.device(), Bytes: spec.MemoryBytes})
		full := new(gpu.NoRoomError)
		if err == nil || !errors.As(err, &full) {
			return r, err
		}
		w, ok := h.makeRoom(spec.device(), full.Wanted-full.Free())
		if !ok {
			return nil, err
		}
		h.cfg.Log.Info("an idle worker makes room", "worker", spec.Key, "device", spec.device(), "bytes", spec.MemoryBytes)
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// makeRoom stops the longest idle worker on a device and returns what to wait
// for, unless stopping all of them would not give need bytes.
func (h *Host) makeRoom(device string, need int64) (wait, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var victim, leaving *slot
	for _, s := range h.slots {
		if s.proc == nil || s.spec.device() != device || s.spec.MemoryBytes == 0 {
			continue
		}
		switch {
		case s.state == Draining:
			leaving = s
		case s.state != Ready || s.leases > 0 || s.spec.Resident:
			continue
		case victim == nil || s.idleSince.Before(victim.idleSince):
			victim = s
		}
		need -= s.spec.MemoryBytes
	}
	if need > 0 {
		return wait{}, false
	}
	if leaving != nil {
		return wait{changed: leaving.changed}, true
	}
	if victim == nil {
		return wait{}, false
	}
	h.drain(victim)
	return wait{changed: victim.changed}, true
}
