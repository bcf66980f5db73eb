package host

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpawnerOutlivesThreads starts children from threads that end afterwards.
// The kernel would kill a child that was forked there.
func TestSpawnerOutlivesThreads(t *testing.T) {
	sp := newSpawner()
	for i := range 5 {
		cmd := exec.Command("cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := onThreadThatEnds(func() error { return sp.start(cmd) }); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in, "still here")
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "still here\n" {
			t.Errorf("child %d died with the thread that asked for it: %q, %v", i, line, err)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
	}
	sp.close()
	sp.close()
}

// onThreadThatEnds runs f on a thread of its own and returns when that is gone.
func onThreadThatEnds(f func() error) error {
	type result struct {
		tid int
		err error
	}
	done, release := make(chan result), make(chan struct{})
	defer close(release)
	var run func()
	run = func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		if tid := unix.Gettid(); tid == unix.Getpid() {
			go run() // the main thread does not end; keep it busy meanwhile
			<-release
			runtime.UnlockOSThread()
		} else {
			done <- result{tid, f()}
		}
	}
	go run()
	r := <-done
	for unix.Tgkill(unix.Getpid(), r.tid, 0) == nil {
		runtime.Gosched()
	}
	return r.err
}
