package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// maxSocketPath is the longest path of a unix socket: sun_path of unix(7) has
// 108 bytes with its terminator.
const maxSocketPath = 107

// Listen opens a unix socket at path that only its owner may open. A socket
// left there by a dead process is replaced; anything else at path is an error.
// The path may be longer than a socket address holds as long as its last
// element is short. Close removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	var ln net.Listener
	err := withShortPath(path, func(short string) (err error) {
		// The mode of an unbound socket is the mode that bind gives the file:
		// there is no moment at which others could connect.
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var mode error
			err := c.Control(func(fd uintptr) { mode = syscall.Fchmod(int(fd), 0o600) })
			return errors.Join(err, mode)
		}}
		ln, err = lc.Listen(context.Background(), "unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open socket %s: %w", path, err)
	}
	// The listener knows only the short path, which is gone by now.
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	return &listener{Listener: ln, path: path}, nil
}

type listener struct {
	net.Listener
	path string
	once sync.Once
}

// Close stops listening and removes the socket.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { _ = os.Remove(l.path) })
	return err
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	return os.Remove(path)
}

// DialSocket connects to a socket of Listen, long paths included.
func DialSocket(ctx context.Context, path string) (conn net.Conn, err error) {
	err = withShortPath(path, func(short string) (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unix", short)
		return err
	})
	return conn, err
}

// withShortPath calls f with a name of path that fits a socket address. A path
// that is too long is reached through an open descriptor of its directory.
func withShortPath(path string, f func(short string) error) error {
	if len(path) <= maxSocketPath {
		return f(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	if len(short) > maxSocketPath {
		return fmt.Errorf("the name %q is too long for a socket", filepath.Base(path))
	}
	return f(short)
}
