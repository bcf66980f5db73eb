package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"athanor/engine"
)

// Lease is the right to use a worker. While it is held the worker is not
// stopped for being idle, and a stop waits for it.
type Lease struct {
	host *Host
	slot *slot
	gen  engine.Generator
	once sync.Once
}

// lend makes a lease of a ready worker. The caller holds mu.
func (h *Host) lend(s *slot) *Lease {
	s.leases++
	return &Lease{host: h, slot: s, gen: &leased{host: h, slot: s, proc: s.proc}}
}

// Generator is the worker's. It stays valid after Release, but then the worker
// may go away at any time.
func (l *Lease) Generator() engine.Generator { return l.gen }

// Release gives the worker back. Later calls do nothing.
func (l *Lease) Release() {
	l.once.Do(func() {
		h, s := l.host, l.slot
		h.mu.Lock()
		defer h.mu.Unlock()
		s.leases--
		if s.leases > 0 {
			return
		}
		s.idleSince = h.cfg.Now()
		select {
		case s.wake <- struct{}{}:
		default: // its owner has not looked since the last time, and will
		}
	})
}

// leased is a worker's Generator that keeps the record of the worker: a token
// clears its failures, and a request that loses its worker says why.
type leased struct {
	host *Host
	slot *slot
	proc process
}

var _ engine.Generator = (*leased)(nil)

func (l *leased) Model() engine.ModelInfo { return l.proc.Generator().Model() }

func (l *leased) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	works := false
	err := l.proc.Generator().Generate(ctx, req, func(ev *engine.Event) error {
		if !works && len(ev.Tokens) > 0 {
			works = true
			l.host.works(l.slot)
		}
		return emit(ev)
	})
	if errors.Is(err, engine.ErrUnavailable) {
		return l.explain(ctx, err)
	}
	return err
}

// works clears the failures of a worker that gave a token: it is not in a crash
// loop, whatever becomes of the request, and its next death is the first one.
func (h *Host) works(s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.failures = 0
}

// explainTime is how long a request waits to learn why it lost its worker.
const explainTime = 500 * time.Millisecond

// explain waits for the end of the process: the connection breaks a moment
// before the kernel reports it. It makes the error name the cause, and a caller
// that tries again at once is not given the dead worker.
func (l *leased) explain(ctx context.Context, err error) error {
	t := time.NewTimer(explainTime)
	defer t.Stop()
	select {
	case <-l.proc.Exited():
		return unavailable(l.proc.Exit().Err)
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return err
	}
}
