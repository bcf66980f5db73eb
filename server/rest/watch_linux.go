package rest

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher notices that clients went away. It is one goroutine in one epoll
// for all connections, and asks for EPOLLRDHUP only: no byte is read, so it
// works below TLS, and data that waits does not wake it. Without it neither
// fasthttp nor a write would tell before the second write after the end.
type watcher struct {
	epoll, wake int
	done        chan struct{}

	mu    sync.Mutex // guards what follows
	conns map[uint64]*conn
	last  uint64
}

func newWatcher() (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &watcher{epoll: epoll, wake: wake, done: make(chan struct{}), conns: map[uint64]*conn{}}
	go w.loop()
	return w, nil
}

// add watches c until it is closed. A connection without a descriptor (a pipe
// in memory) is left alone. Events carry a number and not the descriptor,
// which the system may have given to another connection by then.
func (w *watcher) add(c *conn) error {
	sc, ok := bottom(c.Conn).(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch connection: %w", err)
	}
	w.mu.Lock()
	w.last++
	c.token = w.last
	w.conns[c.token] = c
	w.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(c.token), Pad: int32(c.token >> 32)}
	ctlErr := net.ErrClosed
	err = raw.Control(func(fd uintptr) { ctlErr = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), &event) })
	if err == nil {
		err = ctlErr
	}
	if err != nil {
		w.remove(c)
		return fmt.Errorf("watch connection: %w", err)
	}
	return nil
}

// remove forgets c; the kernel drops it from the epoll when it is closed.
func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	delete(w.conns, c.token)
	w.mu.Unlock()
}

func (w *watcher) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			token := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			if token == 0 {
				return
			}
			w.mu.Lock()
			c := w.conns[token]
			w.mu.Unlock()
			if c != nil {
				c.hangUp()
			}
		}
	}
}

// close ends the goroutine and waits for it.
func (w *watcher) close() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	_ = unix.Close(w.wake)
	_ = unix.Close(w.epoll)
}
