package host

import (
	"cmp"
	"slices"
	"time"
)

// Status is a copy of what is known about one worker at one moment.
type Status struct {
	Key      string
	Name     string
	Device   string
	State    State
	Since    time.Time // when it got into State
	PID      int       // 0 when there is no process or it is loading
	InFlight int       // leases held
	Slots    int       // sequences at the same time, 0 when the engine decides
	Restarts int       // starts after a failure, ever
	Failures int       // failures in a row
	Memory   Memory    // last measured
	Reserved int64     // bytes promised to it while it lives

	// Of the last end, "" and nil when it never ended.
	Class     Class
	LastError string
	Tail      []string  // last lines of its log
	Until     time.Time // in state failed: no start before this
}

// Snapshot describes all workers, by key.
func (h *Host) Snapshot() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Status, 0, len(h.slots))
	for _, s := range h.slots {
		st := Status{
			Key: s.spec.Key, Name: s.spec.Name, Device: s.spec.device(), State: s.state, Since: s.since,
			InFlight: s.leases, Slots: s.spec.Slots, Restarts: s.restarts, Failures: s.failures, Memory: s.memory,
			Class: s.class, Tail: slices.Clone(s.tail),
		}
		if s.proc != nil {
			st.PID = s.proc.PID()
		}
		if s.state == Loading || s.state == Ready || s.state == Draining {
			st.Reserved = s.spec.MemoryBytes
		}
		if s.lastErr != nil {
			st.LastError = s.lastErr.Error()
		}
		if s.state == Failed {
			st.Until = s.until
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Key, b.Key) })
	return out
}
