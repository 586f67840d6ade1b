// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
)

const (
	maxDenials         = 64          // denials that are kept
	denialLogInterval  = time.Minute // between two log lines about the same
	denialLogRate      = 5           // log lines about different ones a second
	denialLogRateBurst = 20
)

// Denial is what forwarders denied, as /status shows it: calls of one URL by one caller for one
// reason.
type Denial struct {
	Hostname string    `json:"hostname"`
	Port     int       `json:"port"`   // port of the URL
	Caller   string    `json:"caller"` // NAMESPACE/POD, or the address of an unknown caller
	Reason   string    `json:"reason"` // label of fairlead_forwarder_access_denied_total
	Count    int64     `json:"count"`
	LastTime time.Time `json:"last_time"`
}

type denialKey struct {
	hostname string
	port     int
	caller   string
	reason   string
}

type denialEntry struct {
	count        int64
	last, logged time.Time
}

// denials stores the latest denials and logs them. Its methods are safe for concurrent use.
type denials struct {
	log   *slog.Logger
	limit *rate.Limiter // limit of log lines

	mu      sync.Mutex
	entries map[denialKey]*denialEntry
}

func newDenials(log *slog.Logger) denials {
	return denials{log: log, limit: rate.NewLimiter(denialLogRate, denialLogRateBurst),
		entries: map[denialKey]*denialEntry{}}
}

// add records a denial. Of more than maxDenials different ones the oldest is dropped.
func (d *denials) add(k denialKey, now time.Time) {
	d.mu.Lock()
	e := d.entries[k]
	if e == nil {
		if len(d.entries) >= maxDenials {
			d.dropOldest()
		}
		e = &denialEntry{}
		d.entries[k] = e
	}
	e.count++
	e.last = now
	count, logs := e.count, now.Sub(e.logged) >= denialLogInterval && d.limit.AllowN(now, 1)
	if logs {
		e.logged = now
	}
	d.mu.Unlock()
	if logs {
		d.log.Warn("call denied by EndpointAccess", "hostname", k.hostname, "port", k.port, "caller", k.caller,
			"reason", k.reason, "count", count)
	}
}

// dropOldest drops the entry that was denied longest ago; mu must be held.
func (d *denials) dropOldest() {
	var oldest denialKey
	var last time.Time
	for k, e := range d.entries {
		if last.IsZero() || e.last.Before(last) {
			oldest, last = k, e.last
		}
	}
	delete(d.entries, oldest)
}

// list returns the denials, latest first.
func (d *denials) list() []Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Denial, 0, len(d.entries))
	for k, e := range d.entries {
		list = append(list, Denial{k.hostname, k.port, k.caller, k.reason, e.count,
			e.last.UTC().Truncate(time.Millisecond)})
	}
	slices.SortFunc(list, func(a, b Denial) int {
		return cmp.Or(b.LastTime.Compare(a.LastTime), cmp.Compare(a.Hostname, b.Hostname),
			cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// Reasons of denials in a namespace that is gone or going: no pod may call what no EndpointAccess
// selects there.
const (
	reasonNamespaceTerminating endpointaccess.Reason = "namespace_terminating"
	reasonNamespaceMissing     endpointaccess.Reason = "namespace_missing"
	reasonNamespaceForbidden   endpointaccess.Reason = "namespace_forbidden"
)

// closedNamespaces has what each of these reasons says about the namespace.
var closedNamespaces = map[endpointaccess.Reason]string{
	reasonNamespaceTerminating: "is being deleted",
	reasonNamespaceMissing:     "does not exist",
	reasonNamespaceForbidden:   "does not exist, or does not let this installation read it",
}

// closingReasons are the reasons of denials by what is wrong with the namespace, as conditions have
// it.
var closingReasons = map[string]endpointaccess.Reason{
	v1alpha1.ReasonNamespaceTerminating: reasonNamespaceTerminating,
	v1alpha1.ReasonNamespaceNotFound:    reasonNamespaceMissing,
	v1alpha1.ReasonNamespaceForbidden:   reasonNamespaceForbidden,
}

// closed returns why no pod may call the target: its namespace is gone or going, so that a missing
// EndpointAccess does not mean that every pod may. "": a policy selects it, or the namespace is
// there.
func (a *accessControl) closed(s *caller.Snapshot, t endpointaccess.Target) endpointaccess.Reason {
	problem, known := s.NamespaceProblem(t.Namespace)
	if reported := a.problems.Load(); !known && reported != nil {
		problem = (*reported)[t.Namespace]
	}
	if problem == "" || s.Rules.Current(t) {
		return ""
	}
	return closingReasons[problem]
}

// setObjects sets what the manager reports: which NetworkPolicies it has written, and what is wrong
// with target namespaces.
func (a *accessControl) setObjects(o Objects) {
	if a == nil {
		return
	}
	problems := map[string]string{}
	for _, b := range o.BoundEndpoints {
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionServicesReady)
		if c != nil && closingReasons[c.Reason] != "" {
			problems[b.Spec.Namespace] = c.Reason
		}
	}
	a.problems.Store(&problems)
	if (a.written.Swap(o.NetworkPolicies) == nil) != (o.NetworkPolicies == nil) {
		a.changed.broadcast()
	}
}
