package host

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseStatus(t *testing.T) {
	tests := []struct {
		name, text string
		want       Memory
		ok         bool
	}{
		{"a process with mapped weights", "Name:\tathanor\nVmRSS:\t 5000 kB\nRssAnon:\t 1000 kB\nRssFile:\t 3900 kB\nRssShmem:\t 100 kB\nVmSwap:\t 20 kB\n",
			Memory{RSS: 5000 << 10, Own: 1120 << 10}, true},
		{"a zombie", "Name:\tathanor\nState:\tZ (zombie)\n", Memory{}, false},
		{"nothing", "", Memory{}, false},
		{"nonsense", "VmRSS: -1 kB\nVmRSS: 99999999999999999999 kB\nVmRSS: 12\n", Memory{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStatus(tt.text)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("got %+v, %v; want %+v, ok %v", got, err, tt.want, tt.ok)
			}
		})
	}
}

func TestOwnMemoryOfThisProcess(t *testing.T) {
	m, err := processMemory(os.Getpid())
	if err != nil || m.Own < 1<<20 || m.RSS < m.Own/2 {
		t.Errorf("implausible: %+v, %v", m, err)
	}
	if _, err := processMemory(1 << 30); err == nil {
		t.Error("a process that is not there has memory")
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add("VmRSS:\t 5000 kB\nRssAnon:\t 1000 kB\n")
	f.Add("VmRSS: kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseStatus(text); err == nil && m.RSS < 0 {
			t.Errorf("%+v", m)
		}
	})
}

func TestLogTail(t *testing.T) {
	var out strings.Builder
	l := &logTail{log: slog.New(slog.NewTextHandler(&out, nil))}
	var text strings.Builder
	text.WriteString("start\r\n\n\xff\xfe\npanic: index out of range [3]\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "goroutine %d\n", i)
	}
	text.WriteString(strings.Repeat("z", 3*maxLine) + "\nno end of line")
	l.read(strings.NewReader(text.String()))
	headline, lines := l.tail()
	if headline != "panic: index out of range [3]" {
		t.Errorf("headline %q", headline)
	}
	if len(lines) != maxTail || lines[maxTail-1] != "no end of line" || lines[maxTail-3] != "goroutine 999" {
		t.Errorf("%d lines, the last are %.100q", len(lines), lines[maxTail-3:])
	}
	if cut := lines[maxTail-2]; len(cut) != maxLine+len(cutMark) || !strings.HasSuffix(cut, cutMark) {
		t.Errorf("a long line has %d bytes", len(cut))
	}
	if got := strings.Count(out.String(), "\n"); got != 2+1+maxTrace {
		t.Errorf("%d lines logged, want 2 before the crash, its headline and %d more", got, maxTrace)
	}
	if !strings.Contains(out.String(), `level=ERROR msg="worker log" line="panic: index`) {
		t.Errorf("the headline is no error: %s", out.String())
	}
}

func TestLogTailNeverHoldsMoreThanALine(t *testing.T) {
	l := &logTail{log: slog.New(slog.DiscardHandler)}
	l.read(io.LimitReader(endless{}, 100<<20))
	if _, lines := l.tail(); len(lines) != 1 || len(lines[0]) > maxLine+len(cutMark) {
		t.Errorf("%d lines", len(lines))
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestCgroup plays a control group with plain files: where the kernel gives a
// real one to this process is not for a test to decide.
func TestCgroup(t *testing.T) {
	dir := t.TempDir()
	if _, err := findCgroups(dir); err == nil {
		t.Error("a plain folder is no control group")
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	if err := os.WriteFile(control, []byte("cpu pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	groups, err := findCgroups(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(control); string(got) != "+memory" {
		t.Errorf("the memory controller was turned on with %q", got)
	}
	g, err := groups.make("worker-1", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "worker-1", "memory.max")); string(got) != "1073741824" {
		t.Errorf("memory.max is %q", got)
	}
	events := filepath.Join(dir, "worker-1", "memory.events")
	for text, want := range map[string]bool{"": false, "low 0\noom 1\noom_kill 0\n": false, "oom 1\noom_kill 1\n": true} {
		if err := os.WriteFile(events, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := g.oomKilled(); got != want {
			t.Errorf("events %q: killed %v, want %v", text, got, want)
		}
	}
	g.remove()
	if (*cgroup)(nil).oomKilled() {
		t.Error("no group, but a kill")
	}
	(*cgroup)(nil).remove()
}
