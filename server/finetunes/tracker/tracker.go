package tracker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Limits bound a Run. A zero field takes its default.
type Limits struct {
	Queue     int           // rows that wait, default 10000; beyond it the oldest go
	Batch     int           // rows of one request, default 500
	Flush     time.Duration // rows are collected for so long, default 2 s
	Heartbeat time.Duration // a sign of life at least so often, default 30 s
	Request   time.Duration // one request takes at most so long, default 20 s
	Retry     time.Duration // the first wait after a failure, doubled up to 30 s, default 1 s
	Away      time.Duration // without an answer for so long, reporting ends, default 10 min
}

func (l Limits) withDefaults() Limits {
	set := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if l.Queue == 0 {
		l.Queue = 10000
	}
	if l.Batch == 0 {
		l.Batch = 500
	}
	set(&l.Flush, 2*time.Second)
	set(&l.Heartbeat, 30*time.Second)
	set(&l.Request, 20*time.Second)
	set(&l.Retry, time.Second)
	set(&l.Away, 10*time.Minute)
	return l
}

// Config is what a Run needs.
type Config struct {
	BaseURL string // of the tracker, like https://tracker.example, without a query
	Key     string // of its API
	Entity  string // "" is the owner of the key
	Project string
	RunID   string // letters, digits, "-" and "_"
	Name    string // shown for the run, "" lets the tracker choose
	// Settings are shown as the configuration of the run; they must not be secret.
	Settings map[string]any

	HTTP *http.Client // bounds connections and answers
	// Started is told the page of the run, once, when the tracker knows it. Warn is
	// told, at most once, why metrics do not arrive. Both are called from the
	// goroutine of the run and must return soon; neither is called after Finish or
	// Leave has returned.
	Started func(page string)
	Warn    func(message string)
	Limits  Limits
}

// row is the metrics of one moment.
type row struct {
	step    int
	metrics map[string]float64
	at      time.Time
}

// Run reports one job. Its methods may be called by any goroutine.
type Run struct {
	cfg     Config
	limits  Limits
	more    chan struct{} // holds a value when a full batch waits
	closing chan struct{} // closed by Finish and Leave
	done    chan struct{} // closed at the end of the goroutine
	cancel  context.CancelFunc

	mu       sync.Mutex // protects fields below
	queue    []row
	dropped  int // rows that the queue had no room for
	ended    bool
	exitCode *int // of Finish
}

// Start begins to report in the background. Call Finish or Leave on the result.
func Start(cfg Config) *Run {
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	// Not the context of a request: only Finish and Leave end a run.
	ctx, cancel := context.WithCancel(context.Background())
	r := &Run{cfg: cfg, limits: cfg.Limits.withDefaults(), cancel: cancel,
		more: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := r.work(ctx); err != nil {
			r.giveUp(err)
		}
	}()
	return r
}

// Log adds a row, which was measured at a time; metrics is not kept.
func (r *Run) Log(step int, at time.Time, metrics map[string]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if len(r.queue) >= r.limits.Queue {
		r.queue = r.queue[1:]
		r.dropped++
	}
	r.queue = append(r.queue, row{step, maps.Clone(metrics), at})
	if len(r.queue) >= r.limits.Batch {
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// Finish sends what waits and tells the tracker that the job has ended, with 0 for
// success. It returns when that is done or given up, at the latest when ctx ends.
func (r *Run) Finish(ctx context.Context, exitCode int) { r.end(ctx, &exitCode) }

// Leave sends what waits and leaves the run open: the job goes on later.
func (r *Run) Leave(ctx context.Context) { r.end(ctx, nil) }

func (r *Run) end(ctx context.Context, exitCode *int) {
	r.mu.Lock()
	first := !r.ended
	if first {
		r.ended, r.exitCode = true, exitCode
	}
	r.mu.Unlock()
	if first {
		close(r.closing)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.cancel()
		<-r.done
	}
	r.cancel()
}

// giveUp ends reporting with the one warning.
func (r *Run) giveUp(err error) {
	r.mu.Lock()
	closing := r.ended
	r.ended, r.queue = true, nil
	r.mu.Unlock()
	if !closing {
		defer close(r.closing) // a later Finish finds nothing to do
	}
	r.warn(fmt.Sprintf("%s: %v", host(r.cfg.BaseURL), err))
}

func (r *Run) warn(message string) {
	if r.cfg.Warn != nil {
		r.cfg.Warn(message)
	}
}

func host(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Host
	}
	return "its address"
}

// work connects, then sends until the run is closed and everything is sent.
func (r *Run) work(ctx context.Context) error {
	s := &session{cfg: r.cfg, limits: r.limits}
	if err := r.persist(ctx, func(ctx context.Context) error { return s.connect(ctx) }); err != nil {
		return err
	}
	if r.cfg.Started != nil {
		r.cfg.Started(s.page())
	}
	beat := time.NewTimer(r.limits.Heartbeat)
	defer beat.Stop()
	for {
		open := r.collect(ctx, beat)
		for {
			rows := r.take()
			if len(rows) == 0 {
				break
			}
			lines := s.lines(rows)
			if err := r.persist(ctx, func(ctx context.Context) error { return s.send(ctx, lines) }); err != nil {
				return err
			}
			s.sent(lines)
			beat.Reset(r.limits.Heartbeat)
		}
		if !open {
			return r.complete(ctx, s)
		}
	}
}

// collect waits until something is to be sent. It returns false when the run is
// closed.
func (r *Run) collect(ctx context.Context, beat *time.Timer) (open bool) {
	flush := time.NewTimer(r.limits.Flush)
	defer flush.Stop()
	select {
	case <-ctx.Done():
	case <-r.closing:
		return false
	case <-r.more:
	case <-flush.C:
	}
	select {
	case <-beat.C:
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.queue = append(r.queue, row{}) // no metrics: a heartbeat
		}
		r.mu.Unlock()
		beat.Reset(r.limits.Heartbeat)
	default:
	}
	return ctx.Err() == nil
}

// take removes a batch from the queue.
func (r *Run) take() []row {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.queue), r.limits.Batch)
	rows := r.queue[:n:n]
	r.queue = r.queue[n:]
	return rows
}

// complete tells the end of the job, unless it goes on later.
func (r *Run) complete(ctx context.Context, s *session) error {
	r.mu.Lock()
	dropped, exitCode := r.dropped, r.exitCode
	r.mu.Unlock()
	if exitCode != nil {
		if err := r.persist(ctx, func(ctx context.Context) error { return s.complete(ctx, *exitCode) }); err != nil {
			return err
		}
	}
	if dropped > 0 {
		r.warn(fmt.Sprintf("%s: it was too slow and lacks %d rows of metrics", host(r.cfg.BaseURL), dropped))
	}
	return nil
}

// persist tries until it succeeds, is refused for good, or the tracker has been away
// for too long. A closed run gives up when its Finish does.
func (r *Run) persist(ctx context.Context, try func(context.Context) error) error {
	var waited time.Duration
	for wait := r.limits.Retry; ; wait = min(2*wait, max(r.limits.Retry, 30*time.Second)) {
		once, cancel := context.WithTimeout(ctx, r.limits.Request)
		before := time.Now()
		err := try(once)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the job ended before it answered: %w", err)
		}
		if refused, found := errors.AsType[*refusal](err); found && !refused.temporary() {
			return err
		}
		if waited += time.Since(before) + wait; waited > r.limits.Away {
			return fmt.Errorf("it does not answer: %w", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
