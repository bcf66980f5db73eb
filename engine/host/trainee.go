package host

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"athanor/engine"
	"athanor/engine/worker"
)

// launchTrainFunc starts a process that trains; spec names it and has its limits.
type launchTrainFunc func(spec Spec, train *engine.TrainSpec) (trainee, error)

// trainNice is how far training stands back behind serving: where both want a
// core the kernel gives a thread that is 10 steps nicer about a tenth of the time,
// and cores that nobody else wants are its own as always. See sched(7).
const trainNice = 10

// launchTrain implements launchTrainFunc.
func (l *launcher) launchTrain(spec Spec, train *engine.TrainSpec) (trainee, error) {
	c, err := l.spawn(spec, make(chan said))
	if err != nil {
		return nil, err
	}
	if err := standBack(c.PID()); err != nil {
		l.cfg.Log.Warn("training runs at the priority of serving", "worker", spec.Key, "error", err)
	}
	_ = c.pipes.stdin.SetWriteDeadline(time.Now().Add(l.cfg.TrainSilence))
	if _, err := (worker.Launch{Train: train}).WriteTo(c.pipes.stdin); err != nil {
		// A process that died at once shall be judged by its own end.
		await(c, dyingTime, Exit{Class: ClassStart, Err: fmt.Errorf("it does not listen: %w", err)})
		return nil, c.Exit().Err
	}
	return c, nil
}

// standBack makes a child nicer than this process.
func standBack(pid int) error {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	nice := 20 - own // the system call cannot return what is negative
	// The whole process group: nice belongs to threads, and some run already.
	// Those that they start inherit it.
	return syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice+trainNice, 19))
}

// Lines implements trainee.
func (c *child) Lines() <-chan said { return c.lines }

// listen reads what a trainee says to its end.
func (c *child) listen() {
	defer close(c.lines)
	defer c.pipes.ready.Close()
	in := worker.NewProgressReader(c.pipes.ready)
	for {
		p, err := in.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		c.lines <- said{Progress: p, err: err}
		if err != nil {
			return
		}
	}
}

// await returns when t is gone and what it still said is thrown away. A process
// that is not gone after grace is killed for why.
func await(t trainee, grace time.Duration, why Exit) {
	late := time.NewTimer(grace)
	defer late.Stop()
	for lines := t.Lines(); ; {
		select {
		case _, more := <-lines:
			if !more {
				lines = nil
			}
		case <-late.C:
			t.Kill(why.Class, why.Err)
		case <-t.Exited():
			for range t.Lines() { // what was on the way
			}
			return
		}
	}
}
