package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what a process holds, in bytes.
type Memory struct {
	RSS int64 // resident pages of all kinds
	// Own is what would be free if the process ended: anonymous, shared and
	// swapped pages. Pages of mapped files are not in it.
	Own int64
}

// processMemory reads proc_pid_status(5).
func processMemory(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	return parseStatus(string(text))
}

func parseStatus(text string) (Memory, error) {
	var m Memory
	found := false
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		value, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || kb < 0 || kb > 1<<50 {
			continue
		}
		switch name {
		case "VmRSS":
			m.RSS, found = kb<<10, true
		case "RssAnon", "RssShmem", "VmSwap":
			m.Own += kb << 10
		}
	}
	if !found { // a process that has ended has no memory lines
		return Memory{}, errors.New("no memory figures")
	}
	return m, nil
}

// Out-of-memory scores, from 0 as everybody to 1000 always first. A job that dies
// goes on from its last state; a request is lost.
const (
	scoreServing  = 500
	scoreTraining = 800
)

// firstVictim makes the kernel end this process before others when the machine
// runs out of memory.
func firstVictim(pid, score int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}
