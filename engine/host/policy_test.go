package host_test

import (
	"strings"
	"testing"
	"time"

	"athanor/engine/host"
)

func TestPolicy(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	p := host.Policy{Base: time.Second, Max: 20 * time.Second, GiveUp: 5}
	tests := []struct {
		name     string
		policy   host.Policy
		failures int
		class    host.Class
		pause    time.Duration
		restart  bool
		reason   string
	}{
		{"a first crash is forgiven", p, 1, host.ClassCrash, 0, true, "at once"},
		{"a first hang too", p, 1, host.ClassHung, 0, true, "at once"},
		{"and a first excess of memory", p, 1, host.ClassMemory, 0, true, "at once"},
		{"second crash", p, 2, host.ClassCrash, time.Second, true, "2 failures in a row"},
		{"third", p, 3, host.ClassCrash, 2 * time.Second, true, "3 failures"},
		{"fifth", p, 5, host.ClassMemory, 8 * time.Second, true, "5 failures"},
		{"sixth gives up by itself", p, 6, host.ClassCrash, 16 * time.Second, false, "a request may try again"},
		{"the pause has an upper limit", p, 7, host.ClassCrash, 20 * time.Second, false, "in 20s"},
		{"however many", p, 1 << 30, host.ClassCrash, 20 * time.Second, false, ""},
		{"a process that does not start is never hurried", p, 1, host.ClassStart, time.Second, true, ""},
		{"a model that cannot be loaded waits for a request", p, 1, host.ClassLoad, time.Second, false, "cannot be loaded"},
		{"longer each time", p, 4, host.ClassLoad, 8 * time.Second, false, "in 8s"},
		{"a stop is no failure", p, 3, host.ClassStopped, 0, false, "not a failure"},
		{"nor is a lack of room", p, 3, host.ClassNoRoom, 4 * time.Second, true, "not a failure"},
		{"which may last", p, 100, host.ClassNoRoom, 20 * time.Second, true, "tried in 20s"},
		{"defaults", host.Policy{}, 3, host.ClassCrash, time.Second, true, ""},
		{"default limit", host.Policy{}, 100, host.ClassCrash, time.Minute, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.policy.Decide(tt.failures, tt.class, now)
			if got.Until != now.Add(tt.pause) || got.Restart != tt.restart || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("got pause %v, restart %v, %q; want %v, %v, %q", got.Until.Sub(now), got.Restart, got.Reason, tt.pause, tt.restart, tt.reason)
			}
		})
	}
}
