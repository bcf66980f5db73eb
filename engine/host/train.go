package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/worker"
	"athanor/gpu"
)

var _ engine.Trainer = (*Host)(nil)

// training is one job. Its fields are guarded by Host.mu.
type training struct {
	job    string
	since  time.Time
	cancel context.CancelCauseFunc

	proc     trainee // nil while it waits for room
	reserved *gpu.Reservation
	cores    int
	limit    int64
	memory   Memory // last measured
}

// TrainStatus is a copy of what is known about one training job at one moment.
type TrainStatus struct {
	Job      string
	Since    time.Time
	PID      int // 0 while it waits for room
	Cores    int
	Memory   Memory // last measured
	Reserved int64  // bytes promised to it
}

// Training describes the jobs that were given to Train, in no order.
func (h *Host) Training() []TrainStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []TrainStatus
	for t := range h.training {
		s := TrainStatus{Job: t.job, Since: t.since, Cores: t.cores, Memory: t.memory, Reserved: t.reserved.Bytes()}
		if t.proc != nil {
			s.PID = t.proc.PID()
		}
		out = append(out, s)
	}
	return out
}

// Train implements engine.Trainer in a process of its own, on memory and cores
// that the ledger gave it. Idle workers are stopped to make room; when that is
// not enough the job is refused with *engine.BusyError and holds nothing, so it
// never keeps a worker waiting that it waits for. A process that dies, says
// nothing for TrainSilence, breaks the protocol or takes too much memory gives an
// error that wraps engine.ErrUnavailable; a failure inside it *worker.RemoteError.
func (h *Host) Train(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	if err := trainable(spec.Device); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &training{job: spec.Job, since: h.cfg.Now(), cancel: cancel}
	if !h.enlist(t) {
		return nil, ErrClosed
	}
	defer h.dismiss(t)
	for {
		result, budget, err := h.attempt(running, t, spec, emit)
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case running.Err() != nil:
			return nil, context.Cause(running)
		case budget == 0 || spec.MemoryBytes > 0 || !errors.Is(err, engine.ErrNoMemory) && !errors.As(err, new(*engine.BusyError)):
			return nil, err
		}
		// It knows now that it needs more than it got.
		if err := h.moreRoom(running, spec, budget, err); err != nil {
			return nil, err
		}
	}
}

// trainable refuses devices that the engine cannot train on.
func trainable(device string) error {
	if device == "" || device == gpu.HostID {
		return nil
	}
	return &engine.RequestError{Param: "device", Message: fmt.Sprintf(
		"training runs on the processor (device %q) only: the engine has no CUDA provider, so it cannot run on %q", gpu.HostID, device)}
}

func (h *Host) enlist(t *training) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running.Add(1)
	h.training[t] = struct{}{}
	return true
}

func (h *Host) dismiss(t *training) {
	h.mu.Lock()
	delete(h.training, t)
	h.mu.Unlock()
	h.running.Done()
}

// attempt runs a job once. It returns when the process is gone and its memory is
// given back. budget is what the job might use, in bytes, 0 when it was not
// started.
func (h *Host) attempt(ctx context.Context, t *training, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (_ *engine.TrainResult, budget int64, _ error) {
	own := *spec
	cores := h.cores
	if own.Threads > 0 && cores > 0 {
		cores = min(cores, own.Threads)
	} else if own.Threads == 0 {
		own.Threads = cores
	}
	reserved, budget, err := h.admitTraining(ctx, spec, cores)
	if err != nil {
		return nil, 0, err
	}
	defer reserved.Release()
	own.MemoryBytes = budget
	limit := trainLimit(budget, h.cfg.TrainMemory)
	log := h.cfg.Log.With("job", spec.Job, "model", spec.ModelName)
	proc, err := h.cfg.launchTrain(Spec{Key: "training " + spec.Job, Spec: worker.Spec{Name: spec.ModelName}, MemoryLimit: limit}, &own)
	if err != nil {
		return nil, budget, unavailable(fmt.Errorf("start training: %w", err))
	}
	log.Info("training starts", "pid", proc.PID(), "memory", gpu.Size(budget), "cores", cores)
	h.hold(t, proc, reserved, cores, limit)
	defer h.hold(t, nil, nil, 0, 0)

	watching, stop := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { watchMemory(watching, proc, func(m Memory) int64 { return h.trains(t, m) }) })
	result, err := h.converse(ctx, proc, func(ev *engine.TrainEvent) error {
		if ev.Plan != nil && ev.Plan.MemoryBytes > 0 {
			reserved.Shrink(withSlack(ev.Plan.MemoryBytes))
		}
		return emit(ev)
	})
	stop()
	watcher.Wait()
	switch {
	case err == nil:
		log.Info("training is done")
	case ctx.Err() != nil:
		log.Info("training stopped")
	default:
		log.Warn("training failed", "error", err)
	}
	return result, budget, err
}

// withSlack is an estimate of memory with room for its error.
func withSlack(bytes int64) int64 { return bytes + bytes/4 }

// trainLimit is the memory above which a job is killed: its estimate may be
// wrong by a quarter, but nothing is above the configured limit. 0 is none.
func trainLimit(budget, most int64) int64 {
	limit := withSlack(budget)
	if most > 0 && (limit == 0 || limit > most) {
		return most
	}
	return limit
}

// hold notes what a job has.
func (h *Host) hold(t *training, proc trainee, reserved *gpu.Reservation, cores int, limit int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.proc, t.reserved, t.cores, t.limit, t.memory = proc, reserved, cores, limit, Memory{}
}

// trains files a measurement and returns the limit.
func (h *Host) trains(t *training, m Memory) (limit int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.memory = m
	return t.limit
}

// converse hands out what a job says until it has said how it ended. The process
// is gone when it returns.
func (h *Host) converse(ctx context.Context, proc trainee, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	silence := time.NewTimer(h.cfg.TrainSilence)
	defer silence.Stop()
	for {
		// The time that emit takes is not the job's silence.
		silence.Reset(h.cfg.TrainSilence)
		select {
		case <-ctx.Done():
			h.stopTraining(proc)
			return nil, ctx.Err()
		case <-silence.C:
			return nil, lost(proc, 0, Exit{Class: ClassHung, Err: fmt.Errorf("killed: it gave no sign of life for %v", h.cfg.TrainSilence)})
		case line, more := <-proc.Lines():
			switch {
			case !more:
				return nil, lost(proc, dyingTime, Exit{Class: ClassCrash, Err: errors.New("killed: it stopped reporting")})
			case line.err != nil:
				return nil, lost(proc, 0, Exit{Class: ClassGarbage, Err: fmt.Errorf("killed: it does not keep the protocol: %w", line.err)})
			case line.Event != nil:
				if err := emit(line.Event); err != nil {
					h.stopTraining(proc)
					return nil, err
				}
			case line.Result != nil || line.Error != nil:
				await(proc, stopGrace, Exit{Class: ClassStopped, Err: fmt.Errorf("it did not end within %v after its last word", stopGrace)})
				return line.Result, line.Err()
			}
		}
	}
}

// stopTraining ends a job that is not wanted any more.
func (h *Host) stopTraining(proc trainee) {
	proc.Terminate()
	await(proc, h.cfg.TrainStop, Exit{Class: ClassStopped, Err: fmt.Errorf("it did not end within %v after SIGTERM", h.cfg.TrainStop)})
}

// lost is the error of a job whose process died, or is killed for why after
// grace.
func lost(proc trainee, grace time.Duration, why Exit) error {
	if grace == 0 {
		proc.Kill(why.Class, why.Err)
	}
	await(proc, max(grace, dyingTime), why)
	return unavailable(proc.Exit().Err)
}
