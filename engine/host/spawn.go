package host

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts processes from one operating system thread that it keeps for
// itself. The kernel sends a child its parent-death signal when the thread that
// forked it ends, not when the process does, and the Go runtime ends threads as
// it likes: see prctl(2), PR_SET_PDEATHSIG.
type spawner struct {
	work chan func()
	once sync.Once
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start is cmd.Start on the kept thread.
func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it every child that still lives.
func (s *spawner) close() {
	s.once.Do(func() { close(s.work) })
	<-s.done
}
