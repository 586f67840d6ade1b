// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Status is the body of /status: the forwarder's state at one moment.
type Status struct {
	Pod       string           `json:"pod,omitempty"` // name of the pod
	Ready     bool             `json:"ready"`
	Draining  bool             `json:"draining"`
	Session   SessionStatus    `json:"session"`
	Listeners []ListenerStatus `json:"listeners"`
	Access    *AccessStatus    `json:"access,omitempty"`
	Trust     *TrustStatus     `json:"trust,omitempty"`
	Denied    []Denial         `json:"denied,omitempty"` // latest denials, the last one first
	// SealedPaths is what carries sealed connections towards the edge.
	SealedPaths tunnel.SealedPaths `json:"sealed_paths"`
}

// Delta is a later line of /status?watch=true: the changes since the line before. It is empty if
// there are none.
type Delta struct {
	Ready     *bool            `json:"ready,omitempty"`
	Draining  *bool            `json:"draining,omitempty"`
	Session   *SessionStatus   `json:"session,omitempty"`
	Listeners []ListenerStatus `json:"listeners,omitempty"` // new or changed listeners
	Gone      []int            `json:"gone,omitempty"`      // target ports without a listener
	Access    *AccessStatus    `json:"access,omitempty"`
	Trust     *TrustStatus     `json:"trust,omitempty"`
	Denied    []Denial         `json:"denied,omitempty"` // all denials, if they differ
}

// ListenerStatus is one target port as /status shows it.
type ListenerStatus struct {
	Port        int    `json:"port"` // the target port
	Hostname    string `json:"hostname"`
	ServicePort int    `json:"service_port"` // port of the URL
	Scheme      string `json:"scheme"`
	URL         string `json:"url"`
	Endpoint    string `json:"endpoint,omitempty"` // id of the endpoint; empty while none has the URL
	Listening   bool   `json:"listening"`
	Error       string `json:"error,omitempty"` // why Listening is false

	Connections int64 `json:"connections"` // connections accepted so far
	Active      int64 `json:"active"`      // connections being served
	// LastSuccess is when the edge last opened a stream: for tcp up to the upstream, for http up to
	// the edge itself. What the edge then reports about failed http requests is LastFailure.
	LastSuccess *time.Time `json:"last_success,omitempty"`
	// LastFailure is why a connection last failed.
	LastFailure *Failure `json:"last_failure,omitempty"`
	// SealRefused is why the last connection that had to be sealed was refused.
	SealRefused *SealRefusal `json:"seal_refused,omitempty"`
	// SealKey is the key of an agent that has opened a sealed connection, until the manager has recorded
	// that the URL was sealed, where the rules prefer a seal until then.
	SealKey string `json:"seal_key,omitempty"`

	stats *portStats
}

// withoutCounters returns the status without what changes with every connection.
func (l ListenerStatus) withoutCounters() ListenerStatus {
	l.Connections, l.Active, l.LastSuccess, l.LastFailure, l.stats = 0, 0, nil, nil, nil
	return l
}

func (f *forwarder) status() Status {
	all := f.listeners.status()
	f.sealing.setSeals(all)
	return Status{
		Pod: f.options.InstanceID, Ready: f.ready.Load(), Draining: f.draining.Load(), Session: f.edge.status(),
		Listeners: all, Access: f.access.status(), Trust: f.sealing.status(),
		Denied: f.access.latest(), SealedPaths: f.edge.sealedPaths(),
	}
}

// delta returns the difference from an earlier status; counters and denials alone are none.
func (s Status) delta(last Status) (d Delta, different bool) {
	if s.Ready != last.Ready {
		d.Ready, different = &s.Ready, true
	}
	if s.Draining != last.Draining {
		d.Draining, different = &s.Draining, true
	}
	if !reflect.DeepEqual(s.Session, last.Session) {
		d.Session, different = &s.Session, true
	}
	if !reflect.DeepEqual(s.Access, last.Access) {
		d.Access, different = s.Access, true
	}
	if !reflect.DeepEqual(s.Trust, last.Trust) {
		d.Trust, different = s.Trust, true
	}
	if !slices.Equal(s.Denied, last.Denied) {
		d.Denied = s.Denied
	}
	before := make(map[int]ListenerStatus, len(last.Listeners))
	for _, l := range last.Listeners {
		before[l.Port] = l.withoutCounters()
	}
	for _, l := range s.Listeners {
		if previous, ok := before[l.Port]; !ok || previous != l.withoutCounters() {
			d.Listeners = append(d.Listeners, l)
		}
		delete(before, l.Port)
	}
	for _, l := range last.Listeners {
		if _, removed := before[l.Port]; removed {
			d.Gone = append(d.Gone, l.Port)
		}
	}
	return d, different || len(d.Listeners)+len(d.Gone) > 0
}

const (
	// statusInterval is the minimum between two lines of a watch. EndpointSlices of imported
	// Services wait for the line that says that forwarders listen.
	statusInterval     = 100 * time.Millisecond
	statusHeartbeat    = 10 * time.Second // maximum between two lines; readers treat 25 s of silence as a broken stream
	statusWriteTimeout = 10 * time.Second // of one line
	maxStatusWatches   = 16               // concurrent watches: one of each manager, and those of people
	watchRequested     = "true"           // of ?watch=
)

// serveStatus serves /status to clients that present the token, which is derived from the
// installation's KubernetesOperator.
func (f *forwarder) serveStatus(w http.ResponseWriter, r *http.Request) {
	switch uid := f.operatorUID.Load(); {
	case uid == nil:
		http.Error(w, "the KubernetesOperator, from which the token is made, is not known yet",
			http.StatusServiceUnavailable)
		return
	case !statustoken.Valid(r, statustoken.Derive(*uid, f.options.InstanceID)):
		http.Error(w, "the status needs a token that is made from the KubernetesOperator; use fairlead doctor",
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

// serveWatch sends the status, and then a line for every change until the client or the forwarder
// ends.
func (f *forwarder) serveWatch(w http.ResponseWriter, r *http.Request) {
	defer f.watches.Add(-1)
	if f.watches.Add(1) > maxStatusWatches {
		http.Error(w, "too many watches of this forwarder's status; end one of them", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	_ = control.SetReadDeadline(time.Time{}) // fails only on a server without deadlines
	send := func(line any) bool {
		_ = control.SetWriteDeadline(time.Now().Add(statusWriteTimeout))
		return lines.Encode(line) == nil && control.Flush() == nil
	}
	changed, last, sent := f.statusChanged.next(), f.status(), time.Now()
	for ok := send(last); ok; {
		heartbeat := false
		select {
		case <-changed:
		case <-time.After(time.Until(sent.Add(statusHeartbeat))):
			heartbeat = true
		case <-r.Context().Done():
			return
		}
		if !timer.Sleep(r.Context(), time.Until(sent.Add(statusInterval))) {
			return
		}
		changed = f.statusChanged.next()
		next := f.status()
		if delta, different := next.delta(last); different || heartbeat {
			last, sent = next, time.Now()
			ok = send(delta)
		}
	}
}

// AccessStatus is which rules about callers a forwarder enforces, as /status shows it.
type AccessStatus struct {
	PodIdentity bool `json:"pod_identity"` // PodIdentity reports that pods are known; else all callers are unknown.
	// NetworkPolicies reports that NetworkPolicies decide about calls of namespaces whose objects
	// they are written for.
	NetworkPolicies bool   `json:"network_policies,omitempty"`
	Default         string `json:"default"`  // decision for endpoints that no EndpointAccess selects: allow or deny
	Complete        bool   `json:"complete"` // Complete reports that all EndpointAccess objects were listed.
	// Policies has the digest of each namespace's EndpointAccess objects, of namespaces that have
	// some; see endpointaccess.Digest.
	Policies map[string]string `json:"policies,omitempty"`
}

// status returns nil for a nil accessControl.
func (a *accessControl) status() *AccessStatus {
	if a == nil {
		return nil
	}
	s := a.rules.Snapshot()
	return &AccessStatus{PodIdentity: a.pods != nil, NetworkPolicies: a.leavesToNetwork(),
		Default: string(s.Rules.Default()), Complete: s.Complete(), Policies: s.Rules.Digests()}
}

// latest returns the latest denials, none for a nil accessControl.
func (a *accessControl) latest() []Denial {
	if a == nil {
		return nil
	}
	return a.denials.list()
}

// SessionStatus is the session with the edge as /status shows it.
type SessionStatus struct {
	Up         bool      `json:"up"`
	Since      time.Time `json:"since"`   // time when the session was established or lost
	Address    string    `json:"address"` // the HOST:PORT of the edge
	ID         string    `json:"id,omitempty"`
	OperatorID string    `json:"operator_id,omitempty"`
	AccountID  string    `json:"account_id,omitempty"`
	Error      string    `json:"error,omitempty"` // why Up is false

	// Legs are the replicas of the service that the session is connected to, WantedLegs how many it
	// should be connected to. Both are absent with a service without replicas.
	Legs       []LegStatus `json:"legs,omitempty"`
	WantedLegs int         `json:"wanted_legs,omitempty"`
	// LegsMissingSince is since when fewer legs than WantedLegs take connections.
	LegsMissingSince *time.Time `json:"legs_missing_since,omitempty"`
}

// LegStatus is one replica of the service that the session is connected to.
type LegStatus struct {
	Replica      string `json:"replica"`                // id of the replica
	Draining     bool   `json:"draining,omitempty"`     // Draining reports that the replica is about to stop.
	Unresponsive bool   `json:"unresponsive,omitempty"` // Unresponsive reports that the replica does not respond.
}

func (e *edgeClient) status() SessionStatus {
	session := e.Live()
	e.mu.Lock()
	defer e.mu.Unlock()
	st := SessionStatus{Up: session != nil, Since: e.since.UTC().Truncate(time.Millisecond), Address: e.config.Address,
		OperatorID: e.operatorID, Error: e.lastErr}
	if session != nil {
		st.ID, st.AccountID, st.Error = session.ID(), session.Welcome().AccountID, ""
		if _, unresponsive := session.Unresponsive(); unresponsive {
			st.Up, st.Error = false, "the edge does not respond"
		}
		e.legs.fill(&st, session)
	}
	return st
}
