package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroups is a directory of control groups, version 2, in which this process
// may make one for each worker, so that the kernel keeps the memory limit.
type cgroups struct{ dir string }

const (
	cgroupMount = "/sys/fs/cgroup"
	// delegated is how systemd marks a group that it gave away (since 251).
	delegated = "user.delegate"
)

// findCgroups uses dir, or looks for a delegated group when dir is "": the
// group of this process or the one above it. A group that was not given away is
// never touched, whatever the permissions say.
func findCgroups(dir string) (*cgroups, error) {
	if dir != "" {
		return usableCgroup(dir)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		own = filepath.Join(cgroupMount, filepath.Clean("/"+own))
		for _, dir := range []string{own, filepath.Dir(own)} {
			var mark [1]byte
			if n, err := unix.Getxattr(dir, delegated, mark[:]); err == nil && n == 1 && mark[0] == '1' {
				if c, err := usableCgroup(dir); err == nil {
					return c, nil
				}
			}
		}
	}
	return nil, errors.New("no control group was delegated to this process")
}

// usableCgroup checks that groups below dir can have memory limits.
func usableCgroup(dir string) (*cgroups, error) {
	control := filepath.Join(dir, "cgroup.subtree_control")
	on, err := os.ReadFile(control)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(on)) {
		if name == "memory" {
			return &cgroups{dir: dir}, unix.Access(dir, unix.W_OK)
		}
	}
	// Fails when processes live in dir itself: a group has processes or limits
	// for groups below, not both.
	if err := os.WriteFile(control, []byte("+memory"), 0o644); err != nil {
		return nil, err
	}
	return &cgroups{dir: dir}, nil
}

// cgroup is the group of one worker; nil stands for none.
type cgroup struct {
	path string
	fd   *os.File
}

// make makes a group with a memory limit. Swap is off: a worker that swaps
// answers nobody in time.
func (c *cgroups) make(name string, limit int64) (*cgroup, error) {
	path := filepath.Join(c.dir, name)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	g := &cgroup{path: path}
	if err := os.WriteFile(filepath.Join(path, "memory.max"), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		g.remove()
		return nil, fmt.Errorf("limit memory: %w", err)
	}
	_ = os.WriteFile(filepath.Join(path, "memory.swap.max"), []byte("0"), 0o644) // absent without swap accounting
	fd, err := os.Open(path)
	if err != nil {
		g.remove()
		return nil, err
	}
	g.fd = fd
	return g, nil
}

// oomKilled reports whether the kernel killed the worker for its memory.
func (g *cgroup) oomKilled() bool {
	if g == nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(g.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// remove removes the group once its process is gone.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	if g.fd != nil {
		_ = g.fd.Close()
	}
	_ = os.Remove(g.path)
}
