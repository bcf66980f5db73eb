package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"athanor/gpu"
)

const (
	healthMisses = 3                      // in a row mean hung
	memoryEvery  = 250 * time.Millisecond // between looks at a worker's memory
	// stopGrace is what a worker gets between SIGTERM and SIGKILL. Its requests
	// have had DrainTimeout before; childDrain of it is theirs once more.
	stopGrace  = 5 * time.Second
	childDrain = 2 * time.Second
)

// watch stays with a ready worker until its process is gone.
func (h *Host) watch(ctx context.Context, s *slot, proc process) Exit {
	watching, stop := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	watchers.Go(func() { h.watchHealth(watching, s, proc) })
	watchers.Go(func() { watchMemory(watching, proc, func(m Memory) int64 { return h.measured(s, m) }) })
	defer watchers.Wait()
	defer stop()
	for {
		idle, cancel := h.idleTimer(s)
		select {
		case <-proc.Exited():
			cancel()
			return proc.Exit()
		case <-ctx.Done():
			cancel()
			return h.stop(s, proc)
		case <-s.wake:
		case <-idle:
			h.stopIfIdle(s)
		}
		cancel()
	}
}

// idleTimer fires when s has been idle for KeepAlive, or never.
func (h *Host) idleTimer(s *slot) (<-chan time.Time, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cfg.KeepAlive <= 0 || s.spec.Resident || s.leases > 0 {
		return nil, func() {}
	}
	t := time.NewTimer(s.idleSince.Add(h.cfg.KeepAlive).Sub(h.cfg.Now()))
	return t.C, func() { t.Stop() }
}

func (h *Host) stopIfIdle(s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state == Ready && s.leases == 0 && h.cfg.Now().Sub(s.idleSince) >= h.cfg.KeepAlive {
		h.drain(s)
	}
}

// stop lets leases end, then the process: by SIGTERM, by SIGKILL when that
// does not help.
func (h *Host) stop(s *slot, proc process) Exit {
	deadline := time.NewTimer(h.cfg.DrainTimeout)
	defer deadline.Stop()
	for busy := h.leases(s) > 0; busy; busy = busy && h.leases(s) > 0 {
		select {
		case <-s.wake:
		case <-deadline.C:
			busy = false
		case <-proc.Exited():
			return proc.Exit()
		}
	}
	proc.Terminate()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-proc.Exited():
	case <-grace.C:
		proc.Kill(ClassStopped, fmt.Errorf("it did not end within %v after SIGTERM", stopGrace))
		<-proc.Exited()
	}
	return proc.Exit()
}

func (h *Host) leases(s *slot) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.leases
}

// watchHealth kills a worker that does not answer.
func (h *Host) watchHealth(ctx context.Context, s *slot, proc process) {
	tick := time.NewTicker(h.cfg.HealthEvery)
	defer tick.Stop()
	misses := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, h.cfg.HealthTimeout)
		err := proc.Health(asking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			misses = 0
			continue
		}
		misses++
		h.cfg.Log.Warn("worker does not answer", "worker", s.spec.Key, "misses", misses, "error", err)
		if misses >= healthMisses {
			proc.Kill(ClassHung, fmt.Errorf("killed: it did not answer %d times in a row", misses))
			return
		}
	}
}

// watchMemory reports the measured memory, which gives the limit, and kills a
// process that has more. 0 is no limit.
func watchMemory(ctx context.Context, proc running, measured func(Memory) (limit int64)) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		if m, err := proc.Memory(); err == nil {
			limit := measured(m)
			if limit > 0 && m.Own > limit {
				proc.Kill(ClassMemory, fmt.Errorf("killed: it has %s of memory, its limit is %s", gpu.Size(m.Own), gpu.Size(limit)))
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *Host) measured(s *slot, m Memory) (limit int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.memory = m
	return s.spec.MemoryLimit
}
