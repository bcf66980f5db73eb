package app

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"athanor/engine"
	"athanor/engine/host"
	"athanor/server/rest"
)

// metrics are what /metrics shows. Labels never hold what users wrote; the
// model label is a registered name.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	firstToken *prometheus.HistogramVec
}

func newMetrics(h *host.Host) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "athanor_requests_total", Help: "HTTP requests by operation and status."}, []string{"operation", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "athanor_request_seconds", Help: "Time from request to last byte.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)}, []string{"operation"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "athanor_tokens_total", Help: "Tokens by model and kind (prompt, completion)."}, []string{"model", "kind"}),
		firstToken: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "athanor_first_token_seconds", Help: "Time from request to first token.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)}, []string{"model"}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.tokens, m.firstToken, workerMetrics{h.Snapshot}, trainingMetrics{h.Training},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe counts one HTTP request.
func (m *metrics) observe(s rest.Sample) {
	name := "unknown"
	if s.Op != nil {
		name = s.Op.Name()
	}
	m.requests.WithLabelValues(name, strconv.Itoa(s.Status)).Inc()
	m.duration.WithLabelValues(name).Observe(s.Duration.Seconds())
}

// Generated implements chat.Meter.
func (m *metrics) Generated(_ context.Context, model string, u engine.Usage, first time.Duration) {
	m.tokens.WithLabelValues(model, "prompt").Add(float64(u.PromptTokens))
	m.tokens.WithLabelValues(model, "completion").Add(float64(u.CompletionTokens))
	if first > 0 {
		m.firstToken.WithLabelValues(model).Observe(first.Seconds())
	}
}

// write renders the text format.
func (m *metrics) write(w io.Writer) (string, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return "", err
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return "", err
		}
	}
	return string(format), nil
}

// workerMetrics reads the supervisor's snapshot at each scrape.
type workerMetrics struct{ snapshot func() []host.Status }

var (
	workerUp       = prometheus.NewDesc("athanor_worker_up", "Workers of the model that are ready.", []string{"model"}, nil)
	workerRestarts = prometheus.NewDesc("athanor_worker_restarts_total", "Restarts of the worker.", []string{"model"}, nil)
	workerRSS      = prometheus.NewDesc("athanor_worker_resident_bytes", "Resident memory of the worker.", []string{"model"}, nil)
	workerQueued   = prometheus.NewDesc("athanor_worker_queued", "Requests beyond the sequences that the worker runs at the same time.", []string{"model"}, nil)
	workerBusy     = prometheus.NewDesc("athanor_worker_inflight", "Requests that hold the worker: running and queued.", []string{"model"}, nil)
)

func (workerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{workerUp, workerRestarts, workerRSS, workerBusy, workerQueued} {
		ch <- d
	}
}

// Collect adds up workers of one name: a name may belong to models of several
// projects, and two series with the same labels would spoil the whole scrape.
func (w workerMetrics) Collect(ch chan<- prometheus.Metric) {
	type sums struct{ up, restarts, rss, busy, queued float64 }
	byName := map[string]*sums{}
	for _, s := range w.snapshot() {
		sum := byName[s.Name]
		if sum == nil {
			sum = &sums{}
			byName[s.Name] = sum
		}
		if s.State == host.Ready {
			sum.up++
		}
		sum.restarts += float64(s.Restarts)
		sum.rss += float64(s.Memory.RSS)
		sum.busy += float64(s.InFlight)
		if s.Slots > 0 {
			sum.queued += float64(max(0, s.InFlight-s.Slots))
		}
	}
	for name, sum := range byName {
		ch <- prometheus.MustNewConstMetric(workerUp, prometheus.GaugeValue, sum.up, name)
		ch <- prometheus.MustNewConstMetric(workerRestarts, prometheus.CounterValue, sum.restarts, name)
		ch <- prometheus.MustNewConstMetric(workerRSS, prometheus.GaugeValue, sum.rss, name)
		ch <- prometheus.MustNewConstMetric(workerBusy, prometheus.GaugeValue, sum.busy, name)
		ch <- prometheus.MustNewConstMetric(workerQueued, prometheus.GaugeValue, sum.queued, name)
	}
}

// trainingMetrics adds up the jobs that train. They have no labels: the id of a
// job would make a series of its own for ever.
type trainingMetrics struct{ snapshot func() []host.TrainStatus }

var (
	trainingJobs     = prometheus.NewDesc("athanor_training_jobs", "Training jobs that run in a process.", nil, nil)
	trainingCores    = prometheus.NewDesc("athanor_training_cores", "Cores promised to training jobs.", nil, nil)
	trainingReserved = prometheus.NewDesc("athanor_training_reserved_bytes", "Memory promised to training jobs.", nil, nil)
	trainingRSS      = prometheus.NewDesc("athanor_training_resident_bytes", "Resident memory of training jobs.", nil, nil)
)

func (trainingMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{trainingJobs, trainingCores, trainingReserved, trainingRSS} {
		ch <- d
	}
}

func (m trainingMetrics) Collect(ch chan<- prometheus.Metric) {
	var jobs, cores, reserved, rss float64
	for _, s := range m.snapshot() {
		if s.PID != 0 {
			jobs++
		}
		cores += float64(s.Cores)
		reserved += float64(s.Reserved)
		rss += float64(s.Memory.RSS)
	}
	ch <- prometheus.MustNewConstMetric(trainingJobs, prometheus.GaugeValue, jobs)
	ch <- prometheus.MustNewConstMetric(trainingCores, prometheus.GaugeValue, cores)
	ch <- prometheus.MustNewConstMetric(trainingReserved, prometheus.GaugeValue, reserved)
	ch <- prometheus.MustNewConstMetric(trainingRSS, prometheus.GaugeValue, rss)
}
