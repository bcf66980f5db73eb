package gpu

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// machine is a file tree of a machine with the given logical processors per
// core and memory in MiB.
func machine(flags string, siblings []string, totalMiB, availableMiB int, extra map[string]string) fstest.MapFS {
	files := map[string]string{
		"proc/meminfo": "MemTotal: " + strconv.Itoa(totalMiB<<10) + " kB\nMemFree: 1 kB\nMemAvailable:   " + strconv.Itoa(availableMiB<<10) + " kB\nHugePages_Total: 0\n",
	}
	for i, s := range siblings {
		files["proc/cpuinfo"] += "processor\t: " + strconv.Itoa(i) + "\nmodel name\t: Test CPU @ 2.5GHz\nflags\t\t: " + flags + "\n\n"
		files["sys/devices/system/cpu/cpu"+strconv.Itoa(i)+"/topology/core_cpus_list"] = s + "\n"
	}
	for name, text := range extra {
		files[name] = text
	}
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

const v2Mounts = "30 20 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"

func TestHost(t *testing.T) {
	hyper := []string{"0,2", "1,3", "0,2", "1,3"}
	tests := []struct {
		name               string
		tree               fstest.MapFS
		cpus               []int
		cores, threads     int
		totalMiB, availMiB int64
		features           []string
		model              string
	}{
		{"two threads per core", machine("fpu avx2 fma avx512f avx512_vnni amx_tile amx_int8", hyper, 16384, 8192, nil),
			nil, 2, 4, 16384, 8192, []string{"amx", "amx_int8", "avx2", "avx512", "avx512_vnni", "fma"}, "Test CPU @ 2.5GHz"},
		{"affinity leaves two threads of one core", machine("", hyper, 16384, 8192, nil), []int{1, 3}, 1, 2, 16384, 8192, []string{}, "Test CPU @ 2.5GHz"},
		{"limits of a version 2 group and its parent", machine("avx2", hyper, 16384, 8192, map[string]string{
			"proc/self/cgroup":                         "0::/a.slice/b.service\n",
			"proc/self/mountinfo":                      v2Mounts,
			"sys/fs/cgroup/a.slice/memory.max":         "2147483648\n",
			"sys/fs/cgroup/a.slice/memory.current":     "1073741824\n",
			"sys/fs/cgroup/a.slice/memory.stat":        "anon 1\ninactive_file 536870912\n",
			"sys/fs/cgroup/a.slice/b.service/cpu.max":  "150000 100000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.x": "",
		}), nil, 1, 1, 2048, 1536, []string{"avx2"}, "Test CPU @ 2.5GHz"},
		{"no limit in version 2", machine("avx2", hyper, 16384, 8192, map[string]string{
			"proc/self/cgroup": "0::/x\n", "proc/self/mountinfo": v2Mounts,
			"sys/fs/cgroup/x/memory.max": "max\n", "sys/fs/cgroup/x/cpu.max": "max 100000\n",
		}), nil, 2, 4, 16384, 8192, []string{"avx2"}, "Test CPU @ 2.5GHz"},
		{"version 1 in a container", machine("avx2", hyper, 16384, 8192, map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n",
			"proc/self/mountinfo": "36 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" +
				"37 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":       "1073741824\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":       "4294967296\n", // more than the limit for a moment
			"sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us":    "300000\n",
			"sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/cpu/docker/abc/cpu.cfs_somethingus": "",
		}), nil, 2, 3, 1024, 0, []string{"avx2"}, "Test CPU @ 2.5GHz"},
		{"version 1 without a limit", machine("", hyper, 16384, 8192, map[string]string{
			"proc/self/cgroup":                           "4:memory:/\n",
			"proc/self/mountinfo":                        "36 31 0:32 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}), nil, 2, 4, 16384, 8192, []string{}, "Test CPU @ 2.5GHz"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &Host{root: tt.tree, cpus: tt.cpus}
			devices, err := h.Devices(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := []Device{{ID: "cpu", Kind: CPU, Name: tt.model, MemoryBytes: tt.totalMiB << 20, Cores: tt.cores, Threads: tt.threads, Features: tt.features}}
			if !reflect.DeepEqual(devices, want) {
				t.Errorf("got\n%+v, want\n%+v", devices, want)
			}
			usage, err := h.Usage(t.Context())
			wantUsage := []Usage{{Device: "cpu", UsedBytes: (tt.totalMiB - tt.availMiB) << 20, FreeBytes: tt.availMiB << 20}}
			if err != nil || !reflect.DeepEqual(usage, wantUsage) {
				t.Errorf("got %+v, %v, want %+v", usage, err, wantUsage)
			}
		})
	}
}

func TestARMHost(t *testing.T) {
	tree := machine("", []string{"0", "1"}, 1024, 512, map[string]string{
		"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp sve i8mm bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\nprocessor\t: 1\n",
	})
	devices, err := (&Host{root: tree}).Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := devices[0].Features, []string{"bf16", "dotprod", "i8mm", "neon", "sve"}; !reflect.DeepEqual(got, want) {
		t.Errorf("features %v, want %v", got, want)
	}
	if got, want := devices[0].Name, "ARM implementer 0x41 part 0xd4f"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

func TestHostWithoutMemoryFigures(t *testing.T) {
	tests := map[string]fstest.MapFS{
		"no /proc": {},
		"no total": {"proc/meminfo": &fstest.MapFile{Data: []byte("MemFree: 12 kB\n")}},
		"nonsense": {"proc/meminfo": &fstest.MapFile{Data: []byte("MemTotal: -5 kB\nMemAvailable: 99999999999999999999 kB\n")}},
	}
	for name, tree := range tests {
		t.Run(name, func(t *testing.T) {
			h := &Host{root: tree}
			if _, err := h.Devices(t.Context()); err == nil || !strings.Contains(err.Error(), "read memory") {
				t.Errorf("Devices: %v", err)
			}
			if _, err := h.Usage(t.Context()); err == nil {
				t.Error("Usage: no error")
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	devices, err := All{NewHost()}.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	usage, err := All{NewHost()}.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, u := devices[0], usage[0]
	t.Logf("%+v %+v", d, u)
	if d.Cores < 1 || d.Threads < d.Cores || d.MemoryBytes < 64<<20 || u.UsedBytes+u.FreeBytes != d.MemoryBytes || u.FreeBytes <= 0 {
		t.Errorf("implausible: %+v %+v", d, u)
	}
}

func FuzzHost(f *testing.F) {
	f.Add("MemTotal: 1 kB\n", "0::/a\n", v2Mounts, "12\n")
	f.Add("MemTotal: 99 kB\nMemAvailable: 5 kB", "4:memory:/..\n", "36 31 0:32 /x /m ro - cgroup cgroup rw,memory\n", "max\n")
	f.Fuzz(func(t *testing.T, meminfo, cgroup, mountinfo, limit string) {
		h := &Host{root: machine("avx2", []string{"0"}, 1, 1, map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo,
			"sys/fs/cgroup/a/memory.max": limit, "m/memory.limit_in_bytes": limit, "sys/fs/cgroup/a/cpu.max": limit,
		})}
		devices, err := h.Devices(t.Context())
		usage, err2 := h.Usage(t.Context())
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v but %v", err, err2)
		}
		if err == nil && (devices[0].MemoryBytes <= 0 || usage[0].FreeBytes < 0 || usage[0].UsedBytes < 0 || devices[0].Threads < 1) {
			t.Errorf("%+v %+v", devices, usage)
		}
	})
}
