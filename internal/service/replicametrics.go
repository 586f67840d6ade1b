// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/service/peers"
)

// addReplicaMetrics adds the metrics of a service that is one of several replicas.
func (m *metrics) addReplicaMetrics(s *service) {
	if s.replica == nil {
		return
	}
	const ns = "fairlead_server"
	links := s.replica.peers
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help,
			ConstLabels: labels}, value))
	}
	sum := func(of func(peers.Status) float64) func() float64 {
		return func() (total float64) {
			for _, p := range links.Status() {
				total += of(p)
			}
			return total
		}
	}
	for state, linked := range map[string]bool{"linked": true, "lost": false} {
		gauge("peers", "Other replicas of the database, by whether this one has a link to them.",
			prometheus.Labels{"state": state}, sum(func(p peers.Status) float64 {
				if p.Connected == linked {
					return 1
				}
				return 0
			}))
	}
	gauge("peer_changes_pending", "Changes that other replicas have not answered yet.", nil,
		sum(func(p peers.Status) float64 { return float64(p.PendingChanges) }))
	gauge("peer_round_trip_seconds", "The longest of the last round trips to other replicas.", nil, func() float64 {
		longest := 0.0
		for _, p := range links.Status() {
			longest = max(longest, p.RoundTrip.Seconds())
		}
		return longest
	})
	gauge("notification_lag_seconds", "How long the other replicas waited for the news of this one's last change.", nil,
		func() float64 { return s.store.NotificationLag().Seconds() })
	gauge("clock_offset_seconds", "How far this machine's clock is ahead of the database's, at least.", nil,
		func() float64 { return s.store.ClockOffset().Seconds() })
	gauge("revocation_lease_seconds", "How long people who logged in are served without news from the database.", nil,
		func() float64 { return s.lease.Remaining().Seconds() })
	count := func(name, help string, labels prometheus.Labels, value func(peers.Totals) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help,
			ConstLabels: labels}, func() float64 { return float64(value(links.Totals())) }))
	}
	const relayed = "Streams to agents over another replica (out), and for another replica to agents here (in)."
	count("relayed_streams_total", relayed, prometheus.Labels{"direction": "out"},
		func(t peers.Totals) int64 { return t.RelayedOut })
	count("relayed_streams_total", relayed, prometheus.Labels{"direction": "in"},
		func(t peers.Totals) int64 { return t.RelayedIn })
	count("peer_changes_overdue_total", "Changes that a replica had not answered when its lease was over.", nil,
		func(t peers.Totals) int64 { return t.OverdueChanges })
}
