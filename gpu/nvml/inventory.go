//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"athanor/gpu"
)

// Inventory lists the GPUs and MIG instances of this machine. Safe for
// concurrent use. A device that cannot be read, for example because it fell off
// the bus, is left out and named in the error; the others are still returned.
type Inventory struct {
	mu     sync.Mutex // guards the fields below and serialises calls
	lib    nv.Interface
	mig    bool // the library has the functions of MIG
	closed bool
	driver string
}

var _ gpu.Inventory = (*Inventory)(nil)

// Open loads the driver's library. Without one the error wraps ErrNoLibrary.
func Open() (*Inventory, error) { return open(nv.New()) }

// migFunctions came with driver 450; older libraries lack them.
var migFunctions = []string{
	"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
}

func open(lib nv.Interface) (*Inventory, error) {
	switch ret := lib.Init(); ret {
	case nv.SUCCESS:
	case nv.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w (libnvidia-ml.so.1)", ErrNoLibrary)
	case nv.ERROR_DRIVER_NOT_LOADED:
		return nil, errors.New("the NVIDIA library is installed but its kernel driver is not loaded")
	case nv.ERROR_LIB_RM_VERSION_MISMATCH:
		return nil, errors.New("the NVIDIA library and kernel driver have different versions; a restart of the machine is due after a driver update")
	default:
		return nil, fmt.Errorf("start the NVIDIA library: %w", failure(ret))
	}
	inv := &Inventory{lib: lib, mig: true}
	for _, name := range migFunctions {
		if lib.Extensions().LookupSymbol(name) != nil {
			inv.mig = false
		}
	}
	if version, ret := lib.SystemGetDriverVersion(); ret == nv.SUCCESS {
		inv.driver = version
	}
	return inv, nil
}

// Close unloads the library. Later calls of any method do nothing.
func (i *Inventory) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	if ret := i.lib.Shutdown(); ret != nv.SUCCESS {
		return fmt.Errorf("stop the NVIDIA library: %w", failure(ret))
	}
	return nil
}

// Devices lists every GPU that is not in MIG mode, and every MIG instance.
func (i *Inventory) Devices(ctx context.Context) ([]gpu.Device, error) {
	var out []gpu.Device
	err := i.each(ctx, func(h handle) error {
		d, err := i.describe(h)
		if err == nil {
			out = append(out, d)
		}
		return err
	})
	return out, err
}

// Usage measures the memory of what Devices lists.
func (i *Inventory) Usage(ctx context.Context) ([]gpu.Usage, error) {
	var out []gpu.Usage
	err := i.each(ctx, func(h handle) error {
		mem, ret := h.dev.GetMemoryInfo()
		if ret != nv.SUCCESS {
			return fmt.Errorf("memory of %s: %w", h.uuid, failure(ret))
		}
		out = append(out, gpu.Usage{Device: h.uuid, UsedBytes: size(mem.Used), FreeBytes: size(mem.Free)})
		return nil
	})
	return out, err
}

// handle is a GPU or an instance of one.
type handle struct {
	dev    nv.Device
	uuid   string
	parent *handle // of an instance
}

// each calls f for every usable device and joins the errors.
func (i *Inventory) each(ctx context.Context, f func(handle) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	count, ret := i.lib.DeviceGetCount()
	if ret != nv.SUCCESS {
		return fmt.Errorf("count GPUs: %w", failure(ret))
	}
	var failed []error
	for n := range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := open1(i.lib.DeviceGetHandleByIndex(n))
		if err != nil {
			failed = append(failed, fmt.Errorf("GPU %d: %w", n, err))
			continue
		}
		if i.inMIGMode(h) {
			failed = append(failed, instances(h, f))
			continue
		}
		failed = append(failed, f(h))
	}
	return errors.Join(failed...)
}

func open1(dev nv.Device, ret nv.Return) (handle, error) {
	if ret != nv.SUCCESS {
		return handle{}, failure(ret)
	}
	uuid, ret := dev.GetUUID()
	if ret != nv.SUCCESS {
		return handle{}, fmt.Errorf("read UUID: %w", failure(ret))
	}
	return handle{dev: dev, uuid: uuid}, nil
}

func (i *Inventory) inMIGMode(h handle) bool {
	if !i.mig {
		return false
	}
	current, _, ret := h.dev.GetMigMode()
	return ret == nv.SUCCESS && current == nv.DEVICE_MIG_ENABLE
}

// instances calls f for each MIG instance. Places without an instance answer
// "not found", which is no error.
func instances(parent handle, f func(handle) error) error {
	count, ret := parent.dev.GetMaxMigDeviceCount()
	if ret != nv.SUCCESS {
		return fmt.Errorf("count MIG instances of %s: %w", parent.uuid, failure(ret))
	}
	var failed []error
	for n := range count {
		dev, ret := parent.dev.GetMigDeviceHandleByIndex(n)
		if ret == nv.ERROR_NOT_FOUND || ret == nv.ERROR_INVALID_ARGUMENT {
			continue
		}
		h, err := open1(dev, ret)
		if err != nil {
			failed = append(failed, fmt.Errorf("MIG instance %d of %s: %w", n, parent.uuid, err))
			continue
		}
		h.parent = &parent
		failed = append(failed, f(h))
	}
	return errors.Join(failed...)
}

func (i *Inventory) describe(h handle) (gpu.Device, error) {
	mem, ret := h.dev.GetMemoryInfo()
	if ret != nv.SUCCESS {
		return gpu.Device{}, fmt.Errorf("memory of %s: %w", h.uuid, failure(ret))
	}
	d := gpu.Device{ID: h.uuid, Kind: gpu.CUDA, MemoryBytes: size(mem.Total), Driver: i.driver}
	whole := h // the card, which answers for its instances
	if h.parent != nil {
		whole, d.Parent = *h.parent, h.parent.uuid
	}
	if name, ret := h.dev.GetName(); ret == nv.SUCCESS {
		d.Name = name
	} else if name, ret := whole.dev.GetName(); ret == nv.SUCCESS {
		d.Name = name + " MIG"
	}
	if major, minor, ret := whole.dev.GetCudaComputeCapability(); ret == nv.SUCCESS {
		d.Capability = fmt.Sprintf("%d.%d", major, minor)
	}
	return d, nil
}

// failure is an NVML result as an error with its symbolic name.
func failure(ret nv.Return) error { return fmt.Errorf("NVML: %s", ret.Error()) }

func size(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
