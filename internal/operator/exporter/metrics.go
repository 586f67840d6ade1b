// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/operator/sealedpaths"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// registerMetrics registers what the exporter knows of its session, its endpoints and its exports.
func (e *exporter) registerMetrics(registry prometheus.Registerer) error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	number := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	all := []prometheus.Collector{
		gauge("fairlead_exporter_session_up", "1 while the exporter has a session with the service.",
			func() float64 { up, _ := e.states.session(); return number(up) }),
		gauge("fairlead_exporter_leading", "1 while this replica writes the status of objects.",
			func() float64 { return number(e.lead.Leading()) }),
		gauge("fairlead_exporter_endpoints_bound", "Endpoints of objects that this replica holds.",
			func() float64 { bound, _ := e.states.count(); return float64(bound) }),
		gauge("fairlead_exporter_endpoints_refused", "Endpoints of objects that the service refused.",
			func() float64 { _, refused := e.states.count(); return float64(refused) }),
		gauge("fairlead_exporter_deletions_held",
			"Endpoints without an object whose deletion waits for a second round, because they are most.",
			func() float64 { return float64(e.orphans.Held()) }),
		e.traffic.connections, e.traffic.active, e.traffic.bytes, e.traffic.failures,
	}
	if e.exports != nil {
		all = append(all,
			gauge("fairlead_exporter_service_exports", "ServiceExports that there are.",
				func() float64 { exports, _, _ := e.exports.Counts(); return float64(exports) }),
			gauge("fairlead_exporter_service_exports_failed",
				"ServiceExports that the account does not have as they should be; of the replica that leads.",
				func() float64 { _, failed, _ := e.exports.Counts(); return float64(failed) }),
			gauge("fairlead_exporter_service_exports_readable",
				"1 while the cluster has the kind ServiceExport, and lets it be read.",
				func() float64 { _, _, read := e.exports.Counts(); return number(read) }))
	}
	all = append(all, sealedpaths.Metrics("fairlead_exporter", e.sealedPaths)...)
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// sealedPaths returns what carries sealed connections from the service.
func (e *exporter) sealedPaths() tunnel.SealedPaths {
	if a := e.agent.Load(); a != nil {
		return a.SealedPaths()
	}
	return tunnel.SealedPaths{}
}

// trafficMetrics count the connections of each object. Its series go with it.
type trafficMetrics struct {
	connections, failures, bytes *prometheus.CounterVec
	active                       *prometheus.GaugeVec

	mu      sync.Mutex
	objects map[object]bool // those with series
}

func newTrafficMetrics() *trafficMetrics {
	labels := []string{"kind", "namespace", "name"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels, more...))
	}
	return &trafficMetrics{
		connections: counter("fairlead_exporter_connections_total",
			"Connections to the Service of an AgentEndpoint or ServiceExport."),
		failures: counter("fairlead_exporter_upstream_errors_total",
			"Connections for which the Service could not be reached."),
		bytes: counter("fairlead_exporter_bytes_total",
			"Bytes of ended connections, to the upstream (in) and from it (out).", "direction"),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_exporter_connections_active",
			Help: "Connections to its Service that are open."}, labels),
		objects: map[object]bool{},
	}
}

// opened counts a connection that has reached its upstream.
func (t *trafficMetrics) opened(of object) {
	t.update(of, func(labels ...string) {
		t.connections.WithLabelValues(labels...).Inc()
		t.active.WithLabelValues(labels...).Inc()
	})
}

// failed counts a connection that has not.
func (t *trafficMetrics) failed(of object) {
	t.update(of, func(labels ...string) { t.failures.WithLabelValues(labels...).Inc() })
}

// closed counts the end of a connection.
func (t *trafficMetrics) closed(of object, in, out int64) {
	t.update(of, func(labels ...string) {
		t.active.WithLabelValues(labels...).Dec()
		t.bytes.WithLabelValues(append(labels, "in")...).Add(float64(in))
		t.bytes.WithLabelValues(append(labels, "out")...).Add(float64(out))
	})
}

// add begins the series of an object.
func (t *trafficMetrics) add(o object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objects[o] = true
}

// forget ends the series of an object; what its last connections do is not counted.
func (t *trafficMetrics) forget(o object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.objects, o)
	labels := prometheus.Labels{"kind": o.kind, "namespace": o.Namespace, "name": o.Name}
	t.active.DeletePartialMatch(labels)
	for _, vec := range []*prometheus.CounterVec{t.connections, t.failures, t.bytes} {
		vec.DeletePartialMatch(labels)
	}
}

// update changes the series of an object that has some.
func (t *trafficMetrics) update(of object, change func(labels ...string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objects[of] {
		change(of.kind, of.Namespace, of.Name)
	}
}
