package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Host is the Inventory of the processor: one Device with ID HostID. Memory and
// cores are what this process may use, with the limits of its control group.
type Host struct {
	root fs.FS
	cpus []int // logical processors this process may run on; nil means all in root
}

var _ Inventory = (*Host)(nil)

// NewHost reads the machine it runs on.
func NewHost() *Host { return &Host{root: os.DirFS("/"), cpus: allowedCPUs()} }

// maxProcFile bounds what is read of one file under /proc or /sys.
const maxProcFile = 8 << 20

// Devices returns the one Device.
func (h *Host) Devices(context.Context) ([]Device, error) {
	mem, err := h.memory()
	if err != nil {
		return nil, err
	}
	info := h.cpuinfo()
	threads := len(h.cpus)
	if threads == 0 {
		threads = max(info.processors, 1)
	}
	cores := h.physicalCores()
	if cores == 0 {
		cores = threads
	}
	if quota := h.quota(); quota > 0 {
		cores, threads = min(cores, quota), min(threads, quota)
	}
	return []Device{{
		ID: HostID, Name: info.model, Kind: CPU, MemoryBytes: mem.total,
		Cores: cores, Threads: threads, Features: info.features,
	}}, nil
}

// Usage measures main memory. Caches that the kernel gives back count as free.
func (h *Host) Usage(context.Context) ([]Usage, error) {
	mem, err := h.memory()
	if err != nil {
		return nil, err
	}
	return []Usage{{Device: HostID, UsedBytes: mem.total - mem.available, FreeBytes: mem.available}}, nil
}

type memory struct{ total, available int64 }

// memory is that of the machine, or of the control group when it has less.
func (h *Host) memory() (memory, error) {
	text, err := h.read("proc/meminfo")
	if err != nil {
		return memory{}, fmt.Errorf("read memory: %w", err)
	}
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err == nil && n >= 0 && n < 1<<50 {
			values[name] = n << 10
		}
	}
	m := memory{total: values["MemTotal"], available: values["MemAvailable"]}
	if m.total <= 0 {
		return memory{}, errors.New("read memory: /proc/meminfo has no MemTotal")
	}
	if limit, used, ok := h.memoryLimit(); ok && limit < m.total {
		m.total = limit
		m.available = min(m.available, limit-min(used, limit))
	}
	m.available = min(m.available, m.total)
	return m, nil
}

type cpuinfo struct {
	model      string
	processors int
	features   []string
}

// cpuFeatures maps the kernel's flags to the instruction sets that decide
// which kernels of the runtime are used.
var cpuFeatures = map[string]string{
	"avx2": "avx2", "fma": "fma", "f16c": "f16c",
	"avx512f": "avx512", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "avx512_fp16": "avx512_fp16",
	"avx_vnni": "avx_vnni", "amx_tile": "amx", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16",
	"asimd": "neon", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2", "sme": "sme",
}

func (h *Host) cpuinfo() cpuinfo {
	text, err := h.read("proc/cpuinfo")
	info := cpuinfo{model: "CPU (" + runtime.GOARCH + ")"}
	if err != nil {
		info.processors = runtime.NumCPU()
		return info
	}
	var arm [2]string // implementer and part
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "processor":
			info.processors++
		case "model name":
			info.model = value
		case "CPU implementer":
			arm[0] = value
		case "CPU part":
			arm[1] = value
		case "flags", "Features":
			if info.features == nil {
				info.features = features(value)
			}
		}
	}
	if arm[0] != "" {
		info.model = fmt.Sprintf("ARM implementer %s part %s", arm[0], arm[1])
	}
	return info
}

func features(flags string) []string {
	out := []string{}
	for _, f := range strings.Fields(flags) {
		if name, ok := cpuFeatures[f]; ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// physicalCores counts cores by the siblings of each logical processor, 0 when
// the kernel does not tell. Two hardware threads share one set of vector units,
// so threads beyond this number slow a model down.
func (h *Host) physicalCores() int {
	cpus := h.cpus
	if cpus == nil {
		names, _ := fs.Glob(h.root, "sys/devices/system/cpu/cpu[0-9]*")
		for _, name := range names {
			if n, err := strconv.Atoi(strings.TrimPrefix(name, "sys/devices/system/cpu/cpu")); err == nil {
				cpus = append(cpus, n)
			}
		}
	}
	cores := map[string]bool{}
	for _, cpu := range cpus {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		siblings, err := h.read(dir + "core_cpus_list")
		if err != nil {
			siblings, err = h.read(dir + "thread_siblings_list")
		}
		if err == nil {
			cores[strings.TrimSpace(siblings)] = true
		}
	}
	return len(cores)
}

func (h *Host) read(name string) (string, error) {
	f, err := h.root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(bufio.NewReader(io.LimitReader(f, maxProcFile)))
	return string(b), err
}
