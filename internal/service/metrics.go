// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/public"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// metricsRegistry registers the metrics of the service, whose names begin with "fairlead_server_".
type metricsRegistry struct{ *prometheus.Registry }

const metricsNamespace = "fairlead_server"

func (r metricsRegistry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func (r metricsRegistry) histogram(name, help string, buckets ...float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help,
		Buckets: buckets})
	r.MustRegister(h)
	return h
}

// gauge registers a gauge that is read at each scrape.
func gauge[N int | int64 | float64](r metricsRegistry, name, help string, labels prometheus.Labels, value func() N) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help,
		ConstLabels: labels}, func() float64 { return float64(value()) }))
}

// counter registers a counter that is read at each scrape.
func (r metricsRegistry) counter(name, help string, labels prometheus.Labels, value func() int64) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help,
		ConstLabels: labels}, func() float64 { return float64(value()) }))
}

// metrics are the service's counters. No label names an account, an endpoint or a peer; those of
// endpoints and backends are trafficMetrics.
type metrics struct {
	registry           metricsRegistry
	requests           *prometheus.CounterVec // edge requests by status
	duration           prometheus.Histogram   // seconds of edge requests
	opens              *prometheus.CounterVec // streams by hop and outcome
	hellos             *prometheus.CounterVec // by role and outcome
	binds              *prometheus.CounterVec // by outcome
	toAgent, fromAgent prometheus.Counter
}

func newMetrics() *metrics {
	r := metricsRegistry{prometheus.NewRegistry()}
	bytes := r.counters("bytes_total",
		"Bytes to and from agents, headers included, by direction (to_agent, from_agent).", "direction")
	m := &metrics{
		registry: r,
		requests: r.counters("requests_total", "HTTP requests to endpoints, by status; 499 = the client left first.",
			"code"),
		duration: r.histogram("request_duration_seconds", "Time from a request's header to the end of its answer.",
			prometheus.ExponentialBuckets(0.001, 4, 9)...),
		opens: r.counters("opens_total", "Streams opened, by hop (forwarder: to here, agent: from here) and outcome.",
			"hop", "outcome"),
		hellos: r.counters("hellos_total", "Sessions begun or refused, by role and outcome.", "role", "outcome"),
		binds: r.counters("binds_total",
			"Endpoints and labelled tunnels that agents asked for, by outcome: accepted, or the refusal's code.",
			"outcome"),
		toAgent: bytes.WithLabelValues("to_agent"), fromAgent: bytes.WithLabelValues("from_agent"),
	}
	m.binds.WithLabelValues("accepted")
	gauge(r, "build_info", "Always 1.", prometheus.Labels{"version": version.String(), "revision": version.Revision()},
		func() int { return 1 })
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// addGauges adds gauges of live sessions and connections.
func (m *metrics) addGauges(sessions func() tunnelserver.Stats, connections func() int) {
	const live = "Live tunnel sessions, by role."
	gauge(m.registry, "sessions", live, prometheus.Labels{"role": string(tunnel.RoleAgent)},
		func() int { return sessions().Agents })
	gauge(m.registry, "sessions", live, prometheus.Labels{"role": string(tunnel.RoleForwarder)},
		func() int { return sessions().Forwarders })
	gauge(m.registry, "endpoints", "Endpoints held by a live session.", nil,
		func() int { return sessions().Endpoints })
	gauge(m.registry, "labelled_tunnels", "Labelled tunnels held by a live session.", nil,
		func() int { return sessions().Tunnels })
	gauge(m.registry, "streams", "Live streams of all sessions.", nil, func() int { return sessions().Streams })
	gauge(m.registry, "connections", "Clients' connections being served by the edge.", nil, connections)
}

// addSealedMetrics adds the metrics of what carries sealed streams.
func (m *metrics) addSealedMetrics(pairs *tunnel.PairBudget) {
	for _, role := range []tunnel.Role{tunnel.RoleAgent, tunnel.RoleForwarder} {
		count := func(path string, value func() int64) {
			m.registry.counter("sealed_streams_total", "Sealed streams, by role of the session and path: raw (over a "+
				"connection of their own), mux (inside those of the session, which costs more); raw on both sides is "+
				"spliced.",
				prometheus.Labels{"role": string(role), "path": path}, value)
		}
		count("raw", func() int64 { raw, _ := pairs.Streams(role).Counts(); return raw })
		count("mux", func() int64 { _, mux := pairs.Streams(role).Counts(); return mux })
	}
	const held = "Raw connections of sealed streams, by state: in_use, or parked for one; together at most half of " +
		"the process's descriptors."
	gauge(m.registry, "raw_connections", held, prometheus.Labels{"state": "in_use"},
		func() int { inUse, _ := pairs.Connections(); return inUse })
	gauge(m.registry, "raw_connections", held, prometheus.Labels{"state": "parked"},
		func() int { _, parked := pairs.Connections(); return parked })
}

// addPublicMetrics adds the metrics of the public listeners.
func (m *metrics) addPublicMetrics(stats func() public.Stats) {
	gauge(m.registry, "public_connections", "Live connections of the public listeners.", nil,
		func() int { return stats().Live })
	for outcome, of := range map[string]func(public.Stats) int64{
		"accepted":           func(s public.Stats) int64 { return s.Accepted },
		"too_many":           func(s public.Stats) int64 { return s.OverLimit },
		"too_many_of_client": func(s public.Stats) int64 { return s.OverClientLimit },
		"no_handshake":       func(s public.Stats) int64 { return s.HandshakeFailed },
	} {
		m.registry.counter("public_connections_total", "Connections to the public listeners: accepted, and of these "+
			"no_handshake (TLS did not come about) and too_many_of_client; too_many were not accepted.",
			prometheus.Labels{"outcome": outcome}, func() int64 { return of(stats()) })
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

// CountIncomingStream implements tunnelserver.Meter.
func (m *metrics) CountIncomingStream(outcome string) {
	m.opens.WithLabelValues("forwarder", outcome).Inc()
}

// CountHello implements tunnelserver.Meter.
func (m *metrics) CountHello(role tunnel.Role, outcome string) {
	if role != tunnel.RoleAgent && role != tunnel.RoleForwarder {
		role = "other" // a peer cannot choose a label's value
	}
	m.hellos.WithLabelValues(string(role), outcome).Inc()
}

// CountBind implements tunnelserver.Meter.
func (m *metrics) CountBind(outcome string) { m.binds.WithLabelValues(outcome).Inc() }

// apiMetrics are the metrics of the API and the dashboard.
type apiMetrics struct {
	requests   *prometheus.CounterVec
	watchDelay prometheus.Histogram
}

func newAPIMetrics(r metricsRegistry) *apiMetrics {
	m := &apiMetrics{
		requests: r.counters("api_requests_total", "Requests to API and dashboard that have ended, by class of the "+
			"status and code of docs/fix/errors.md (none: no error).", "class", "code"),
		watchDelay: r.histogram("watch_delay_seconds",
			"Time from the creation of an endpoint until an open watch of the API was told.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
	}
	m.requests.WithLabelValues("2xx", "")
	return m
}

// CountAnswer implements httpkit.Meter.
func (m *apiMetrics) CountAnswer(status int, code account.Code) {
	m.requests.WithLabelValues(strconv.Itoa(status/100)+"xx", string(code)).Inc()
}

// ObserveWatch implements httpkit.Meter. Clocks of replicas may differ a little.
func (m *apiMetrics) ObserveWatch(delay time.Duration) { m.watchDelay.Observe(max(0, delay).Seconds()) }

// addReplicaMetrics adds the metrics of a service that is one of several replicas.
func (m *metrics) addReplicaMetrics(r *replicas) {
	if r.alone() {
		return
	}
	sum := func(of func(peers.Status) int64) func() int64 {
		return func() (total int64) {
			for _, p := range r.peers.Status() {
				total += of(p)
			}
			return total
		}
	}
	for state, linked := range map[string]bool{"linked": true, "lost": false} {
		gauge(m.registry, "peers", "Other replicas of the database, by whether this one has a link to them.",
			prometheus.Labels{"state": state}, sum(func(p peers.Status) int64 {
				if p.Connected == linked {
					return 1
				}
				return 0
			}))
	}
	gauge(m.registry, "peer_changes_pending", "Changes that other replicas have not answered yet.", nil,
		sum(func(p peers.Status) int64 { return p.PendingChanges }))
	seconds := func(name, help string, value func() time.Duration) {
		gauge(m.registry, name, help, nil, func() float64 { return value().Seconds() })
	}
	seconds("peer_round_trip_seconds", "The longest of the last round trips to other replicas.",
		func() (longest time.Duration) {
			for _, p := range r.peers.Status() {
				longest = max(longest, p.RoundTrip)
			}
			return longest
		})
	seconds("notification_lag_seconds", "How long the other replicas waited for the news of this one's last change.",
		r.store.Database().NotificationLag)
	seconds("clock_offset_seconds", "How far this machine's clock is ahead of the database's, at least.",
		r.store.ClockOffset)
	seconds("revocation_lease_seconds", "How long people who logged in are served without news from the database.",
		r.lease.Remaining)
	const relayed = "Streams to agents over another replica (out), and for another replica to agents here (in)."
	m.registry.counter("relayed_streams_total", relayed, prometheus.Labels{"direction": "out"},
		func() int64 { return r.peers.Totals().RelayedOut })
	m.registry.counter("relayed_streams_total", relayed, prometheus.Labels{"direction": "in"},
		func() int64 { return r.peers.Totals().RelayedIn })
	m.registry.counter("peer_changes_overdue_total",
		"Changes that a replica had not answered when its lease was over.", nil,
		func() int64 { return r.peers.Totals().OverdueChanges })
}
