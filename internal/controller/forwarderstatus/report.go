// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"fmt"
	"time"
)

// Report is what the forwarders say of one hostname.
type Report struct {
	// Known is false until every forwarder has been heard once: then nothing is to be said yet.
	Known bool
	// Forwarders run (their pods are ready and are not being deleted). Listening of them have every
	// port of the hostname. Unheard of them do not tell.
	Forwarders, Listening, NotReporting int
	// Sessions is how many of them have a session with the service's edge.
	Sessions int
	// Starting says that no forwarder runs yet and that some are about to.
	Starting bool
	// Settled is false shortly after a forwarder came or went.
	Settled bool
	// Failures are ports that forwarders do not listen on, by pod and port.
	Failures []Failure
	// Unread is why the status of a forwarder cannot be read.
	Unread string
}

// Failure is a port that a forwarder does not listen on.
type Failure struct {
	Pod  string
	Port int
	// Error is why; empty when the forwarder does not say, because its cluster has not told it of the
	// port yet.
	Error string
}

// Complete says that every forwarder listens for the hostname.
func (r Report) Complete() bool { return r.Known && r.Forwarders > 0 && r.Listening == r.Forwarders }

// NotifyOnChange asks for the hostname to be told of promptly, once, when its truth is another. Call it
// before Hostname.
func (r *Reader) NotifyOnChange(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited[hostname] = struct{}{}
}

// CancelNotify takes an Await back.
func (r *Reader) CancelNotify(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.awaited, hostname)
}

// Report returns the truth of a hostname that is to be served on the given target ports.
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
			if f.pod.Ready && f.err != "" {
				report.Unread = fmt.Sprintf("forwarder %s: %s", f.pod.Name, f.err)
			}
			continue
		}
		failures := f.listenFailures(hostname, ports)
		if len(failures) == 0 {
			report.Listening++
		}
		report.Failures = append(report.Failures, failures...)
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

// EdgeStatus says whether all forwarders have a session with the service's edge; if not, problem says
// why. Until that has been so for some seconds nothing is known: then the last word holds.
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
		return true, "no forwarder runs"
	}
	for _, f := range r.sorted() {
		switch {
		case !f.pod.Ready || f.reporting && f.session:
			continue
		case !f.reporting:
			problem = fmt.Sprintf("forwarder %s does not tell its status: %s", f.pod.Name, f.err)
		default:
			problem = fmt.Sprintf("forwarder %s: %s", f.pod.Name, f.edgeError)
		}
		break
	}
	return true, fmt.Sprintf("%d of %d forwarders have a session with the edge; %s", c.sessions, c.running, problem)
}
