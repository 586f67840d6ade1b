// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// Reasons why connections failed, besides those of package forward: labels of a metric.
const (
	reasonAccept  forward.Reason = "accept"  // it could not be accepted: no descriptors
	reasonAborted forward.Reason = "aborted" // either side aborted an open connection
)

// metrics are the forwarder's metrics by hostname. A hostname's series are deleted with it.
type metrics struct {
	registry    *prometheus.Registry
	connections *prometheus.CounterVec
	active      *prometheus.GaugeVec
	bytes       *prometheus.CounterVec
	errors      *prometheus.CounterVec
	denied      *prometheus.CounterVec
	sealed      *prometheus.CounterVec

	mu    sync.Mutex
	hosts map[string]*hostStats
}

func newMetrics() *metrics {
	label := []string{"hostname"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_forwarder_connections_total", Help: "Connections of pods that were accepted."}, label),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_forwarder_connections_active", Help: "Connections being served."}, label),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_forwarder_bytes_total",
			Help: "Bytes of ended connections, from the client (in) and to it (out)."},
			append(label, "direction")),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_forwarder_errors_total", Help: "Connections that failed, by reason."},
			append(label, "reason")),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_forwarder_access_denied_total",
			Help: "Connections that EndpointAccess objects denied or ended, by reason; " +
				"no_peer is there from the start."},
			append(label, "reason")),
		sealed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_forwarder_sealed_connections_total",
			Help: "Connections that had to be sealed, by outcome: opened, which is there from the start, or why the " +
				"agent's seal was refused (KeyUnknown, KeyChanged, NameMismatch, Expired, NotSealed)."},
			append(label, "outcome")),
		hosts: map[string]*hostStats{},
	}
	m.registry.MustRegister(m.connections, m.active, m.bytes, m.errors, m.denied, m.sealed, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// gauge registers a gauge whose value is computed on every scrape.
func (m *metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// hostStats are the counters of one hostname. All methods are safe for concurrent use.
type hostStats struct {
	metrics     *metrics
	name        string
	connections prometheus.Counter
	active      prometheus.Gauge
	fromClient  prometheus.Counter
	toClient    prometheus.Counter
	sealed      prometheus.Counter // connections that agents opened inside the seal
	removed     atomic.Bool
}

// statsOf returns the counters of a hostname; they are the same until retainHosts drops them.
func (m *metrics) statsOf(name string) *hostStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.hosts[name]
	if h == nil {
		h = &hostStats{
			metrics: m, name: name,
			connections: m.connections.WithLabelValues(name), active: m.active.WithLabelValues(name),
			fromClient: m.bytes.WithLabelValues(name, "in"), toClient: m.bytes.WithLabelValues(name, "out"),
			sealed: m.sealed.WithLabelValues(name, "opened"),
		}
		m.denied.WithLabelValues(name, string(endpointaccess.ReasonNoPeer)) // 0, so that rates see the first one
		m.hosts[name] = h
	}
	return h
}

// retainHosts drops the series of all other hostnames.
func (m *metrics) retainHosts(names map[string]struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, h := range m.hosts {
		if _, ok := names[name]; ok {
			continue
		}
		h.removed.Store(true)
		delete(m.hosts, name)
		for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.connections, m.active, m.bytes,
			m.errors, m.denied, m.sealed} {
			vec.DeletePartialMatch(prometheus.Labels{"hostname": name})
		}
	}
}

func (h *hostStats) begin() { h.connections.Inc(); h.active.Inc() }
func (h *hostStats) end()   { h.active.Dec() }

func (h *hostStats) addBytes(fromClient, toClient int64) {
	h.fromClient.Add(float64(fromClient))
	h.toClient.Add(float64(toClient))
}

// countFailure counts a failure, unless the hostname is gone: that would recreate its series.
func (h *hostStats) countFailure(label forward.Reason) {
	if !h.removed.Load() {
		h.metrics.errors.WithLabelValues(h.name, string(label)).Inc()
	}
}

// countDenial counts a connection that was denied, or ended, likewise.
func (h *hostStats) countDenial(label string) {
	if !h.removed.Load() {
		h.metrics.denied.WithLabelValues(h.name, label).Inc()
	}
}

// countSeal counts a connection whose agent's seal was refused, likewise.
func (h *hostStats) countSeal(reason sealed.Reason) {
	if !h.removed.Load() {
		h.metrics.sealed.WithLabelValues(h.name, string(reason)).Inc()
	}
}

// Failure is why a connection of a port last failed.
type Failure struct {
	At time.Time `json:"at"`
	// Reason is the label of fairlead_forwarder_errors_total. upstream_broken and agent_silent are
	// of http requests.
	Reason string `json:"reason"`
	// Message is the sentence that an HTTP client was sent.
	Message string `json:"message"`
}

// portStats counts the connections of one listener: for the metrics of its hostname and for
// /status. All methods are safe for concurrent use.
type portStats struct {
	*hostStats
	accepted, serving atomic.Int64
	success           atomic.Int64 // time of the last success in Unix nanoseconds; 0: none
	failure           atomic.Pointer[Failure]
	seal              atomic.Pointer[SealRefusal] // seal is set since an agent's seal was refused, until one is not.
	// firstKey is the key of the first sealed connection while the rules prefer a seal.
	firstKey atomic.Pointer[string]
}

func (p *portStats) begin() {
	p.accepted.Add(1)
	p.serving.Add(1)
	p.hostStats.begin()
}

func (p *portStats) end() {
	p.serving.Add(-1)
	p.hostStats.end()
}

// recordSuccess records that the edge opened a stream.
func (p *portStats) recordSuccess(at time.Time) { p.success.Store(at.UnixNano()) }

// recordFailure counts a connection that failed and records the cause, unless the client itself
// aborted.
func (p *portStats) recordFailure(label forward.Reason, message string) {
	p.countFailure(label)
	if label != forward.ReasonClient {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: string(label), Message: message})
	}
}

// recordRequestResult records what the edge reports about an http request: the code of the error
// page that it sent, or "" when the upstream answered. The stream was opened, so no metric counts
// the connection as failed.
func (p *portStats) recordRequestResult(code account.Code, url string) {
	if code == "" {
		p.recordSuccess(time.Now())
	} else if c, ok := trafficerror.OfPage(code); ok {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: c.Reason, Message: c.Message(url)})
	}
}

// fill sets the counters of a listener's status.
func (p *portStats) fill(st *ListenerStatus) {
	st.Connections, st.Active, st.LastFailure = p.accepted.Load(), p.serving.Load(), p.failure.Load()
	st.SealRefused, st.stats = p.seal.Load(), p
	if at := p.success.Load(); at != 0 {
		t := time.Unix(0, at).UTC()
		st.LastSuccess = &t
	}
}
