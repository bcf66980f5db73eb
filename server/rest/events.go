package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"athanor/server/api"
)

// maxPending is how many bytes of events may wait for the connection before
// Send waits too.
const maxPending = 64 << 10

// Events is the writing end of a stream of server-sent events. The operation
// runs on a goroutine of its own and sends; the connection's goroutine reads
// and writes out everything that is there in one go, so that events that come
// faster than the network are sent together.
type Events struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	conn   *conn
	write  time.Duration // a client that takes no bytes for so long is dropped

	opened chan struct{}    // closed at the first event or at the end, whichever is first
	done   chan struct{}    // closed when the operation has returned
	ready  chan struct{}    // something to read, one slot
	space  chan struct{}    // room to write, one slot
	closed func(*api.Error) // told when all is over

	mu   sync.Mutex // guards what follows
	buf  bytes.Buffer
	sent bool // the response is a stream: there is no way back
	over bool // nothing will be added
	resp any  // what the operation returned
	err  *api.Error
	out  int64 // bytes taken by the connection
}

func newEvents(ctx context.Context, cancel context.CancelCauseFunc) *Events {
	return &Events{
		ctx: ctx, cancel: cancel,
		opened: make(chan struct{}), done: make(chan struct{}),
		ready: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
}

// Send writes v as one event, data: <json>. The first one commits the response
// as 200 text/event-stream. Send waits while the client is slow, and returns
// an error when it is gone, when the server is shutting down or when v cannot
// be encoded. One goroutine at a time.
func (e *Events) Send(v any) error {
	for {
		e.mu.Lock()
		if err := e.stopped(); err != nil {
			e.mu.Unlock()
			return err
		}
		if e.buf.Len() < maxPending {
			break
		}
		e.mu.Unlock()
		select {
		case <-e.space:
		case <-e.ctx.Done():
		}
	}
	err := e.add(v)
	first := err == nil && !e.sent
	e.sent = e.sent || first
	e.mu.Unlock()
	if first {
		close(e.opened)
	}
	signal(e.ready)
	return err
}

// stopped says why nothing can be sent any more; mu is held.
func (e *Events) stopped() error {
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	if e.over {
		return errors.New("event after the end of the stream")
	}
	return nil
}

// add appends one event or nothing; mu is held, so a value whose own method
// panics must not get past here.
func (e *Events) add(v any) (err error) {
	before := e.buf.Len()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("encode an event: panic: %v", p)
		}
		if err != nil {
			e.buf.Truncate(before)
		}
	}()
	e.buf.WriteString("data: ")
	if err := json.MarshalWrite(&e.buf, v, json.Deterministic(true)); err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	e.buf.WriteString("\n\n")
	return nil
}

// run calls the operation and ends the stream with what it returns.
func (e *Events) run(op func() (any, *api.Error)) {
	defer close(e.done)
	resp, failure := op()
	e.mu.Lock()
	open := !e.sent
	if e.sent = e.sent || resp == nil && failure == nil; e.sent && !e.over {
		if resp != nil && failure == nil {
			if err := e.add(resp); err != nil {
				failure = api.Internal(err)
			}
		}
		if failure != nil {
			_ = e.add(errorBody{failure})
		} else {
			e.buf.WriteString("data: [DONE]\n\n")
		}
	}
	e.resp, e.err, e.over = resp, failure, true
	e.mu.Unlock()
	if open {
		close(e.opened)
	}
	signal(e.ready)
}

// abort ends the stream from outside with an error event. The operation sees
// its context end and its answer, if it still comes, is dropped.
func (e *Events) abort(cause *api.Error) {
	e.mu.Lock()
	if e.sent && !e.over {
		_ = e.add(errorBody{cause})
		e.err, e.over = cause, true
	}
	e.mu.Unlock()
	e.cancel(cause)
	signal(e.ready)
}

// Read is for the connection: it waits for events and takes what there is.
func (e *Events) Read(p []byte) (int, error) {
	for {
		ended := e.ctx.Err() != nil
		e.mu.Lock()
		n, _ := e.buf.Read(p)
		e.out += int64(n)
		over := e.over
		e.mu.Unlock()
		switch {
		case n > 0:
			signal(e.space)
			if err := e.conn.SetWriteDeadline(deadline(e.write)); err != nil {
				return 0, err
			}
			return n, nil
		case over:
			return 0, io.EOF
		case ended:
			return 0, context.Cause(e.ctx)
		}
		select {
		case <-e.ready:
		case <-e.ctx.Done():
		}
	}
}

// Close is called when the last byte is written or could not be. It releases
// the operation and waits for it.
func (e *Events) Close() error {
	e.cancel(errGone) // whatever else may have been the cause comes first
	<-e.done
	e.closed(e.err)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
