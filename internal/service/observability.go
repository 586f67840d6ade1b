// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

const (
	// monitorInterval is how often the rows are counted that metrics show.
	monitorInterval = time.Minute
	// dropDeletedInterval is how often series of deleted endpoints and backends are dropped.
	dropDeletedInterval = 10 * time.Second
)

// observability is what an operator of the service sees of it: health, metrics, traces, the access
// log and the records of traffic.
type observability struct {
	set             *settings
	log             *slog.Logger
	meter           *requestMeter
	metrics, probes *healthServer // nil without --metrics-addr, --health-addr
	store           *store.Store
}

func newObservability(set *settings) *observability {
	recorder := cmp.Or(set.recorder, traffic.New(traffic.Options{MaxOwn: set.MetricsSeries}))
	return &observability{set: set, log: set.Logger, meter: newRequestMeter(recorder)}
}

// open opens the listeners, the access log and the tracing. ready returns what keeps the service
// from taking traffic, or nil.
func (o *observability) open(ctx context.Context, ready func(context.Context) error) (err error) {
	o.metrics, err = openHealth(ctx, "--metrics-addr", o.set.MetricsAddr, o.meter.registry.Registry, ready, o.log)
	if err != nil {
		return err
	}
	if o.probes, err = openHealth(ctx, "--health-addr", o.set.HealthAddr, nil, ready, o.log); err != nil {
		return err
	}
	if o.set.AccessLog != "" {
		l, err := openAccessLog(o.set.AccessLog, o.set.AccessLogSample, o.set.ReopenAccessLog, o.log)
		if err != nil {
			return err
		}
		o.meter.accessLog = l
		o.meter.registry.counter("access_log_dropped_total",
			"Lines of the access log that could not be written, or not fast enough.", nil, l.dropped.Load)
	}
	o.meter.tracing, err = newTracing(ctx, o.log)
	return err
}

// wire adds the metrics of the other parts.
func (o *observability) wire(s *service, ends *certificates) {
	o.store = s.data.store
	m := o.meter
	m.registry.MustRegister(newActiveChildren(s.edge.backends.resolver, o.set.MetricsSeries), ends)
	gauge(m.registry, "application_sessions_served", "Sessions of people with requests under way.", nil,
		func() int { sessions, _ := s.people.live.Counts(); return sessions })
	gauge(m.registry, "application_requests_open",
		"Requests under way of people's sessions, upgraded connections among them.", nil,
		func() int { _, requests := s.people.live.Counts(); return requests })
	if s.edge.public.server != nil {
		m.addPublicMetrics(s.edge.public.server.Stats)
	}
	m.addGauges(s.control.sessions.Stats, s.edge.edge.Live)
	gauge(m.registry, "store_writes_waiting", "Calls that wait for their turn to write to the database.", nil,
		o.store.WaitingWrites)
	m.registry.counter("connections_refused_total", "Connections of agents, forwarders and API clients that were "+
		"closed because their client, or all together, had too many that had not shown a credential.", nil,
		s.control.listener.unauthenticated.refused.Load)
	m.addReplicaMetrics(s.replicas)
}

// run keeps metrics and the records of traffic until serving is done, and serves them until close.
func (o *observability) run(serving context.Context, tasks *group) {
	tasks.run(serving, o.meter.traffic.Run, o.dropDeleted, o.monitorStore)
	o.metrics.run(tasks)
	o.probes.run(tasks)
}

// dropDeleted drops the series of deleted endpoints and backends, until ctx is done.
func (o *observability) dropDeleted(ctx context.Context) {
	exists := func(err error) bool { return account.CodeOf(err) != account.CodeNotFound }
	for timer.Sleep(ctx, dropDeletedInterval) {
		before := time.Now().Add(-dropDeletedInterval / 2)
		o.meter.traffic.Endpoints.DropDeleted(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := o.store.Endpoint(ctx, accountID, id)
			return exists(err)
		})
		o.meter.traffic.Backends.DropDeleted(ctx, before, func(ctx context.Context, accountID, id string) bool {
			_, err := o.store.BackendTree(ctx, accountID, id)
			return exists(err)
		})
	}
}

// monitorStore reads what metrics show of the store's rows, every minute until ctx is done. While the
// database does not answer, the last values stay.
func (o *observability) monitorStore(ctx context.Context) {
	for ok := true; ok; ok = timer.Sleep(ctx, monitorInterval) {
		if now, err := o.store.Monitored(ctx); err == nil {
			o.meter.store.monitored.Store(&now)
		}
	}
}

func (o *observability) stop() {
	o.metrics.close()
	o.probes.close()
}

// close sends the remaining traces, writes the queued lines of the access log and ends.
func (o *observability) close() {
	if t := o.meter.tracing; t != nil {
		if err := t.close(); err != nil {
			o.log.Warn("traces are lost", "err", err)
		}
	}
	if l := o.meter.accessLog; l != nil {
		l.close()
	}
	o.stop()
}

const pingTimeout = 2 * time.Second

// healthServer serves /healthz, /readyz and, with a registry, /metrics. A nil healthServer serves
// nothing.
type healthServer struct {
	listener net.Listener
	http     *http.Server
}

// openHealth listens for health requests; nil without an address. ready returns what is missing, or
// nil.
func openHealth(
	ctx context.Context, flag, addr string, registry *prometheus.Registry, ready func(context.Context) error,
	log *slog.Logger,
) (*healthServer, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := listen(ctx, flag, addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	if registry != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	}
	return &healthServer{listener: l, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// addr returns the listener's address; nil without one.
func (h *healthServer) addr() net.Addr {
	if h == nil {
		return nil
	}
	return h.listener.Addr()
}

func (h *healthServer) run(tasks *group) {
	if h != nil {
		tasks.serve(h.http, h.listener)
	}
}

func (h *healthServer) close() {
	if h != nil {
		_ = h.http.Close()
		_ = h.listener.Close()
	}
}

// storeMetrics are the metrics of the database and of the rows that an operator of the service has
// to know. It is a prometheus.Collector of the latter.
type storeMetrics struct {
	seconds map[sqldb.CallKind]prometheus.Observer
	errors  map[sqldb.CallKind]prometheus.Counter

	operators, expiry, oldestAudit *prometheus.Desc

	monitored atomic.Pointer[store.Monitored] // nil until it was read
}

func newStoreMetrics(r metricsRegistry) *storeMetrics {
	const ns = metricsNamespace
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: "store_seconds",
		Help:    "Time of the database's transactions by operation (read, write), with the wait for a turn to write.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"operation"})
	errors := r.counters("store_errors_total", "Transactions that the database failed, by operation (read, write).",
		"operation")
	m := &storeMetrics{seconds: map[sqldb.CallKind]prometheus.Observer{},
		errors: map[sqldb.CallKind]prometheus.Counter{},
		operators: prometheus.NewDesc(ns+"_operators",
			"Operators of all accounts: active, silent (not seen for 3 minutes), gone (for a day).",
			[]string{"state"}, nil),
		expiry: prometheus.NewDesc(ns+"_credential_expiry_timestamp_seconds",
			"When the next API key or authtoken expires, of those that live for two weeks or longer and were used "+
				"within a week; one that has expired counts for another day.",
			[]string{"kind"}, nil),
		oldestAudit: prometheus.NewDesc(ns+"_audit_oldest_event_timestamp_seconds",
			"When the oldest audit event occurred that is still kept, by class (security, activity): they are kept "+
				"for 90 days, and 100,000 of each class an account.",
			[]string{"class"}, nil)}
	for _, kind := range []sqldb.CallKind{sqldb.CallRead, sqldb.CallWrite} {
		m.seconds[kind], m.errors[kind] = seconds.WithLabelValues(string(kind)), errors.WithLabelValues(string(kind))
	}
	r.MustRegister(seconds, m)
	return m
}

// ObserveCall implements sqldb.Observer.
func (m *storeMetrics) ObserveCall(kind sqldb.CallKind, took time.Duration, failed bool) {
	m.seconds[kind].Observe(took.Seconds())
	if failed {
		m.errors[kind].Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.operators
	to <- m.expiry
	to <- m.oldestAudit
}

// Collect implements prometheus.Collector.
func (m *storeMetrics) Collect(to chan<- prometheus.Metric) {
	now := m.monitored.Load()
	if now == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	gauge(m.operators, float64(now.ActiveOperators), "active")
	gauge(m.operators, float64(now.SilentOperators), "silent")
	gauge(m.operators, float64(now.GoneOperators), "gone")
	timestamp := func(d *prometheus.Desc, at time.Time, label string) {
		if !at.IsZero() {
			gauge(d, float64(at.Unix()), label)
		}
	}
	timestamp(m.expiry, now.APIKeyExpiry, "api_key")
	timestamp(m.expiry, now.AuthtokenExpiry, "authtoken")
	timestamp(m.oldestAudit, now.OldestSecurityEvent, "security")
	timestamp(m.oldestAudit, now.OldestActivityEvent, "activity")
}
