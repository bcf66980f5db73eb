package llm

import (
	"sync"

	"athanor/engine"
)

// outbox carries events from the loop to the goroutine of one Generate call.
// It never blocks the loop; it is bounded by the token limit of the request.
type outbox struct {
	ready chan struct{} // has room for one signal

	mu     sync.Mutex // protects fields below
	events []*engine.Event
	done   bool
	err    error
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

func (o *outbox) put(ev *engine.Event) {
	o.mu.Lock()
	o.events = append(o.events, ev)
	o.mu.Unlock()
	o.signal()
}

// finish ends the stream; err is nil after a complete answer. Later calls
// change nothing.
func (o *outbox) finish(err error) {
	o.mu.Lock()
	if !o.done {
		o.done, o.err = true, err
	}
	o.mu.Unlock()
	o.signal()
}

// take empties the box; done reports that nothing more will come.
func (o *outbox) take() (events []*engine.Event, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	events, o.events = o.events, nil
	return events, o.done, o.err
}

func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
