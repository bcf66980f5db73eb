package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/rest"
)

// BenchmarkStream200 keeps 200 streams going, each of 40 events 20 ms apart as
// a model would send them, over local TCP with the clients in this process.
// They begin at different moments. The overhead of a stream is its time at the
// client less the operation's own; the lag of an event is from Send to client.
func BenchmarkStream200(b *testing.B) {
	const streams, events, pace = 200, 40, 20 * time.Millisecond
	var mu sync.Mutex
	work := map[string]time.Duration{} // by request id
	type chunk struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Text  string `json:"text"`
		At    int64  `json:"at"`
	}
	w := newWorld(b, rest.Limits{}, rest.PostStream("/stream", "x", rest.AnyKey,
		func(ctx context.Context, _ *rest.None, ev *rest.Events) (*chunk, error) {
			start := time.Now()
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for range events {
				<-tick.C
				if err := ev.Send(chunk{rest.RequestID(ctx), "athanor/small", "hello ", time.Now().UnixNano()}); err != nil {
					return nil, err
				}
			}
			mu.Lock()
			work[rest.RequestID(ctx)] = time.Since(start)
			mu.Unlock()
			return nil, nil
		}))
	transport := &http.Transport{MaxIdleConnsPerHost: streams}
	defer transport.CloseIdleConnections()
	url := "http://" + w.listen(b)
	var overhead, lag []time.Duration
	one := func(warm bool) {
		start := time.Now()
		resp := post(b, transport, url)
		var lags []time.Duration
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break
			}
			if _, at, ok := strings.Cut(line, `"at":`); ok {
				var ns int64
				if _, err := fmt.Sscan(strings.TrimRight(at, "}\n"), &ns); err != nil {
					b.Error(err)
				}
				lags = append(lags, time.Since(time.Unix(0, ns)))
			}
		}
		total := time.Since(start)
		if warm {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		overhead = append(overhead, total-work[resp.Header.Get("X-Request-Id")])
		lag = append(lag, lags...)
	}
	b.ReportAllocs()
	for b.Loop() {
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				<-time.After(time.Duration(i) * events * pace / streams)
				for round := range 4 {
					one(round == 0) // which has to connect
				}
			})
		}
		all.Wait()
	}
	report := func(name string, d []time.Duration) {
		slices.Sort(d)
		b.ReportMetric(d[len(d)/2].Seconds()*1e3, name+"-p50-ms")
		b.ReportMetric(d[len(d)*99/100].Seconds()*1e3, name+"-p99-ms")
	}
	report("stream", overhead)
	report("event", lag)
}
