// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// forwarder is the state of one pod. Reader.mu guards it.
type forwarder struct {
	pod  Pod
	stop context.CancelFunc // stop ends the stream.

	reporting bool      // its whole status was received and is still valid
	lostAt    time.Time // since when there is no stream; zero while there is one
	err       string    // why there is no stream
	session   bool
	edgeError string // why it has no session
	// replicas of the service that it is connected to, and that it should be; both 0 without
	// replicas
	legs, wantedLegs int
	ports            map[int]port

	access, trust *accessLine // nil: it reports none, as one of an earlier version
	denied        []DeniedCalls
}

// port is one listener.
type port struct {
	hostname  string
	listening bool
	err       string
	seal      seal
	// sealedURL was sealed by an agent with the key, which is to be recorded; both are empty else.
	sealedURL, key string
}

// seal is why a seal was refused; its zero value = it was not.
type seal struct {
	Reason  string `json:"reason"` // Reason is a sealed.Reason.
	Message string `json:"message"`
}

func (f *forwarder) streamBroke(err error) {
	if f.lostAt.IsZero() {
		f.lostAt = time.Now()
	}
	f.err = err.Error()
}

// applyLine applies a line of the stream, and returns the hostnames that it concerns. The first
// line replaces everything. It returns nil if every hostname is concerned, as for a forwarder that
// was not reporting.
func (f *forwarder) applyLine(l *line, first bool) []string {
	before, wasReporting := f.ports, !f.reporting
	if first {
		f.ports, f.reporting, f.lostAt, f.err = make(map[int]port, len(l.Listeners)), true, time.Time{}, ""
	}
	concerned := map[string]struct{}{}
	for _, l := range l.Listeners {
		next := port{hostname: l.Hostname, listening: l.Listening, err: truncate(l.Error),
			seal: seal{truncate(l.SealRefused.Reason), truncate(l.SealRefused.Message)}}
		if l.SealKey != "" {
			next.sealedURL, next.key = truncate(l.URL), truncate(l.SealKey)
		}
		if last, ok := before[l.Port]; !ok || last != next {
			concerned[last.hostname], concerned[next.hostname] = struct{}{}, struct{}{}
		}
		f.ports[l.Port] = next
	}
	for _, number := range l.Gone {
		concerned[f.ports[number].hostname] = struct{}{}
		delete(f.ports, number)
	}
	if first {
		for number, last := range before {
			if _, ok := f.ports[number]; !ok {
				concerned[last.hostname] = struct{}{}
			}
		}
	}
	if l.Session != nil {
		f.session, f.edgeError = l.Session.Up, truncate(l.Session.Error)
		f.legs, f.wantedLegs = min(l.servingLegs(), l.Session.WantedLegs), l.Session.WantedLegs
	}
	if wasReporting || !f.pod.Ready { // detectChanges notifies all hostnames
		return nil
	}
	delete(concerned, "")
	return slices.Collect(maps.Keys(concerned))
}

// truncate limits another process's message to a readable length.
func truncate(s string) string {
	const maxLength = 300
	if len(s) > maxLength {
		s = strings.ToValidUTF8(s[:maxLength], "") + "…"
	}
	return strings.Clone(s)
}

// counts summarizes all forwarders at one moment.
type counts struct {
	members      string // names of those that run, with a mark if not reporting
	running      int    // ready, and reporting or overdue
	notReporting int    // the overdue ones among them
	pending      int    // ready, and not overdue yet
	starting     int    // not ready yet
	sessions     int
}

// countForwarders summarizes the forwarders in the order of their names. mu must be held.
func (r *Reader) countForwarders(now time.Time) counts {
	var c counts
	var members strings.Builder
	for _, f := range r.sorted() {
		if !f.lostAt.IsZero() && now.Sub(f.lostAt) >= streamTimeout {
			f.reporting = false
		}
		switch {
		case !f.pod.Ready:
			c.starting++
			continue
		case f.reporting:
			members.WriteString(f.pod.Name + " ")
		case now.Sub(f.lostAt) < streamTimeout:
			c.pending++
			continue
		default:
			c.notReporting++
			members.WriteString(f.pod.Name + "? ")
		}
		c.running++
		if f.reporting && f.session {
			c.sessions++
		}
	}
	c.members = members.String()
	return c
}

func (r *Reader) sorted() []*forwarder {
	return slices.SortedFunc(maps.Values(r.byUID), func(a, b *forwarder) int {
		return cmp.Compare(a.pod.Name, b.pod.Name)
	})
}

// collector counts the forwarders by state. It is a prometheus.Collector.
type collector struct {
	r    *Reader
	desc *prometheus.Desc
}

// RegisterMetrics registers the number of forwarders by their state, once the pods are known.
func (r *Reader) RegisterMetrics(registry prometheus.Registerer) error {
	return registry.Register(&collector{r, prometheus.NewDesc("fairlead_operator_forwarders",
		"Forwarders as the manager that leads sees them: with_session (to the edge), without_session, not_reporting "+
			"(their status), starting (not ready).", []string{"state"}, nil)})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.r.mu.Lock()
	listed, now := c.r.listed, c.r.counts
	c.r.mu.Unlock()
	if !listed {
		return
	}
	for state, n := range map[string]int{
		"with_session": now.sessions, "without_session": now.running - now.notReporting - now.sessions,
		"not_reporting": now.notReporting, "starting": now.starting + now.pending,
	} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
