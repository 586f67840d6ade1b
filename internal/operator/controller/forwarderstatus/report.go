// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"cmp"
	"fmt"
	"time"
)

// Report is the forwarders' state for one hostname.
type Report struct {
	// Known is false until every forwarder has reported once.
	Known bool
	// Forwarders is how many run: their pods are ready and not being deleted. Listening of them
	// have every port of the hostname, NotReporting of them do not report their status.
	Forwarders, Listening, NotReporting int
	// Sessions is how many of them have a session with the service's edge.
	Sessions int
	// Starting reports that no forwarder runs yet and that some are starting.
	Starting bool
	// Settled is false shortly after a forwarder was added or removed.
	Settled bool
	// Failures are ports that forwarders do not listen on, by pod and port.
	Failures []Failure
	// SealsRefused are the ports at which forwarders last refused an agent's seal.
	SealsRefused map[int]SealRefused
}

// SealRefused is why a forwarder refused the seal of the agents that answered at a port.
type SealRefused struct{ Pod, Reason, Message string }

// Failure is a port that a forwarder does not listen on.
type Failure struct {
	Pod  string
	Port int
	// Error is why; empty if the forwarder has no listener for the port, because it has not
	// received the object yet.
	Error string
}

// Complete reports whether every forwarder listens for the hostname.
func (r Report) Complete() bool { return r.Known && r.Forwarders > 0 && r.Listening == r.Forwarders }

// NotifyOnChange requests one notification of Now when the hostname's report changes. Call it
// before Report.
func (r *Reader) NotifyOnChange(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited[hostname] = struct{}{}
}

// CancelNotify cancels NotifyOnChange.
func (r *Reader) CancelNotify(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.awaited, hostname)
}

// Report returns the forwarders' state for a hostname with the given target ports.
func (r *Reader) Report(hostname string, ports []int) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	report := Report{
		Known: r.synced && (c.running > 0 || c.pending == 0), Forwarders: c.running, NotReporting: c.notReporting,
		Sessions: c.sessions,
		Starting: c.running == 0 && c.starting+c.pending > 0, Settled: time.Since(r.membersChangedAt) >= settleTime,
	}
	for _, f := range r.sorted() {
		if !f.pod.Ready || !f.reporting {
			continue
		}
		failures := f.listenFailures(hostname, ports)
		if len(failures) == 0 {
			report.Listening++
		}
		report.Failures = append(report.Failures, failures...)
		for _, number := range ports {
			if p := f.ports[number]; p.hostname == hostname && p.seal.Reason != "" {
				if report.SealsRefused == nil {
					report.SealsRefused = map[int]SealRefused{}
				}
				report.SealsRefused[number] = SealRefused{f.pod.Name, p.seal.Reason, p.seal.Message}
			}
		}
	}
	return report
}

func (f *forwarder) listenFailures(hostname string, ports []int) []Failure {
	var failures []Failure
	for _, number := range ports {
		switch p, ok := f.ports[number]; {
		case !ok || p.hostname != hostname:
			failures = append(failures, Failure{Pod: f.pod.Name, Port: number})
		case !p.listening:
			failures = append(failures, Failure{Pod: f.pod.Name, Port: number, Error: p.err})
		}
	}
	return failures
}

// Legs returns how many replicas of the service a forwarder is connected to, of how many it should
// be, such as "2/3": of the forwarder that lacks the most. legs is "" when no forwarder is
// connected to a service with replicas.
func (r *Reader) Legs() (known bool, legs string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced || r.counts.running == 0 && r.counts.pending > 0 {
		return false, ""
	}
	var worst *forwarder
	for _, f := range r.byUID {
		if f.pod.Ready && f.reporting && f.wantedLegs > 0 && (worst == nil || f.hasFewerLegs(worst)) {
			worst = f
		}
	}
	if worst == nil {
		return true, ""
	}
	return true, fmt.Sprintf("%d/%d", worst.legs, worst.wantedLegs)
}

func (f *forwarder) hasFewerLegs(o *forwarder) bool {
	return cmp.Or(cmp.Compare(o.wantedLegs-o.legs, f.wantedLegs-f.legs), cmp.Compare(f.legs, o.legs)) < 0
}

// EdgeStatus returns whether all forwarders have a session with the service's edge, and the problem
// if not. A problem that has lasted only some seconds is not known yet.
func (r *Reader) EdgeStatus() (known bool, problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	switch {
	case !r.synced, c.running == 0 && c.pending > 0:
		return false, ""
	case c.running > 0 && c.sessions == c.running:
		return true, ""
	case r.edgeDownSince.IsZero() || time.Since(r.edgeDownSince) < settleTime:
		return false, ""
	case c.running == 0:
		return true, "no forwarder is running"
	}
	for _, f := range r.sorted() {
		switch {
		case !f.pod.Ready || f.reporting && f.session:
			continue
		case !f.reporting:
			problem = fmt.Sprintf("forwarder %s does not report its status: %s", f.pod.Name, f.err)
		default:
			problem = fmt.Sprintf("forwarder %s: %s", f.pod.Name, f.edgeError)
		}
		break
	}
	return true, fmt.Sprintf("%d of %d forwarders have a session with the edge; %s", c.sessions, c.running, problem)
}
