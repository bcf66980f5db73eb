package ort

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
)

// physicalCores is the number of cores this process may use: the library's
// kernels gain nothing from the second thread of a core.
func physicalCores() int {
	limit := runtime.GOMAXPROCS(0) // honours affinity and the container's quota
	lists, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	cores := map[string]bool{}
	for _, l := range lists {
		if b, err := os.ReadFile(l); err == nil {
			cores[string(b)] = true
		}
	}
	if n := len(cores); n > 0 && n < limit {
		return n
	}
	return limit
}

// cpuKey identifies what packed weights depend on: the processor's model and
// features.
func cpuKey() string {
	h := sha256.New()
	h.Write([]byte(runtime.GOARCH))
	info, _ := os.ReadFile("/proc/cpuinfo")
	first, _, _ := bytes.Cut(info, []byte("\n\n"))
	for _, line := range bytes.Split(first, []byte("\n")) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch string(bytes.TrimSpace(name)) {
		case "model name", "flags", "Features", "CPU implementer", "CPU part":
			h.Write(line)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
