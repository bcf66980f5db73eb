//go:build !cgo

package nvml

import (
	"context"
	"fmt"

	"athanor/gpu"
)

// Inventory is empty in a build without cgo.
type Inventory struct{}

// Open always fails in a build without cgo.
func Open() (*Inventory, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo", ErrNoLibrary)
}

// Devices finds nothing.
func (*Inventory) Devices(context.Context) ([]gpu.Device, error) { return nil, nil }

// Usage measures nothing.
func (*Inventory) Usage(context.Context) ([]gpu.Usage, error) { return nil, nil }

// Close does nothing.
func (*Inventory) Close() error { return nil }
