package host_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/host"
)

// BenchmarkLease_Generate streams from a real worker process: 200 streams at
// the same time, as fast as they go (events/s), and at 20 ms a token (how late
// the 99th of 100 tokens comes).
func BenchmarkLease_Generate(b *testing.B) {
	h, err := host.New(host.Config{
		RunDir: b.TempDir(), Log: slog.New(slog.DiscardHandler),
		Args: func(host.Spec) []string { return nil }, Env: append(os.Environ(), roleEnv+"=worker"),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close(context.Background())
	const streams, tokens = 200, 100
	for name, step := range map[string]time.Duration{"flat out": 0, "paced": 20 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			l, err := h.Acquire(b.Context(), knobs{StepDelay: step}.spec(name))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Release()
			events := 0
			var mu sync.Mutex // guards late
			var late []time.Duration
			for b.Loop() {
				var wg sync.WaitGroup
				for range streams {
					wg.Go(func() {
						var mine []time.Duration
						last := time.Time{}
						err := l.Generator().Generate(b.Context(), &engine.GenerateRequest{MaxTokens: tokens}, func(*engine.Event) error {
							now := time.Now()
							if !last.IsZero() {
								mine = append(mine, now.Sub(last)-step)
							}
							last = now
							return nil
						})
						if err != nil {
							b.Error(err)
						}
						mu.Lock()
						late = append(late, mine...)
						mu.Unlock()
					})
				}
				wg.Wait()
				events += streams * (tokens + 2)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			if step > 0 {
				slices.Sort(late)
				b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-late-ms")
			}
		})
	}
}
