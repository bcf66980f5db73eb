package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// errGone is why the context of a request ends when its client went away.
var errGone = errors.New("the client closed the connection")

// listener hands out connections that the server keeps track of.
type listener struct {
	net.Listener
	s *Server
}

// Accept outlasts the passing failures (no descriptors left, a client that
// gave up in the queue) that would otherwise end the server.
func (l *listener) Accept() (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.s.track(c), nil
		}
		if !passing(err) {
			return nil, err
		}
		l.s.log.Warn("accept failed, trying again", "err", err)
		select {
		case <-time.After(wait):
		case <-l.s.draining:
			return nil, net.ErrClosed
		}
	}
}

func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// conn is a client's connection. It cancels the request in progress when the
// client goes away, and closes so that the last response can still be read.
type conn struct {
	net.Conn
	s      *Server
	token  uint64      // of the watcher, 0 when not watched
	used   atomic.Bool // it has carried a request
	linger atomic.Bool // the client may still be sending what nobody will read

	mu     sync.Mutex // guards what follows
	gone   bool
	cancel context.CancelCauseFunc // of the request in progress, nil between requests
}

// begin makes cancel the one that a disconnect calls.
func (c *conn) begin(cancel context.CancelCauseFunc) {
	c.used.Store(true)
	c.mu.Lock()
	c.cancel = cancel
	gone := c.gone
	c.mu.Unlock()
	if gone {
		cancel(errGone)
	}
}

// end is the counterpart of begin.
func (c *conn) end() {
	c.mu.Lock()
	c.cancel = nil
	c.mu.Unlock()
}

// hangUp is called by the watcher.
func (c *conn) hangUp() {
	c.mu.Lock()
	c.gone = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(errGone)
	}
}

// Close closes the connection. With unread data in the kernel a plain close
// sends a reset, which can destroy the response on its way; so after an
// answer to a body that was not read, the sending side is closed first and
// what still comes is thrown away for a moment.
func (c *conn) Close() error {
	if c.linger.Swap(false) {
		c.discard()
	}
	c.s.forget(c)
	return c.Conn.Close()
}

func (c *conn) discard() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	raw := bottom(c.Conn)
	if half, ok := raw.(interface{ CloseWrite() error }); ok && raw != c.Conn {
		_ = half.CloseWrite()
	}
	if raw.SetReadDeadline(deadline(lingering)) == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{raw})
	}
}

// lingering bounds the time that discard takes.
const lingering = 2 * time.Second

// bottom is the connection below TLS.
func bottom(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// deadline is a point of wall time: the network does not follow kit's clock.
func deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// track wraps a new connection and has it watched.
func (s *Server) track(nc net.Conn) *conn {
	c := &conn{Conn: nc, s: s}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	w := s.watcher
	s.mu.Unlock()
	if w != nil {
		if err := w.add(c); err != nil {
			s.log.Warn("cannot watch a connection, its end will be noticed at the next write", "err", err)
		}
	}
	return c
}

// forget ends what track began.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	w := s.watcher
	s.mu.Unlock()
	if w != nil {
		w.remove(c)
	}
}
