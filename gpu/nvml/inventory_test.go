//go:build cgo

package nvml

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"athanor/gpu"
)

// card is a fake GPU or MIG instance.
type card struct {
	uuid, name string
	total      uint64
	used       uint64
	mig        bool
	instances  []*card // a nil entry is a place without an instance
	lost       bool
}

func (c *card) device() nv.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nv.Return) {
			if c.lost {
				return "", nv.ERROR_GPU_IS_LOST
			}
			return c.uuid, nv.SUCCESS
		},
		GetNameFunc: func() (string, nv.Return) { return c.name, nv.SUCCESS },
		GetMemoryInfoFunc: func() (nv.Memory, nv.Return) {
			return nv.Memory{Total: c.total, Used: c.used, Free: c.total - c.used}, nv.SUCCESS
		},
		GetMigModeFunc: func() (int, int, nv.Return) {
			if c.mig {
				return nv.DEVICE_MIG_ENABLE, nv.DEVICE_MIG_ENABLE, nv.SUCCESS
			}
			return 0, 0, nv.ERROR_NOT_SUPPORTED
		},
		GetMaxMigDeviceCountFunc: func() (int, nv.Return) { return len(c.instances), nv.SUCCESS },
		GetMigDeviceHandleByIndexFunc: func(n int) (nv.Device, nv.Return) {
			if c.instances[n] == nil {
				return nil, nv.ERROR_NOT_FOUND
			}
			return c.instances[n].device(), nv.SUCCESS
		},
		GetCudaComputeCapabilityFunc: func() (int, int, nv.Return) { return 9, 0, nv.SUCCESS },
	}
}

// driver is a fake library with the given cards.
func driver(oldLibrary bool, cards ...*card) *mock.Interface {
	return &mock.Interface{
		InitFunc:                   func() nv.Return { return nv.SUCCESS },
		ShutdownFunc:               func() nv.Return { return nv.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, nv.Return) { return "570.1", nv.SUCCESS },
		DeviceGetCountFunc:         func() (int, nv.Return) { return len(cards), nv.SUCCESS },
		DeviceGetHandleByIndexFunc: func(n int) (nv.Device, nv.Return) { return cards[n].device(), nv.SUCCESS },
		ExtensionsFunc: func() nv.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
				if oldLibrary && strings.Contains(name, "Mig") {
					return errors.New("symbol not found")
				}
				return nil
			}}
		},
	}
}

func TestDevices(t *testing.T) {
	whole := &card{uuid: "GPU-1", name: "H200", total: 140 << 30, used: 10 << 30}
	split := &card{uuid: "GPU-2", name: "H100", total: 80 << 30, mig: true, instances: []*card{
		{uuid: "MIG-a", name: "H100 MIG 3g.40gb", total: 40 << 30, used: 1 << 30}, nil,
		{uuid: "MIG-b", name: "H100 MIG 1g.10gb", total: 10 << 30},
	}}
	h200 := gpu.Device{ID: "GPU-1", Name: "H200", Kind: gpu.CUDA, MemoryBytes: 140 << 30, Driver: "570.1", Capability: "9.0"}
	tests := []struct {
		name  string
		lib   *mock.Interface
		want  []gpu.Device
		usage []gpu.Usage
		err   string
	}{
		{"none", driver(false), nil, nil, ""},
		{"whole", driver(false, whole), []gpu.Device{h200}, []gpu.Usage{{Device: "GPU-1", UsedBytes: 10 << 30, FreeBytes: 130 << 30}}, ""},
		{"instances with their own memory", driver(false, split), []gpu.Device{
			{ID: "MIG-a", Name: "H100 MIG 3g.40gb", Kind: gpu.CUDA, MemoryBytes: 40 << 30, Driver: "570.1", Capability: "9.0", Parent: "GPU-2"},
			{ID: "MIG-b", Name: "H100 MIG 1g.10gb", Kind: gpu.CUDA, MemoryBytes: 10 << 30, Driver: "570.1", Capability: "9.0", Parent: "GPU-2"},
		}, []gpu.Usage{{Device: "MIG-a", UsedBytes: 1 << 30, FreeBytes: 39 << 30}, {Device: "MIG-b", FreeBytes: 10 << 30}}, ""},
		{"MIG mode without instances", driver(false, &card{uuid: "GPU-3", mig: true, total: 1}), nil, nil, ""},
		{"a lost GPU does not hide the others", driver(false, &card{lost: true}, whole), []gpu.Device{h200},
			[]gpu.Usage{{Device: "GPU-1", UsedBytes: 10 << 30, FreeBytes: 130 << 30}}, "GPU 0"},
		{"a library without MIG", driver(true, &card{uuid: "GPU-1", name: "H200", total: 140 << 30, mig: true}), []gpu.Device{h200},
			[]gpu.Usage{{Device: "GPU-1", FreeBytes: 140 << 30}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inv, err := open(tt.lib)
			if err != nil {
				t.Fatal(err)
			}
			got, err := inv.Devices(t.Context())
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("devices\n%+v, want\n%+v", got, tt.want)
			}
			checkError(t, err, tt.err)
			usage, err := inv.Usage(t.Context())
			if !reflect.DeepEqual(usage, tt.usage) {
				t.Errorf("usage\n%+v, want\n%+v", usage, tt.usage)
			}
			checkError(t, err, tt.err)
			if err := errors.Join(inv.Close(), inv.Close()); err != nil || len(tt.lib.ShutdownCalls()) != 1 {
				t.Errorf("closed with %v and %d shutdowns", err, len(tt.lib.ShutdownCalls()))
			}
			if got, err := inv.Devices(t.Context()); got != nil || err != nil {
				t.Errorf("after Close: %v, %v", got, err)
			}
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestOpenWithoutDriver(t *testing.T) {
	tests := []struct {
		ret  nv.Return
		want string
	}{
		{nv.ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver library found"},
		{nv.ERROR_DRIVER_NOT_LOADED, "kernel driver is not loaded"},
		{nv.ERROR_LIB_RM_VERSION_MISMATCH, "different versions"},
		{nv.ERROR_UNKNOWN, "NVML"},
	}
	for _, tt := range tests {
		lib := &mock.Interface{InitFunc: func() nv.Return { return tt.ret }}
		if _, err := open(lib); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.ret, err, tt.want)
		}
		if len(lib.ShutdownCalls()) != 0 {
			t.Errorf("%v: Shutdown of a library that is not there ends the process", tt.ret)
		}
	}
}

// TestOpen opens the real library: this must never end the process.
func TestOpen(t *testing.T) {
	inv, err := Open()
	if err != nil {
		if !errors.Is(err, ErrNoLibrary) && !strings.Contains(err.Error(), "NVIDIA") {
			t.Errorf("Open: %v, want a clear answer", err)
		}
		t.Skip("no GPU here: ", err)
	}
	defer inv.Close()
	devices, err := inv.Devices(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		if d.ID == "" || d.MemoryBytes <= 0 {
			t.Errorf("incomplete: %+v", d)
		}
	}
}
