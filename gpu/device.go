package gpu

import (
	"context"
	"errors"
)

// Kind says what runs on a Device.
type Kind string

// The kinds of Device.
const (
	CPU  Kind = "cpu"
	CUDA Kind = "cuda"
)

// HostID is the ID of the processor with its main memory.
const HostID = "cpu"

// Device is something a model can be placed on, with what does not change
// while the machine runs.
type Device struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Kind        Kind   `json:"kind"`
	MemoryBytes int64  `json:"memory_bytes"`

	// Of the processor.
	Cores    int      `json:"cores,omitempty"`    // physical, that this process may use
	Threads  int      `json:"threads,omitempty"`  // logical, that this process may use
	Features []string `json:"features,omitempty"` // instruction sets that matter here, sorted

	// Of a GPU.
	Driver     string `json:"driver,omitempty"`     // version
	Capability string `json:"capability,omitempty"` // CUDA compute capability, e.g. "9.0"
	Parent     string `json:"parent,omitempty"`     // GPU of a MIG instance
}

// Usage is the memory of one Device as measured at one moment, whoever uses it.
type Usage struct {
	Device    string `json:"device"`
	UsedBytes int64  `json:"used_bytes"`
	FreeBytes int64  `json:"free_bytes"`
}

// Inventory finds Devices. Its methods are safe for concurrent use.
type Inventory interface {
	Devices(ctx context.Context) ([]Device, error)
	Usage(ctx context.Context) ([]Usage, error)
}

// All is the Inventory of several together. What some of them found is returned
// even when others failed; the error then joins theirs.
type All []Inventory

// Devices joins the Devices of all.
func (a All) Devices(ctx context.Context) ([]Device, error) {
	return gather(a, func(i Inventory) ([]Device, error) { return i.Devices(ctx) })
}

// Usage joins the Usage of all.
func (a All) Usage(ctx context.Context) ([]Usage, error) {
	return gather(a, func(i Inventory) ([]Usage, error) { return i.Usage(ctx) })
}

func gather[T any](from []Inventory, ask func(Inventory) ([]T, error)) ([]T, error) {
	var all []T
	var failed []error
	for _, i := range from {
		found, err := ask(i)
		all, failed = append(all, found...), append(failed, err)
	}
	return all, errors.Join(failed...)
}
