package gpu_test

import (
	"errors"
	"strings"
	"testing"

	"athanor/gpu"
)

func TestPlan(t *testing.T) {
	state := func(id string, kind gpu.Kind, total, used, ours, reserved int64) gpu.State {
		if used > 0 {
			used *= gib
		}
		return gpu.State{Device: gpu.Device{ID: id, Kind: kind, MemoryBytes: total * gib}, Used: used, Ours: ours * gib, Reserved: reserved * gib}
	}
	cpu := state("cpu", gpu.CPU, 64, 4, 0, 0)
	training := cpu
	training.Device.Cores, training.Cores = 4, 3
	big := state("GPU-big", gpu.CUDA, 80, 0, 0, 0)
	small := state("GPU-small", gpu.CUDA, 24, 0, 0, 0)
	tests := []struct {
		name   string
		states []gpu.State
		req    gpu.Request
		want   string // device
		err    error
		text   string // in the reason or error
	}{
		{"processor only", []gpu.State{cpu}, gpu.Request{Bytes: 8 * gib}, "cpu", nil, "cpu has 60.0 GiB free"},
		{"a GPU goes first", []gpu.State{cpu, big}, gpu.Request{Bytes: 8 * gib}, "GPU-big", nil, ""},
		{"the tightest fit", []gpu.State{cpu, big, small}, gpu.Request{Bytes: 8 * gib}, "GPU-small", nil, ""},
		{"what does not fit the small one", []gpu.State{small, big}, gpu.Request{Bytes: 30 * gib}, "GPU-big", nil, ""},
		{"no silent fall back to the processor", []gpu.State{cpu, small}, gpu.Request{Bytes: 30 * gib}, "", gpu.ErrNoRoom, "GPU-small has 24.0 GiB free"},
		{"the processor when it is asked for", []gpu.State{cpu, small}, gpu.Request{Bytes: 30 * gib, Kind: gpu.CPU}, "cpu", nil, ""},
		{"all refusals are listed", []gpu.State{small, big}, gpu.Request{Bytes: 100 * gib}, "", gpu.ErrNoRoom, "(GPU-small has 24.0 GiB free, GPU-big has 80.0 GiB free)"},
		{"a named device", []gpu.State{cpu, small, big}, gpu.Request{Bytes: gib, Device: "GPU-big"}, "GPU-big", nil, ""},
		{"a named device without room", []gpu.State{big, small}, gpu.Request{Bytes: 30 * gib, Device: "GPU-small"}, "", gpu.ErrNoRoom, "30.0 GiB are needed"},
		{"an unknown device", []gpu.State{cpu}, gpu.Request{Device: "GPU-9"}, "", gpu.ErrNoDevice, "GPU-9"},
		{"a named device of the wrong kind", []gpu.State{cpu, big}, gpu.Request{Device: "GPU-big", Kind: gpu.CPU}, "", gpu.ErrNoDevice, "of kind cpu"},
		{"a GPU where there is none", []gpu.State{cpu}, gpu.Request{Kind: gpu.CUDA}, "", gpu.ErrNoDevice, "this machine has none of kind cuda"},
		{"nothing at all", nil, gpu.Request{}, "", gpu.ErrNoDevice, ""},
		{"equal devices go by ID", []gpu.State{state("b", gpu.CUDA, 8, 0, 0, 0), state("a", gpu.CUDA, 8, 0, 0, 0)}, gpu.Request{Bytes: gib}, "a", nil, ""},
		{"a neighbour's memory is gone", []gpu.State{state("a", gpu.CUDA, 24, 20, 0, 0)}, gpu.Request{Bytes: 5 * gib}, "", gpu.ErrNoRoom, "4.0 GiB free"},
		{"our own use is not counted twice", []gpu.State{state("a", gpu.CUDA, 24, 10, 10, 10)}, gpu.Request{Bytes: 14 * gib}, "a", nil, "14.0 GiB free"},
		{"a promise not used yet is kept", []gpu.State{state("a", gpu.CUDA, 24, 2, 2, 20)}, gpu.Request{Bytes: 5 * gib}, "", gpu.ErrNoRoom, "4.0 GiB free"},
		{"use beyond the promise counts", []gpu.State{state("a", gpu.CUDA, 24, 21, 20, 10)}, gpu.Request{Bytes: 4 * gib}, "", gpu.ErrNoRoom, "3.0 GiB free"},
		{"without a measurement promises count", []gpu.State{state("a", gpu.CUDA, 24, gpu.UnknownBytes, 0, 10)}, gpu.Request{Bytes: 14 * gib}, "a", nil, ""},
		{"a core is left", []gpu.State{training}, gpu.Request{Bytes: gib, Cores: 1}, "cpu", nil, ""},
		{"the cores are taken", []gpu.State{training}, gpu.Request{Bytes: gib, Cores: 2}, "", gpu.ErrNoCores, "cpu has 1 free of 4, 2 are needed"},
		{"a worker that shares the cores", []gpu.State{training}, gpu.Request{Bytes: gib}, "cpu", nil, ""},
		{"neither memory nor cores", []gpu.State{training}, gpu.Request{Bytes: 100 * gib, Cores: 2}, "", gpu.ErrNoCores, ""},
		{"more in use than there is", []gpu.State{state("a", gpu.CUDA, 24, 30, 0, 0)}, gpu.Request{Bytes: 1}, "", gpu.ErrNoRoom, "0 B free"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := gpu.Plan(tt.states, tt.req)
			text := got.Reason
			if err != nil {
				text = err.Error()
			}
			if got.Device != tt.want || !errors.Is(err, tt.err) || !strings.Contains(text, tt.text) {
				t.Errorf("got %+v, %v; want %q, %v with %q", got, err, tt.want, tt.err, tt.text)
			}
		})
	}
}
