//go:build !linux

package rest

// watcher does nothing where there is no epoll: a client's end is noticed
// when a write to it fails.
type watcher struct{}

func newWatcher() (*watcher, error) { return nil, nil }
func (*watcher) add(*conn) error    { return nil }
func (*watcher) remove(*conn)       {}
func (*watcher) close()             {}
