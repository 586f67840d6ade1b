// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package projectionlatency

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Tracker knows the URLs that wait for their Services. A nil Tracker measures nothing. Its methods
// are safe for concurrent use.
type Tracker struct {
	clock   clock.PassiveClock
	seconds prometheus.Histogram

	mu      sync.Mutex
	waiting map[string]map[int32]time.Time // hostname -> port -> since when
}

// New returns a Tracker that goes by the clock.
func New(clock clock.PassiveClock) *Tracker {
	return &Tracker{
		clock: clock, waiting: map[string]map[int32]time.Time{},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "fairlead_operator",
			Name: "projection_seconds",
			Help: "Time from the event of a new URL until both of its Services exist; " +
				"not of URLs that cannot be projected.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}),
	}
}

// Register registers the metrics.
func (t *Tracker) Register(registry prometheus.Registerer) error {
	gauge := func(name, help string, value func() float64) error {
		return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_operator",
			Name: name, Help: help}, value))
	}
	return errors.Join(
		registry.Register(t.seconds),
		gauge("projections_pending", "New URLs that wait for their Services.", func() float64 {
			n, _ := t.pending()
			return float64(n)
		}),
		gauge("projection_oldest_pending_seconds", "How long the oldest of the new URLs has waited for its Services.",
			func() float64 {
				_, oldest := t.pending()
				return oldest.Seconds()
			}),
	)
}

// Begin records that a URL is new.
func (t *Tracker) Begin(hostname string, port int32) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[hostname] == nil {
		t.waiting[hostname] = map[int32]time.Time{}
	}
	if _, known := t.waiting[hostname][port]; !known {
		t.waiting[hostname][port] = t.clock.Now()
	}
}

// Done records that the ports of the hostname have their Services.
func (t *Tracker) Done(hostname string, ports []int32) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for port, since := range t.waiting[hostname] {
		if slices.Contains(ports, port) {
			t.seconds.Observe(t.clock.Now().Sub(since).Seconds())
			t.forget(hostname, port)
		}
	}
}

// Retain drops the waiting ports of the hostname that are not among those of its object.
func (t *Tracker) Retain(hostname string, ports []int32) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for port := range t.waiting[hostname] {
		if !slices.Contains(ports, port) {
			t.forget(hostname, port)
		}
	}
}

// Drop drops all waiting ports of the hostname: it cannot be projected.
func (t *Tracker) Drop(hostname string) { t.Retain(hostname, nil) }

// forget drops a port; mu must be held.
func (t *Tracker) forget(hostname string, port int32) {
	if delete(t.waiting[hostname], port); len(t.waiting[hostname]) == 0 {
		delete(t.waiting, hostname)
	}
}

// pending returns how many URLs wait, and how long the oldest of them has.
func (t *Tracker) pending() (n int, oldest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for _, ports := range t.waiting {
		for _, since := range ports {
			n, oldest = n+1, max(oldest, now.Sub(since))
		}
	}
	return n, oldest
}
