// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// metrics are the service's counters. No label names an account, an endpoint or a peer; those of
// endpoints and backends are trafficMetrics.
type metrics struct {
	registry           *prometheus.Registry
	requests           *prometheus.CounterVec // edge requests by status
	duration           prometheus.Histogram   // seconds of edge requests
	opens              *prometheus.CounterVec // streams by hop and outcome
	bytes              *prometheus.CounterVec // to and from agents
	hellos             *prometheus.CounterVec // by role and outcome
	toAgent, fromAgent prometheus.Counter
}

func newMetrics() *metrics {
	const ns = "fairlead_server"
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "requests_total",
			Help: "HTTP requests to endpoints, by status; 499 = the client left first."}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "request_duration_seconds",
			Help:    "Time from a request's header to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}),
		opens: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "opens_total",
			Help: "Streams opened, by hop (forwarder: to us, agent: by us) and outcome."}, []string{"hop", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "bytes_total",
			Help: "Bytes of endpoints' traffic, by direction (to_agent, from_agent)."}, []string{"direction"}),
		hellos: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "hellos_total",
			Help: "Sessions begun or refused, by role and outcome."}, []string{"role", "outcome"}),
	}
	m.toAgent, m.fromAgent = m.bytes.WithLabelValues("to_agent"), m.bytes.WithLabelValues("from_agent")
	build := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": version.String(), "revision": version.Revision()}})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.duration, m.opens, m.bytes, m.hellos, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// addGauges adds gauges of live sessions and connections.
func (m *metrics) addGauges(sessions func() tunnelserver.Stats, connections func() int) {
	const ns = "fairlead_server"
	gauge := func(name, help string, labels prometheus.Labels, value func() int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help,
			ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	const live = "Live tunnel sessions, by role."
	gauge("sessions", live, prometheus.Labels{"role": string(tunnel.RoleAgent)}, func() int {
		return sessions().Agents
	})
	gauge("sessions", live, prometheus.Labels{"role": string(tunnel.RoleForwarder)}, func() int {
		return sessions().Forwarders
	})
	gauge("endpoints", "Endpoints held by a live session.", nil, func() int { return sessions().Endpoints })
	gauge("labelled_tunnels", "Labelled tunnels held by a live session.", nil, func() int { return sessions().Tunnels })
	gauge("streams", "Live streams of all sessions.", nil, func() int { return sessions().Streams })
	gauge("connections", "Clients' connections being served by the edge.", nil, connections)
}

// addRefusedConns registers the count of connections that were closed because their client had too
// many without a credential.
func (m *metrics) addRefusedConns(refused func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "fairlead_server",
		Name: "connections_refused_total",
		Help: "Connections of agents, forwarders and API clients that were closed at once: their client had too " +
			"many that had not shown a credential."}, func() float64 { return float64(refused()) }))
}

// addPublicMetrics adds the metrics of the public listeners.
func (m *metrics) addPublicMetrics(stats func() public.Stats) {
	const ns = "fairlead_server"
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: "public_connections",
		Help: "Live connections of the public listeners."},
		func() float64 { return float64(stats().Live) }))
	for outcome, of := range map[string]func(public.Stats) int64{
		"accepted":           func(s public.Stats) int64 { return s.Accepted },
		"too_many":           func(s public.Stats) int64 { return s.OverLimit },
		"too_many_of_client": func(s public.Stats) int64 { return s.OverClientLimit },
		"no_handshake":       func(s public.Stats) int64 { return s.HandshakeFailed },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: ns,
			Name: "public_connections_total",
			Help: "Connections to the public listeners: accepted, and of these no_handshake and too_many_of_client; " +
				"too_many were not accepted.",
			ConstLabels: prometheus.Labels{"outcome": outcome}}, func() float64 { return float64(of(stats())) }))
	}
}

// countRequest counts a request that was answered with the status.
func (m *metrics) countRequest(status int, d time.Duration) {
	m.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	m.duration.Observe(d.Seconds())
}

// CountStream implements edge.Meter.
func (m *metrics) CountStream(outcome string) { m.opens.WithLabelValues("agent", outcome).Inc() }

// CountBytes implements edge.Meter.
func (m *metrics) CountBytes(toAgent, fromAgent int) {
	if toAgent > 0 {
		m.toAgent.Add(float64(toAgent))
	}
	if fromAgent > 0 {
		m.fromAgent.Add(float64(fromAgent))
	}
}

func (m *metrics) countIncomingStream(outcome string) {
	m.opens.WithLabelValues("forwarder", outcome).Inc()
}

func (m *metrics) countHello(role tunnel.Role, outcome string) {
	if role != tunnel.RoleAgent && role != tunnel.RoleForwarder {
		role = "other" // a peer cannot choose a label's value
	}
	m.hellos.WithLabelValues(string(role), outcome).Inc()
}
