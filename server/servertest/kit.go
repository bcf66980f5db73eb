package servertest

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"athanor/server/kit"
)

// Clock is a clock that moves only when it is told to.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// Now is the clock's time, which begins at 2026-01-02T03:04:05Z.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// NewKit makes a kit with a clock that stands still, ids that are counted for
// each prefix ("key-1", "key-2") and a log that is shown when the test fails.
func NewKit(t testing.TB) (kit.Kit, *Clock) {
	clock := &Clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var mu sync.Mutex
	count := map[string]int{}
	newID := func(prefix string) string {
		mu.Lock()
		defer mu.Unlock()
		count[prefix]++
		if prefix == "" {
			return fmt.Sprintf("00000000-0000-7000-8000-%012d", count[prefix])
		}
		return fmt.Sprintf("%s-%d", prefix, count[prefix])
	}
	return kit.Kit{Now: clock.Now, NewID: newID, Log: newLog(t)}, clock
}

// newLog keeps the log until the test ends and shows it if it failed.
func newLog(t testing.TB) *slog.Logger {
	lines := &lockedBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", lines)
		}
	})
	return slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
