package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"athanor/engine"
	"athanor/engine/worker"
	"athanor/gpu"
)

// Exit says how a process ended.
type Exit struct {
	Class Class
	Err   error
	Tail  []string // last lines of its log
}

// running is a process of either kind. Its methods are safe for concurrent use.
type running interface {
	PID() int
	Memory() (Memory, error)
	Exited() <-chan struct{} // closed when it is gone and waited for
	Exit() Exit              // valid after Exited
	Terminate()
	Kill(class Class, why error) // the first reason counts
}

// process is a worker that has loaded.
type process interface {
	running
	Generator() engine.Generator
	Health(ctx context.Context) error
}

// trainee is a worker that trains.
type trainee interface {
	running
	Lines() <-chan said // closed after the last one; somebody must read them all
}

// said is a line of a trainee, or why it is none; then it is the last.
type said struct {
	worker.Progress
	err error
}

// launchFunc starts a process and waits until it is ready. When it returns no
// process there is none left, and Exit says why. The end of ctx ends the wait.
type launchFunc func(ctx context.Context, spec Spec) (process, Exit)

func exited(p running) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// launcher starts real processes.
type launcher struct {
	cfg     Config
	spawner *spawner
	cgroups *cgroups // nil when there are none
	count   atomic.Int64
}

func newLauncher(cfg Config) (*launcher, error) {
	if cfg.Exe == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		cfg.Exe = exe
	}
	if cfg.Args == nil {
		cfg.Args = func(Spec) []string { return []string{"worker"} }
	}
	if err := prepareRunDir(cfg.RunDir); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", cfg.RunDir, err)
	}
	l := &launcher{cfg: cfg, spawner: newSpawner()}
	groups, err := findCgroups(cfg.CgroupDir)
	switch {
	case err == nil:
		l.cgroups = groups
	case cfg.CgroupDir != "":
		l.spawner.close()
		return nil, fmt.Errorf("use control group %s: %w", cfg.CgroupDir, err)
	default:
		cfg.Log.Debug("memory limits are checked, not enforced by the kernel", "why", err)
	}
	return l, nil
}

func (l *launcher) close() { l.spawner.close() }

const socketPattern = "w*.sock"

// prepareRunDir makes dir private and removes sockets of a process that died.
func prepareRunDir(dir string) error {
	if dir == "" {
		return errors.New("no folder for sockets was given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, socketPattern))
	if err != nil {
		return err
	}
	for _, name := range old {
		if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSocket != 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// pipes are the three channels between parent and child.
type pipes struct {
	stdin, ready, log    *os.File // the parent's ends
	cStdin, cReady, cLog *os.File // the child's ends
}

func openPipes() (p pipes, err error) {
	pairs := []struct{ r, w **os.File }{{&p.cStdin, &p.stdin}, {&p.ready, &p.cReady}, {&p.log, &p.cLog}}
	for _, pair := range pairs {
		if *pair.r, *pair.w, err = os.Pipe(); err != nil {
			p.closeChild()
			p.closeParent()
			return p, err
		}
	}
	return p, nil
}

func (p pipes) closeChild()  { closeAll(p.cStdin, p.cReady, p.cLog) }
func (p pipes) closeParent() { closeAll(p.stdin, p.ready, p.log) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// launch implements launchFunc.
func (l *launcher) launch(ctx context.Context, spec Spec) (process, Exit) {
	c, err := l.spawn(spec, nil)
	if err != nil {
		return nil, Exit{Class: ClassStart, Err: fmt.Errorf("start worker: %w", err)}
	}
	unhook := context.AfterFunc(ctx, func() {
		c.Kill(ClassStart, fmt.Errorf("killed while loading: %w", context.Cause(ctx)))
	})
	_, err = worker.Launch{Socket: c.socket, DrainTimeout: childDrain, Spec: spec.Spec}.WriteTo(c.pipes.stdin)
	if err == nil {
		err = c.awaitReady()
	}
	if unhook() && err == nil {
		return c, Exit{}
	}
	// The process announced its failure, died, or is being killed. One that
	// died shall be judged by its own end.
	select {
	case <-c.Exited():
	case <-time.After(dyingTime):
		c.Kill(ClassStart, err)
		<-c.Exited()
	}
	exit := c.Exit()
	if errors.As(err, new(*worker.LoadError)) {
		exit.Class, exit.Err = ClassLoad, err
	}
	return nil, exit
}

// dyingTime is how long a process that will not get ready has to end by itself.
const dyingTime = 2 * time.Second

func (c *child) awaitReady() error {
	client, err := worker.AwaitReady(c.pipes.ready, c.socket)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
	return nil
}

// spawn starts a process and the goroutines that live as long as it. lines gets
// what a trainee says; it is nil for a worker that serves.
func (l *launcher) spawn(spec Spec, lines chan said) (*child, error) {
	n := l.count.Add(1)
	p, err := openPipes()
	if err != nil {
		return nil, err
	}
	defer p.closeChild()
	group := l.group(n, spec)
	cmd, err := l.start(spec, p, group)
	if err != nil && group != nil {
		l.cfg.Log.Warn("worker cannot be started in its control group, its memory limit is only checked", "worker", spec.Key, "error", err)
		group.remove()
		group = nil
		cmd, err = l.start(spec, p, nil)
	}
	if err != nil {
		p.closeParent()
		group.remove()
		return nil, err
	}
	score := scoreServing
	if lines != nil {
		score = scoreTraining
	}
	if err := firstVictim(cmd.Process.Pid, score); err != nil {
		l.cfg.Log.Debug("worker keeps its out-of-memory score", "worker", spec.Key, "error", err)
	}
	log := l.cfg.Log.With("worker", spec.Key, "model", spec.Name, "pid", cmd.Process.Pid)
	c := &child{
		cmd: cmd, pipes: p, group: group, limit: spec.MemoryLimit,
		socket: filepath.Join(l.cfg.RunDir, fmt.Sprintf("w%d.sock", n)),
		logs:   &logTail{log: log}, lines: lines, exited: make(chan struct{}),
	}
	go c.wait()
	if lines != nil {
		go c.listen()
	}
	return c, nil
}

func (l *launcher) group(n int64, spec Spec) *cgroup {
	if l.cgroups == nil || spec.MemoryLimit <= 0 {
		return nil
	}
	g, err := l.cgroups.make(fmt.Sprintf("worker-%d-%d", os.Getpid(), n), spec.MemoryLimit)
	if err != nil {
		l.cfg.Log.Warn("worker has no control group, its memory limit is only checked", "worker", spec.Key, "error", err)
	}
	return g
}

func (l *launcher) start(spec Spec, p pipes, group *cgroup) (*exec.Cmd, error) {
	cmd := exec.Command(l.cfg.Exe, l.cfg.Args(spec)...)
	cmd.Env = l.cfg.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.cStdin, p.cLog, p.cLog
	cmd.ExtraFiles = []*os.File{p.cReady}
	// Its own process group keeps a terminal's interrupt away from it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.fd.Fd())
	}
	return cmd, l.spawner.start(cmd)
}

// child is a real worker process.
type child struct {
	cmd    *exec.Cmd
	pipes  pipes
	socket string
	group  *cgroup
	limit  int64
	logs   *logTail
	lines  chan said // nil unless it trains

	mu         sync.Mutex     // guards the fields below
	client     *worker.Client // set by launch before others see the child
	terminated bool
	killed     *Exit // why we killed it

	exited chan struct{}
	exit   Exit // set before exited is closed
}

var _ process = (*child)(nil)

func (c *child) Generator() engine.Generator      { return c.worker() }
func (c *child) PID() int                         { return c.cmd.Process.Pid }
func (c *child) Health(ctx context.Context) error { return c.worker().Health(ctx) }
func (c *child) Memory() (Memory, error)          { return processMemory(c.PID()) }
func (c *child) Exited() <-chan struct{}          { return c.exited }
func (c *child) Exit() Exit                       { return c.exit }

// Terminate asks the process to drain and end.
func (c *child) Terminate() {
	c.mu.Lock()
	c.terminated = true
	c.mu.Unlock()
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone
}

// Kill ends the process now.
func (c *child) Kill(class Class, why error) {
	c.mu.Lock()
	if c.killed == nil {
		c.killed = &Exit{Class: class, Err: why}
	}
	c.mu.Unlock()
	_ = c.cmd.Process.Kill()
}

// logRest is how long the rest of a log may take after its process is gone.
const logRest = time.Second

// wait stays with the process until it is gone and nothing of it is left.
func (c *child) wait() {
	read := make(chan struct{})
	go func() { defer close(read); c.logs.read(c.pipes.log) }()
	err := c.cmd.Wait()
	select {
	case <-read:
	case <-time.After(logRest): // somebody else holds its standard error
		_ = c.pipes.log.SetReadDeadline(time.Now())
		<-read
	}
	c.exit = c.judge(err)
	closeAll(c.pipes.stdin, c.pipes.log)
	if c.lines == nil { // else listen reads on to the end
		closeAll(c.pipes.ready)
	}
	c.group.remove()
	_ = os.Remove(c.socket) // left behind by all but a clean end
	if client := c.worker(); client != nil {
		client.Close()
	}
	close(c.exited)
}

func (c *child) worker() *worker.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// judge finds the cause of an end.
func (c *child) judge(err error) Exit {
	headline, tail := c.logs.tail()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.group.oomKilled():
		return Exit{Class: ClassMemory, Tail: tail, Err: fmt.Errorf("killed by the kernel: it reached its memory limit of %s", gpu.Size(c.limit))}
	case c.killed != nil:
		return Exit{Class: c.killed.Class, Err: c.killed.Err, Tail: tail}
	case c.terminated:
		return Exit{Class: ClassStopped, Err: errStopped, Tail: tail}
	case err == nil:
		return Exit{Class: ClassCrash, Err: errors.New("it ended by itself"), Tail: tail}
	}
	why := err.Error() // "exit status 2" or "signal: killed"
	if st, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() && st.Signal() == syscall.SIGKILL {
		why += " (by the kernel for lack of memory, or by an administrator)"
	}
	if headline != "" {
		why += ": " + headline
	}
	return Exit{Class: ClassCrash, Err: errors.New(why), Tail: tail}
}
