// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealedpaths has the metrics of what carries the sealed streams of the operator's programs.
package sealedpaths

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Metrics returns the metrics whose names begin with prefix. Each scrape calls read for each of them.
func Metrics(prefix string, read func() tunnel.SealedPaths) (all []prometheus.Collector) {
	for path, count := range map[string]func(tunnel.SealedPaths) int64{
		"raw": func(p tunnel.SealedPaths) int64 { return p.Raw },
		"mux": func(p tunnel.SealedPaths) int64 { return p.Mux },
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "_sealed_streams_total",
			Help: "Sealed connections towards the service, by path: raw (over a connection of their own, which the " +
				"service can splice), mux (inside those of the session, which costs the service more).",
			ConstLabels: prometheus.Labels{"path": path}}, func() float64 { return float64(count(read())) }))
	}
	gauge := func(name, help, label, value string, number func(tunnel.SealedPaths) int) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help,
			ConstLabels: prometheus.Labels{label: value}}, func() float64 { return float64(number(read())) }))
	}
	for state, count := range map[string]func(tunnel.SealedPaths) int{
		"in_use": func(p tunnel.SealedPaths) int { return p.InUse },
		"parked": func(p tunnel.SealedPaths) int { return p.Parked },
	} {
		gauge("_raw_connections", "Raw connections with the service, by state: in_use, or parked for a sealed one; at "+
			"most a quarter of the descriptors.", "state", state, count)
	}
	for _, why := range tunnel.PairPauses() {
		gauge("_raw_connections_paused", "Replicas of the service at which no raw connection can be parked, by "+
			"reason: unsupported (by the service's version or system), websocket, client_certificate, no_address (one "+
			"of several replicas without --replica-address), cut (something on the way cuts them), limit (of "+
			"descriptors), failed.",
			"reason", string(why), func(p tunnel.SealedPaths) int { return p.Paused[why] })
	}
	return all
}
