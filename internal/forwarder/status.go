// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// Status is what /status answers: the truth of this forwarder at one moment.
type Status struct {
	Pod       string           `json:"pod,omitempty"` // its name
	Ready     bool             `json:"ready"`
	Draining  bool             `json:"draining"`
	Session   SessionStatus    `json:"session"`
	Listeners []ListenerStatus `json:"listeners"`
}

// Delta is a later line of /status?watch=true: what has changed since the line before. An empty one
// says that nothing has.
type Delta struct {
	Ready     *bool            `json:"ready,omitempty"`
	Draining  *bool            `json:"draining,omitempty"`
	Session   *SessionStatus   `json:"session,omitempty"`
	Listeners []ListenerStatus `json:"listeners,omitempty"` // new or changed
	Gone      []int            `json:"gone,omitempty"`      // target ports without a listener
}

// ListenerStatus is one target port as /status shows it.
type ListenerStatus struct {
	Port        int    `json:"port"` // the target port
	Hostname    string `json:"hostname"`
	ServicePort int    `json:"service_port"` // the URL's
	Scheme      string `json:"scheme"`
	URL         string `json:"url"`
	Endpoint    string `json:"endpoint,omitempty"` // empty while no endpoint has the URL
	Listening   bool   `json:"listening"`
	Error       string `json:"error,omitempty"` // why not

	Connections int64 `json:"connections"` // accepted so far
	Active      int64 `json:"active"`      // being served
	// LastSuccess is when the edge last opened a stream: for tcp through to the upstream, for http as
	// far as the edge itself. What the edge then tells of http requests that did not get through is
	// LastFailure.
	LastSuccess *time.Time `json:"last_success,omitempty"`
	// LastFailure is why a connection last did not get through.
	LastFailure *Failure `json:"last_failure,omitempty"`
}

// withoutCounters are the status without what connections met.
func (l ListenerStatus) withoutCounters() ListenerStatus {
	l.Connections, l.Active, l.LastSuccess, l.LastFailure = 0, 0, nil, nil
	return l
}

func (f *forwarder) status() Status {
	return Status{
		Pod: f.options.InstanceID, Ready: f.ready.Load(), Draining: f.draining.Load(), Session: f.edge.status(),
		Listeners: f.listeners.status(),
	}
}

// delta returns what is different from an earlier status; counters alone are no difference.
func (s Status) delta(last Status) (d Delta, different bool) {
	if s.Ready != last.Ready {
		d.Ready, different = &s.Ready, true
	}
	if s.Draining != last.Draining {
		d.Draining, different = &s.Draining, true
	}
	if s.Session != last.Session {
		d.Session, different = &s.Session, true
	}
	before := make(map[int]ListenerStatus, len(last.Listeners))
	for _, l := range last.Listeners {
		before[l.Port] = l.withoutCounters()
	}
	for _, l := range s.Listeners {
		if was, ok := before[l.Port]; !ok || was != l.withoutCounters() {
			d.Listeners = append(d.Listeners, l)
		}
		delete(before, l.Port)
	}
	for _, l := range last.Listeners {
		if _, gone := before[l.Port]; gone {
			d.Gone = append(d.Gone, l.Port)
		}
	}
	return d, different || len(d.Listeners)+len(d.Gone) > 0
}

const (
	statusInterval     = time.Second      // between two lines of a watch, at least
	statusHeartbeat    = 10 * time.Second // at most; readers take 25 s of silence for a broken stream
	statusWriteTimeout = 10 * time.Second // for one line
	maxStatusWatches   = 16               // watches at a time: one of each manager, and people's
	watchRequested     = "true"           // of ?watch=
)

// serveStatus answers those who may read the installation's KubernetesOperator: they have the
// token.
func (f *forwarder) serveStatus(w http.ResponseWriter, r *http.Request) {
	switch uid := f.operatorUID.Load(); {
	case uid == nil:
		http.Error(w, "the KubernetesOperator, which says who may read this, is not known yet", http.StatusServiceUnavailable)
		return
	case !statustoken.Valid(r, statustoken.Derive(*uid, f.options.InstanceID)):
		http.Error(w, "the status is for those who may read the KubernetesOperator; fairlead doctor asks for them",
			http.StatusForbidden)
		return
	}
	if r.FormValue("watch") == watchRequested {
		f.serveWatch(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f.status()) // the client may be gone
}

// serveWatch answers with the status, and then with a line for every change until the client or the
// forwarder goes.
func (f *forwarder) serveWatch(w http.ResponseWriter, r *http.Request) {
	defer f.watches.Add(-1)
	if f.watches.Add(1) > maxStatusWatches {
		http.Error(w, "too many watches of this forwarder's status; end one of them", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	_ = control.SetReadDeadline(time.Time{}) // a server without deadlines needs no lifting
	send := func(line any) bool {
		_ = control.SetWriteDeadline(time.Now().Add(statusWriteTimeout))
		return lines.Encode(line) == nil && control.Flush() == nil
	}
	changed, last, sent := f.statusChanged.next(), f.status(), time.Now()
	for ok := send(last); ok; {
		beat := false
		select {
		case <-changed:
		case <-time.After(time.Until(sent.Add(statusHeartbeat))):
			beat = true
		case <-r.Context().Done():
			return
		}
		if !sleep(r.Context(), time.Until(sent.Add(statusInterval))) {
			return
		}
		changed = f.statusChanged.next()
		next := f.status()
		if delta, different := next.delta(last); different || beat {
			last, sent = next, time.Now()
			ok = send(delta)
		}
	}
}
