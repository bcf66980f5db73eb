package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// State is what the planner knows about one device: facts, a measurement and
// the promises of the Ledger.
type State struct {
	Device   Device
	Used     int64 // measured, by anybody, UnknownBytes when it could not be measured
	Ours     int64 // part of Used that is our own workers'
	Reserved int64 // promised by the Ledger, whether used yet or not
	Cores    int   // promised by the Ledger, of Device.Cores
}

// UnknownBytes stands for a measurement that is missing.
const UnknownBytes = -1

// Free is what a new worker may count on. The part of Used that others hold is
// gone whatever the Ledger says; of our own part the larger of promise and use
// counts, so that a neighbour's memory is never mistaken for a worker's own and
// a promise not used yet stays kept.
func (s State) Free() int64 {
	others := int64(0)
	if s.Used != UnknownBytes {
		others = max(0, s.Used-s.Ours)
	}
	return max(0, s.Device.MemoryBytes-others-max(s.Reserved, s.Ours))
}

// Request asks for a place for one worker.
type Request struct {
	Bytes  int64
	Cores  int    // to itself, 0 for a worker that shares them
	Kind   Kind   // "" takes a GPU where this machine has any, else the processor
	Device string // ID of the only acceptable device, "" for any
}

// Placement is where a worker goes.
type Placement struct {
	Device string
	Bytes  int64
	Reason string // why there, in words
}

// Plan chooses the device that the request fits most tightly, which leaves
// large holes for large models. It never falls back from a GPU to the processor
// by itself: a request that some GPU should serve and none has room for is
// refused, with the reason for each device. Equal choices go by ID. The error is
// *NoCoresError where a device would have to wait for its cores, however little
// memory it has, else *NoRoomError, or it wraps ErrNoDevice.
func Plan(states []State, req Request) (Placement, error) {
	candidates, err := eligible(states, req)
	if err != nil {
		return Placement{}, err
	}
	slices.SortFunc(candidates, func(a, b State) int {
		switch af, bf := a.Free(), b.Free(); {
		case af != bf && af < bf:
			return -1
		case af != bf:
			return 1
		}
		return strings.Compare(a.Device.ID, b.Device.ID)
	})
	var busy error
	for _, s := range candidates {
		if req.Cores > 0 && req.Cores > s.Device.Cores-s.Cores {
			busy = &NoCoresError{Device: s.Device.ID, Wanted: req.Cores, Reserved: s.Cores, Capacity: s.Device.Cores}
			continue
		}
		if s.Free() < req.Bytes {
			continue
		}
		reason := fmt.Sprintf("%s has %s free and %s are needed", s.Device.ID, Size(s.Free()), Size(req.Bytes))
		return Placement{Device: s.Device.ID, Bytes: req.Bytes, Reason: reason}, nil
	}
	if busy != nil {
		return Placement{}, busy
	}
	largest := candidates[len(candidates)-1]
	refused := &NoRoomError{
		Device: largest.Device.ID, Wanted: req.Bytes,
		Capacity: largest.Device.MemoryBytes, Reserved: largest.Device.MemoryBytes - largest.Free(),
	}
	if len(candidates) == 1 {
		return Placement{}, refused
	}
	var each []string
	for _, s := range candidates {
		each = append(each, fmt.Sprintf("%s has %s free", s.Device.ID, Size(s.Free())))
	}
	return Placement{}, fmt.Errorf("%w (%s)", refused, strings.Join(each, ", "))
}

// eligible are the devices that the request names, by kind or by ID.
func eligible(states []State, req Request) ([]State, error) {
	kind := req.Kind
	if kind == "" && req.Device == "" {
		kind = CPU
		if slices.ContainsFunc(states, func(s State) bool { return s.Device.Kind == CUDA }) {
			kind = CUDA
		}
	}
	var out []State
	for _, s := range states {
		if req.Device != "" && s.Device.ID != req.Device {
			continue
		}
		if kind == "" || s.Device.Kind == kind {
			out = append(out, s)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case req.Device != "":
		return nil, fmt.Errorf("%w: %s%s", ErrNoDevice, req.Device, ofKind(req.Kind))
	default:
		return nil, fmt.Errorf("%w: this machine has none%s", ErrNoDevice, ofKind(kind))
	}
}

func ofKind(k Kind) string {
	if k == "" {
		return ""
	}
	return " of kind " + string(k)
}
