// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/projectionlatency"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Admitter is the endpoint selector (internal/selector).
type Admitter interface {
	Matches(e *account.Endpoint, u account.EndpointURL) (bool, error)
}

// entry is one endpoint of the account.
type entry struct {
	endpoint account.Endpoint
	url      account.EndpointURL // of what has a port; its zero value for others
	admitted bool
	problem  string // why it is not projected although it is bound to Kubernetes
	// clusterset reports that the endpoint belongs to an exported Service: export is that Service,
	// or nil for a port of it, whose Service has the name exported.
	clusterset bool
	export     *clusterset.Export
	exported   types.NamespacedName
}

func (e *entry) online() bool { return e.endpoint.Status == account.StatusOnline }

// Set holds the account's kubernetes-bound endpoints in memory and computes the desired state of
// each hostname. With SetOptions.Clusterset it also holds what clusters export: the ports, each
// below a hostname of three labels, and the exports themselves. It is safe for concurrent use.
type Set struct {
	selector   Admitter
	clusterset bool
	clock      clock.PassiveClock
	latency    *projectionlatency.Tracker
	labels     installation.LabelKeys

	mu       sync.RWMutex
	synced   bool
	disabled bool
	byID     map[string]*entry
	byHost   map[string]map[string]*entry // hostname -> id -> valid entry
	// deletedPorts are the ports of a hostname that lost their last endpoint through the API, not
	// because an agent disconnected: they are released without delay.
	deletedPorts map[string]map[int]bool
	// awaiting are hostnames that were reconciled before the first complete list.
	awaiting map[string]struct{}
	removals removals
	exports  exports
	// withoutClusterset reports that the latest list has no endpoints of account.BindingClusterset
	// because the server does not know that binding, and listAgainAt when to list again therefore.
	withoutClusterset bool
	listAgainAt       time.Time
}

// SetOptions configure a Set.
type SetOptions struct {
	Selector Admitter
	// Clusterset admits endpoints of account.BindingClusterset, which the selector does not
	// concern.
	Clusterset bool
	// RemovalDelay is that of Delays. A mass removal is held that long, and at least a minute.
	RemovalDelay time.Duration
	// AcceptAccount is the id of the account, or of the store if only that differs, whose lists may
	// remove what an earlier account's lists made.
	AcceptAccount string
	Clock         clock.PassiveClock
	// Labels are the keys of labels that endpoints may ask for.
	Labels installation.LabelKeys
	// Latency learns of new URLs after the first list; nil: not measured.
	Latency *projectionlatency.Tracker
}

// NewSet returns an empty Set that is not synced.
func NewSet(o SetOptions) *Set {
	return &Set{
		selector: o.Selector, clusterset: o.Clusterset, clock: o.Clock, latency: o.Latency, labels: o.Labels,
		removals: newRemovals(o.RemovalDelay, o.AcceptAccount), exports: newExports(),
		byID: map[string]*entry{}, byHost: map[string]map[string]*entry{}, deletedPorts: map[string]map[int]bool{},
		awaiting: map[string]struct{}{},
	}
}

// Change is the effect of a list or an event: hostnames whose objects may have to change, hostnames
// whose availability changed, names with exports that changed, or ports of exports that came, went
// or changed their availability, and endpoints with a new problem (an empty text: none any longer).
type Change struct {
	Hostnames    []string
	Availability []string
	Exports      []types.NamespacedName
	Problems     []Problem

	newURLs []account.EndpointURL // newURLs are the URLs that got their first endpoint after the first list.
}

// Problem is why an endpoint is not projected.
type Problem struct {
	EndpointID, URL, Text string
}

// Disable makes the Set permanently complete and empty, for binding.enabled=false. Everything
// projected is removed without delay.
func (s *Set) Disable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.disabled = true, true
}

// SyncedOrAwait reports whether a complete list has been applied. If not, the change of the first
// one will include the hostname.
func (s *Set) SyncedOrAwait(hostname string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		s.awaiting[hostname] = struct{}{}
	}
	return s.synced
}

// Counts returns the numbers of admitted endpoints, of those that the selector excludes and of
// those with a problem. Exports are in none of them.
func (s *Set) Counts() (admitted, excluded, problems int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.byID {
		switch {
		case e.problem != "":
			problems++
		case e.export != nil:
		case e.admitted:
			admitted++
		default:
			excluded++
		}
	}
	return admitted, excluded, problems
}

// Replace applies a complete list that was requested at begun.
func (s *Set) Replace(list Snapshot, requested time.Time) Change {
	endpoints := list.Endpoints
	entries := make([]*entry, len(endpoints))
	present := make(map[string]bool, len(endpoints))
	for i := range endpoints {
		entries[i] = s.classify(endpoints[i])
		present[endpoints[i].ID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var c Change
	now, r := s.clock.Now(), &s.removals
	freezeEnded, changed := r.source.update(SourceIdentity{AccountID: list.AccountID, StoreID: list.StoreID})
	s.setWithoutClusterset(list.WithoutClusterset, now, &c)
	for id, old := range s.byID {
		if kept := s.withoutClusterset && old.clusterset; !present[id] && !kept {
			s.remove(old, old.endpoint.Type, &c)
		}
	}
	for _, e := range entries {
		s.put(e, &c)
	}
	s.replaceExports(&c)
	for hostname := range s.awaiting {
		c.Hostnames = append(c.Hostnames, hostname)
	}
	s.synced, s.awaiting = true, nil
	s.applyRemovals(&c, now)
	if freezeEnded {
		c.Hostnames = append(c.Hostnames, r.pendingHostnames()...)
	}
	if changed {
		r.notifyChanged()
	}
	c.Hostnames = append(c.Hostnames, r.listApplied(requested, now)...)
	return c
}

// Apply applies one event of the watch. It drops an event that is not newer than the known
// endpoint.
func (s *Set) Apply(ev account.EndpointEvent) Change {
	if ev.Endpoint == nil {
		return Change{}
	}
	e := s.classify(*ev.Endpoint)
	s.mu.Lock()
	defer s.mu.Unlock()
	var c Change
	old := s.byID[ev.Endpoint.ID]
	if old != nil && notNewer(ev.ResourceVersion, old.endpoint.ResourceVersion) {
		return c
	}
	switch {
	case ev.Type == account.Added || ev.Type == account.Modified:
		e.endpoint.ResourceVersion = ev.ResourceVersion
		s.put(e, &c)
		s.exports.apply(ev.Endpoint.ID, e.export, &c)
	case ev.Type == account.Deleted && old != nil:
		s.remove(old, ev.Endpoint.Type, &c)
		s.exports.apply(ev.Endpoint.ID, nil, &c)
	}
	now := s.clock.Now()
	s.applyRemovals(&c, now)
	s.removals.holdMassRemoval(now)
	return c
}

func notNewer(v, than account.ResourceVersion) bool {
	return v.Epoch == than.Epoch && v.Seq <= than.Seq
}

// put stores an endpoint's new state. mu must be held.
func (s *Set) put(e *entry, c *Change) {
	id := e.endpoint.ID
	old := s.byID[id]
	if old != nil && old.url != e.url {
		s.remove(old, account.TypeCloud, c) // URLs do not change; a changed one counts as a deletion
		old = nil
	}
	if old == nil && e.problem != "" || old != nil && old.problem != e.problem {
		c.Problems = append(c.Problems, Problem{EndpointID: id, URL: e.endpoint.URL, Text: e.problem})
	}
	s.byID[id] = e
	host := e.url.Host
	if host == "" {
		return
	}
	if s.byHost[host] == nil {
		s.byHost[host] = map[string]*entry{}
	}
	if s.synced && e.admitted && !e.clusterset && !s.hasPort(host, e.url.Port) {
		c.newURLs = append(c.newURLs, e.url) // before the first list every URL looks new
	}
	s.byHost[host][id] = e
	if e.admitted {
		delete(s.deletedPorts[host], e.url.Port)
	}
	changed := old == nil || old.admitted != e.admitted || old.endpoint.ProjectionID != e.endpoint.ProjectionID ||
		old.endpoint.HTTP2() != e.endpoint.HTTP2() || old.endpoint.ServiceLabels != e.endpoint.ServiceLabels
	if changed {
		c.Hostnames = append(c.Hostnames, host)
	}
	availability := !s.synced || old != nil && (old.endpoint.Status != e.endpoint.Status ||
		old.endpoint.SealKey != e.endpoint.SealKey)
	if availability {
		c.Availability = append(c.Availability, host)
	}
	if (changed || availability) && e.clusterset {
		c.Exports = append(c.Exports, e.exported)
	}
}

// remove removes an endpoint of the given type. mu must be held.
func (s *Set) remove(e *entry, typ string, c *Change) {
	id, host := e.endpoint.ID, e.url.Host
	delete(s.byID, id)
	if e.problem != "" {
		c.Problems = append(c.Problems, Problem{EndpointID: id, URL: e.endpoint.URL})
	}
	if host == "" {
		return
	}
	delete(s.byHost[host], id)
	if len(s.byHost[host]) == 0 {
		delete(s.byHost, host)
	}
	if typ == account.TypeCloud && e.admitted && !s.hasPort(host, e.url.Port) {
		if s.deletedPorts[host] == nil {
			s.deletedPorts[host] = map[int]bool{}
		}
		s.deletedPorts[host][e.url.Port] = true
	}
	c.Hostnames = append(c.Hostnames, host)
	c.Availability = append(c.Availability, host)
	if e.clusterset {
		c.Exports = append(c.Exports, e.exported)
	}
}

// hasPort reports whether an admitted endpoint has the port. mu must be held.
func (s *Set) hasPort(host string, port int) bool {
	for _, e := range s.byHost[host] {
		if e.admitted && e.url.Port == port {
			return true
		}
	}
	return false
}

// classify parses an endpoint and applies the selector.
func (s *Set) classify(endpoint account.Endpoint) *entry {
	if _, err := sealed.ParseKey(endpoint.SealKey); err != nil {
		endpoint.SealKey = "" // the service may say anything, and conditions have it
	}
	e := &entry{endpoint: endpoint,
		clusterset: slices.Equal(endpoint.Bindings, []string{account.BindingClusterset})}
	if problem := s.unsupportedReason(&endpoint); problem != "" {
		e.problem = problem
		return e
	}
	if e.clusterset {
		e.classifyClusterset()
		return e
	}
	u, err := account.ParseEndpointURL(endpoint.URL)
	if err != nil {
		e.problem = err.Error()
		return e
	}
	e.url = u
	admitted, err := s.selector.Matches(&endpoint, u)
	if err != nil {
		e.problem = err.Error()
		return e
	}
	e.admitted = admitted
	return e
}

// classifyClusterset parses an endpoint of account.BindingClusterset: an export, or a port of one.
// The selector does not concern it.
func (e *entry) classifyClusterset() {
	if export, ok := clusterset.ExportOf(&e.endpoint); ok {
		e.export = &export
		return
	}
	u, err := account.ParseBindingURL(account.BindingClusterset, e.endpoint.URL)
	switch {
	case err != nil:
		e.problem = err.Error()
	case e.endpoint.Type != account.TypeAgent || u.Scheme == account.SchemeService:
		e.problem = "it is neither the export of a Service nor a port of one"
	default:
		e.url, e.admitted = u, true
		e.exported.Name, e.exported.Namespace, _ = splitHostname(u.Host)
	}
}

// unsupportedReason returns why an endpoint cannot be projected, apart from its URL, or "". A
// correct API never sends such an endpoint.
func (s *Set) unsupportedReason(e *account.Endpoint) string {
	switch {
	case !printable(e.ID):
		return "its id is empty, longer than 253 bytes or not printable ASCII"
	case e.ProjectionID != "" && !printable(e.ProjectionID):
		return "its projection_id is longer than 253 bytes or not printable ASCII"
	case s.clusterset && slices.Equal(e.Bindings, []string{account.BindingClusterset}):
	case !slices.Equal(e.Bindings, []string{account.BindingKubernetes}):
		return "its binding is not kubernetes"
	}
	return ""
}

func printable(s string) bool {
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
