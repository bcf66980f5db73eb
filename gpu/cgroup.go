package gpu

import (
	"math"
	"path"
	"strconv"
	"strings"
)

// group is the place of this process in one control group hierarchy, as a path
// in the file system, from the mount point down.
type group struct {
	mount string // mount point, without the leading slash
	own   string // below mount, "" for its root
	v2    bool
}

// group finds the hierarchy with a controller: the unified one of version 2,
// or the one that a version 1 kernel mounts for that controller.
// The files are those of cgroups(7) and proc_pid_mountinfo(5).
func (h *Host) group(controller string) (group, bool) {
	own, v2own := "", ""
	text, err := h.read("proc/self/cgroup")
	if err != nil {
		return group{}, false
	}
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[0] == "0" && part[1] == "" {
			v2own = part[2]
		} else if has(part[1], ",", controller) {
			own = part[2]
		}
	}
	mounts, err := h.read("proc/self/mountinfo")
	if err != nil {
		return group{}, false
	}
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		root, point := fields[3], strings.TrimPrefix(fields[4], "/")
		switch {
		case own != "" && kind[0] == "cgroup" && has(kind[2], ",", controller):
			return group{mount: point, own: below(root, own)}, true
		case own == "" && v2own != "" && kind[0] == "cgroup2":
			return group{mount: point, own: below(root, v2own), v2: true}, true
		}
	}
	return group{}, false
}

// below is own as seen from root, the part of the hierarchy that is mounted. In
// a container the two are often the same.
func below(root, own string) string {
	own = path.Clean("/" + own)
	if root != "/" {
		if rest, ok := strings.CutPrefix(own, path.Clean(root)); ok && (rest == "" || rest[0] == '/') {
			own = rest
		}
	}
	return strings.TrimPrefix(path.Clean("/"+own), "/")
}

func has(list, sep, want string) bool {
	for item := range strings.SplitSeq(list, sep) {
		if item == want {
			return true
		}
	}
	return false
}

// up calls f for each directory from the process's own group to the mount
// point: every one of them limits the process.
func (g group) up(f func(dir string)) {
	for own := g.own; ; own = path.Dir(own) {
		if own == "." || own == "/" {
			own = ""
		}
		f(path.Join(g.mount, own))
		if own == "" {
			return
		}
	}
}

// memoryLimit is the tightest limit and the memory counted against it that the
// kernel cannot give back.
func (h *Host) memoryLimit() (limit, used int64, ok bool) {
	g, found := h.group("memory")
	if !found {
		return 0, 0, false
	}
	limitFile, usedFile, cacheKey := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if g.v2 {
		limitFile, usedFile, cacheKey = "memory.max", "memory.current", "inactive_file"
	}
	limit = math.MaxInt64
	g.up(func(dir string) {
		n, err := h.number(path.Join(dir, limitFile))
		// Version 1 writes "no limit" as the largest multiple of a page.
		if err != nil || n <= 0 || n >= math.MaxInt64>>12<<12 || n >= limit {
			return
		}
		limit, ok = n, true
		used, _ = h.number(path.Join(dir, usedFile))
		used = max(0, used-h.stat(path.Join(dir, "memory.stat"), cacheKey))
	})
	return limit, used, ok
}

// quota is the processor time of the control group in whole processors, at
// least 1, or 0 for no limit.
func (h *Host) quota() int {
	g, found := h.group("cpu")
	if !found {
		return 0
	}
	least := math.Inf(1)
	g.up(func(dir string) {
		var quota, period string
		if g.v2 {
			text, _ := h.read(path.Join(dir, "cpu.max"))
			quota, period, _ = strings.Cut(strings.TrimSpace(text), " ")
		} else {
			quota, _ = h.read(path.Join(dir, "cpu.cfs_quota_us"))
			period, _ = h.read(path.Join(dir, "cpu.cfs_period_us"))
		}
		q, err1 := strconv.ParseFloat(strings.TrimSpace(quota), 64)
		p, err2 := strconv.ParseFloat(strings.TrimSpace(period), 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 {
			least = min(least, q/p)
		}
	})
	if math.IsInf(least, 1) {
		return 0
	}
	return max(1, int(least))
}

func (h *Host) number(name string) (int64, error) {
	text, err := h.read(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

// stat is one value of a file of "key value" lines, 0 when it is not there.
func (h *Host) stat(name, key string) int64 {
	text, err := h.read(name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}
