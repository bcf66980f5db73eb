package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"athanor/engine"
	"athanor/gpu"
)

// leastTraining is the memory, in bytes, without which a job is not even
// started. Whether it is enough, the job finds out.
const leastTraining = 128 << 20

// margin is the part of the memory that training leaves to the rest of the
// machine: caches, requests, the control plane.
func margin(total int64) int64 { return min(total/4, total/16+512<<20) }

// shareCores gives each training job its share of the processor: without a
// choice of the operator one job has all cores.
func (h *Host) shareCores() {
	if h.cfg.Ledger == nil {
		return
	}
	for _, s := range h.cfg.Ledger.States(nil, nil) {
		if s.Device.ID == gpu.HostID && s.Device.Cores > 0 {
			h.cores = max(1, s.Device.Cores/h.cfg.TrainingJobs)
			h.cfg.Ledger.SetCores(gpu.HostID, max(s.Device.Cores, h.cores*h.cfg.TrainingJobs))
		}
	}
}

// admitTraining reserves memory and cores, stopping idle workers when that makes
// enough room. budget is what is reserved, in bytes.
func (h *Host) admitTraining(ctx context.Context, spec *engine.TrainSpec, cores int) (_ *gpu.Reservation, budget int64, _ error) {
	if h.cfg.Ledger == nil {
		return nil, spec.MemoryBytes, nil
	}
	for {
		states, err := h.states(ctx)
		if err != nil {
			return nil, 0, err
		}
		if budget = spec.MemoryBytes; budget == 0 {
			budget = max(h.budget(states), leastTraining)
		}
		if most := h.cfg.TrainMemory; most > 0 {
			budget = min(budget, most)
		}
		if spec.MemoryBytes == 0 && h.wasTooSmall(spec.Job, budget) {
			if more, err := h.stopIdlest(ctx, spec.Job); !more {
				return nil, 0, cmp.Or(err, busyMemory(budget))
			}
			continue
		}
		place, err := gpu.Plan(states, gpu.Request{Bytes: budget, Cores: cores, Kind: gpu.CPU})
		if err == nil {
			var r *gpu.Reservation
			if r, err = h.cfg.Ledger.Reserve(gpu.Entry{Owner: "training " + spec.Job, Device: place.Device, Bytes: budget, Cores: cores}); err == nil {
				return r, budget, nil
			}
		}
		full := new(gpu.NoRoomError)
		switch {
		case errors.Is(err, gpu.ErrNoCores):
			return nil, 0, &engine.BusyError{Reason: "another training job has the processor"}
		case !errors.As(err, &full):
			return nil, 0, err
		}
		w, ok := h.makeRoom(full.Device, full.Wanted-full.Free())
		if !ok {
			return nil, 0, refuse(states, full)
		}
		h.cfg.Log.Info("an idle worker makes room", "job", spec.Job, "device", full.Device, "bytes", budget)
		if err := w.wait(ctx); err != nil {
			return nil, 0, err
		}
	}
}

// states describes the devices without the margin.
func (h *Host) states(ctx context.Context) ([]gpu.State, error) {
	var used []gpu.Usage
	if h.cfg.Inventory != nil {
		var err error
		if used, err = h.cfg.Inventory.Usage(ctx); err != nil {
			// Devices that do not answer count by their promises.
			h.cfg.Log.Warn("not every device can be measured", "error", err)
		}
	}
	ours := map[string]int64{}
	h.mu.Lock()
	for _, s := range h.slots {
		ours[s.spec.device()] += s.memory.Own
	}
	for t := range h.training {
		ours[gpu.HostID] += t.memory.Own
	}
	h.mu.Unlock()
	states := h.cfg.Ledger.States(used, ours)
	for i := range states {
		states[i].Device.MemoryBytes -= margin(states[i].Device.MemoryBytes)
	}
	return states, ctx.Err()
}

// budget is a fair share of the free memory, in bytes: that of all jobs that may
// still be started.
func (h *Host) budget(states []gpu.State) int64 {
	h.mu.Lock()
	others := 0
	for t := range h.training {
		if t.reserved != nil {
			others++
		}
	}
	h.mu.Unlock()
	for _, s := range states {
		if s.Device.ID == gpu.HostID {
			return s.Free() / int64(max(1, h.cfg.TrainingJobs-others))
		}
	}
	return 0
}

// refuse says whether a job that finds no room has to wait, or will never fit.
func refuse(states []gpu.State, full *gpu.NoRoomError) error {
	for _, s := range states {
		if s.Device.ID == full.Device && s.Device.MemoryBytes < full.Wanted {
			return fmt.Errorf("%w: %s are needed, this machine has %s for training", engine.ErrNoMemory, gpu.Size(full.Wanted), gpu.Size(s.Device.MemoryBytes))
		}
	}
	return &engine.BusyError{Reason: fmt.Sprintf("it needs %s of memory, and %s are free beside the models in use", gpu.Size(full.Wanted), gpu.Size(full.Free()))}
}

func busyMemory(budget int64) error {
	return &engine.BusyError{Reason: fmt.Sprintf("it needs more than the %s of memory that are free beside the models in use", gpu.Size(budget))}
}

// stopIdlest stops the longest idle worker for a job; more is false when there is
// none, or ctx ended.
func (h *Host) stopIdlest(ctx context.Context, job string) (more bool, err error) {
	w, ok := h.makeRoom(gpu.HostID, 1)
	if !ok {
		return false, nil
	}
	h.cfg.Log.Info("an idle worker makes room", "job", job, "device", gpu.HostID)
	err = w.wait(ctx)
	return err == nil, err
}

// maxTooSmall bounds what is remembered about jobs that did not fit.
const maxTooSmall = 1000

// wasTooSmall reports whether a job is known not to fit into budget bytes, so
// that it does not tokenize its data again and again while it waits.
func (h *Host) wasTooSmall(job string, budget int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.tooSmall[job]
	if ok && budget > withTolerance(known) {
		delete(h.tooSmall, job)
		return false
	}
	return ok
}

// withTolerance is the least that counts as more than bytes: measured memory is
// never twice the same.
func withTolerance(bytes int64) int64 { return bytes + bytes/10 }

// moreRoom makes more room than budget, in which a job did not fit: nil means
// that it should be tried again. Otherwise the job has to wait, or the error is
// why, in the job's own words: that it does not fit, or has to wait.
func (h *Host) moreRoom(ctx context.Context, spec *engine.TrainSpec, budget int64, why error) error {
	if h.cfg.TrainMemory > 0 && budget >= h.cfg.TrainMemory {
		return why
	}
	for {
		more, err := h.stopIdlest(ctx, spec.Job)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	states, err := h.states(ctx)
	if err != nil {
		return err
	}
	if h.budget(states) > withTolerance(budget) {
		return nil
	}
	if h.cfg.Ledger.Reserved(gpu.HostID) <= budget/10 {
		return why // with all of that it would not fit either
	}
	h.mu.Lock()
	if len(h.tooSmall) >= maxTooSmall {
		clear(h.tooSmall)
	}
	h.tooSmall[spec.Job] = budget
	h.mu.Unlock()
	return busyMemory(budget)
}
