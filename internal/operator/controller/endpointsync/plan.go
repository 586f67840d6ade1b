// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of one object; the CRD has the same.
const (
	maxPorts     = 100
	maxEndpoints = 1000
)

// Desired is the desired state of a hostname.
type Desired struct {
	// Endpoints to project, by id.
	Endpoints []v1alpha1.EndpointRef
	// Ports and their schemes.
	Ports map[int32]string
	// HTTP2 are the ports whose endpoints all have an upstream that speaks HTTP/2.
	HTTP2 map[int32]bool
	// ServiceLabels are the labels that endpoints ask for and the installation admits.
	ServiceLabels map[string]string
	// ProjectionID from the API, or "".
	ProjectionID string
	// OldestID is the id of the oldest endpoint.
	OldestID string
	// Immediate are the ports that are released without delay once they have no endpoints: they
	// were deselected, or deleted through the API.
	Immediate PortSet
	// MayRelease are the ports that may be released, once they have no endpoints, before a second
	// list, or before the account is accepted.
	MayRelease PortSet
	// Frozen reports whether the endpoints are listed by another account that has not been
	// accepted.
	Frozen bool
	// Refused are admitted endpoints that conflict with older ones.
	Refused []Problem
}

// PortSet is some ports of a hostname, or all of them.
type PortSet struct {
	all  bool
	some map[int32]bool
}

// Has reports whether the port is one of them.
func (s PortSet) Has(port int32) bool { return s.all || s.some[port] }

// Desired returns the desired state of the hostname.
func (s *Set) Desired(hostname string) Desired {
	s.mu.RLock()
	defer s.mu.RUnlock()
	immediate := map[int32]bool{}
	d := Desired{Ports: map[int32]string{}, HTTP2: map[int32]bool{}, Frozen: s.removals.source.frozen,
		MayRelease: s.mayRelease(hostname), Immediate: PortSet{s.disabled, immediate}}
	for port := range s.deletedPorts[hostname] {
		immediate[int32(port)] = true
	}
	for _, e := range s.sorted(hostname) {
		if !e.admitted {
			immediate[int32(e.url.Port)] = true
			continue
		}
		d.add(e)
		s.addLabels(&d, e)
	}
	slices.SortFunc(d.Endpoints, func(a, b v1alpha1.EndpointRef) int { return cmp.Compare(a.ID, b.ID) })
	return d
}

func (d *Desired) add(e *entry) {
	port := int32(e.url.Port)
	scheme, known := d.Ports[port]
	problem := ""
	switch {
	case known && scheme != e.url.Scheme:
		problem = fmt.Sprintf("port %d of %s already has scheme %s by an older endpoint; a port has one scheme", port,
			e.url.Host, scheme)
	case !known && len(d.Ports) == maxPorts:
		problem = fmt.Sprintf("%s already has the maximum of %d ports", e.url.Host, maxPorts)
	case len(d.Endpoints) == maxEndpoints:
		problem = fmt.Sprintf("%s already has the maximum of %d endpoints", e.url.Host, maxEndpoints)
	}
	if problem != "" {
		d.Refused = append(d.Refused, Problem{EndpointID: e.endpoint.ID, URL: e.endpoint.URL, Text: problem})
		return
	}
	d.Ports[port] = e.url.Scheme
	d.HTTP2[port] = e.endpoint.HTTP2() && (d.HTTP2[port] || !known)
	d.Endpoints = append(d.Endpoints, v1alpha1.EndpointRef{ID: e.endpoint.ID, URL: e.url.String()})
	if d.OldestID == "" {
		d.OldestID = e.endpoint.ID
	}
	if d.ProjectionID == "" {
		d.ProjectionID = e.endpoint.ProjectionID
	}
}

// addLabels adds the admitted labels that an endpoint asks for; those of older ones stay.
func (s *Set) addLabels(d *Desired, e *entry) {
	labels, err := account.ParseServiceLabels(e.endpoint.ServiceLabels)
	if err != nil || d.OldestID == "" {
		return
	}
	for key, value := range labels {
		if _, older := d.ServiceLabels[key]; older || !s.labels.Admits(key) {
			continue
		}
		if d.ServiceLabels == nil {
			d.ServiceLabels = map[string]string{}
		}
		d.ServiceLabels[key] = value
	}
}

// ForgetDeleted drops the hostname's ports that were deleted through the API and that its object no
// longer has.
func (s *Set) ForgetDeleted(hostname string, has []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deleted := s.deletedPorts[hostname]
	maps.DeleteFunc(deleted, func(port int, _ bool) bool { return !slices.Contains(has, int32(port)) })
	if len(deleted) == 0 {
		delete(s.deletedPorts, hostname)
	}
}

// Availability returns whether the account has been read, how many endpoints the hostname has, and
// which of its URLs, sorted, have none online. While removals are held, a hostname without an
// object is unknown: its Services are no orphans yet.
func (s *Set) Availability(hostname string) (known bool, endpoints int, offline []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.disabled {
		return true, 0, nil
	}
	online := map[string]bool{}
	for _, e := range s.byHost[hostname] {
		if e.admitted {
			endpoints++
			online[e.url.String()] = online[e.url.String()] || e.online()
		}
	}
	for url, up := range online {
		if !up {
			offline = append(offline, url)
		}
	}
	slices.Sort(offline)
	held := (s.removals.hold != nil || s.removals.source.frozen) && s.removals.hosts[hostname] == nil
	return s.synced && !held, endpoints, offline
}

// SealKeys returns the keys by which the URL's agents that are online seal connections, "" among them
// if some do not seal.
func (s *Set) SealKeys(u account.EndpointURL) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []string
	for _, e := range s.byHost[u.Host] {
		if e.admitted && e.url == u && e.online() {
			keys = append(keys, e.endpoint.SealKey)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// SealKeysIn returns the same for all URLs of a namespace that have agents online.
func (s *Set) SealKeysIn(namespace string) map[account.EndpointURL][]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[account.EndpointURL][]string{}
	for _, e := range s.byID {
		key := e.endpoint.SealKey
		if e.admitted && e.online() && e.url.Namespace() == namespace && !slices.Contains(all[e.url], key) {
			all[e.url] = append(all[e.url], key)
		}
	}
	return all
}

// sorted returns the hostname's entries, oldest first. mu must be held.
func (s *Set) sorted(hostname string) []*entry {
	if s.disabled {
		return nil
	}
	entries := make([]*entry, 0, len(s.byHost[hostname]))
	for _, e := range s.byHost[hostname] {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(a.endpoint.CreatedAt.Compare(b.endpoint.CreatedAt), cmp.Compare(a.endpoint.ID, b.endpoint.ID))
	})
	return entries
}

// Delays of removals.
type Delays struct {
	// Removal is how long the Services of an agent endpoint stay after its agent has disconnected.
	Removal time.Duration
	// Rest is how long a released target port is not used again.
	Rest time.Duration
}

// planner plans the object of one hostname.
type planner struct {
	now      time.Time
	delays   Delays
	ports    *Ports
	hostname string
	desired  Desired
}

// plan returns the spec that follows current (nil: there is no object). nil means that there must
// be no object. exhausted are the ports for which no target port is free.
func (p planner) plan(current *v1alpha1.BoundEndpointSpec) (next *v1alpha1.BoundEndpointSpec, exhausted []int32) {
	if current == nil {
		current = &v1alpha1.BoundEndpointSpec{}
	}
	next = &v1alpha1.BoundEndpointSpec{ProjectionID: p.projectionID(current)}
	existing := map[int32]bool{}
	for _, port := range current.Ports {
		if port, ok := p.advancePort(port); ok {
			existing[port.Port] = true
			next.Ports = append(next.Ports, port)
		}
	}
	for port, scheme := range p.desired.Ports {
		if existing[port] {
			continue
		}
		target, ok := p.ports.allocate(portKey{p.hostname, port})
		if !ok {
			exhausted = append(exhausted, port)
			continue
		}
		next.Ports = append(next.Ports, v1alpha1.BoundPort{Port: port, Scheme: scheme,
			AppProtocol: p.appProtocol(port), TargetPort: target, State: v1alpha1.StateBound})
	}
	if len(next.Ports) == 0 {
		return nil, exhausted
	}
	slices.SortFunc(next.Ports, func(a, b v1alpha1.BoundPort) int { return cmp.Compare(a.Port, b.Port) })
	next.Endpoints = p.withHeldEndpoints(current.Endpoints)
	if next.ServiceLabels = p.desired.ServiceLabels; len(p.desired.Endpoints) == 0 {
		next.ServiceLabels = current.ServiceLabels // as the ports stay
	}
	next.State, next.RemoveAfter = summarize(next.Ports)
	return next, exhausted
}

// withHeldEndpoints returns the desired endpoints, and those of the object whose removal is held:
// if the list is wrong, calls continue to reach them.
func (p planner) withHeldEndpoints(current []v1alpha1.EndpointRef) []v1alpha1.EndpointRef {
	all := slices.Clone(p.desired.Endpoints)
	for _, ref := range current {
		u, err := account.ParseAnyURL(ref.URL)
		if err != nil || len(all) == maxEndpoints || p.desired.MayRelease.Has(int32(u.Port)) {
			continue
		}
		_, served := p.desired.Ports[int32(u.Port)]
		if !served && !slices.ContainsFunc(p.desired.Endpoints, func(e v1alpha1.EndpointRef) bool {
			return e.ID == ref.ID
		}) {
			all = append(all, ref)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.EndpointRef) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// projectionID returns the API's id, else the object's, else the oldest endpoint's id. Another
// account's id is ignored until the account is accepted: the upstream Service would lose its
// address.
func (p planner) projectionID(current *v1alpha1.BoundEndpointSpec) string {
	if p.desired.Frozen && current.ProjectionID != "" {
		return current.ProjectionID
	}
	return cmp.Or(p.desired.ProjectionID, current.ProjectionID, p.desired.OldestID)
}

// advancePort advances a port of the object through its states: Bound, Bound with a deadline,
// Released with a deadline, gone (false).
func (p planner) advancePort(port v1alpha1.BoundPort) (v1alpha1.BoundPort, bool) {
	if !p.ports.reserve(portKey{p.hostname, port.Port}, port.TargetPort) {
		// an older object has the target port, or the range changed
		target, ok := p.ports.allocate(portKey{p.hostname, port.Port})
		if !ok {
			return port, false
		}
		port.TargetPort = target
	}
	if scheme, wanted := p.desired.Ports[port.Port]; wanted {
		port.Scheme, port.State, port.RemoveAfter = scheme, v1alpha1.StateBound, nil
		port.AppProtocol = p.appProtocol(port.Port)
		return port, true
	}
	due := port.RemoveAfter != nil && !p.now.Before(port.RemoveAfter.Time)
	switch {
	case port.State == v1alpha1.StateReleased && due:
		return port, false
	case port.State == v1alpha1.StateReleased:
		if port.RemoveAfter == nil {
			port.RemoveAfter = p.deadline(p.delays.Rest)
		}
	case p.desired.MayRelease.Has(port.Port) && (due || p.desired.Immediate.Has(port.Port)):
		port.State, port.RemoveAfter = v1alpha1.StateReleased, p.deadline(p.delays.Rest)
	case port.RemoveAfter == nil:
		port.RemoveAfter = p.deadline(p.delays.Removal)
	}
	return port, true
}

// appProtocol returns the application protocol of a port where it is not its scheme, or "".
func (p planner) appProtocol(port int32) string {
	if p.desired.HTTP2[port] {
		return v1alpha1.AppProtocolH2C
	}
	return ""
}

// deadline returns now plus d, rounded up to the whole seconds that objects store.
func (p planner) deadline(d time.Duration) *metav1.Time {
	t := metav1.NewTime(p.now.Add(d + time.Second - 1).Truncate(time.Second))
	return &t
}

// summarize returns the state and the deadline of the object: Released if all its ports are, and
// the latest deadline of its ports.
func summarize(ports []v1alpha1.BoundPort) (v1alpha1.BoundEndpointState, *metav1.Time) {
	state, latest := v1alpha1.StateReleased, ports[0].RemoveAfter
	for _, port := range ports {
		if port.State != v1alpha1.StateReleased {
			state = v1alpha1.StateBound
		}
		if port.RemoveAfter == nil || latest == nil {
			latest = nil
			continue
		}
		if latest.Before(port.RemoveAfter) {
			latest = port.RemoveAfter
		}
	}
	return state, latest
}

// nextDeadline returns the time until the next deadline of the spec; 0 means none. Held ports are
// ignored, as the Set notifies when they may be released.
func nextDeadline(spec *v1alpha1.BoundEndpointSpec, mayRelease PortSet, now time.Time) time.Duration {
	var first time.Duration
	for _, port := range spec.Ports {
		if port.RemoveAfter == nil || port.State != v1alpha1.StateReleased && !mayRelease.Has(port.Port) {
			continue
		}
		if d := max(port.RemoveAfter.Sub(now), time.Millisecond); first == 0 || d < first {
			first = d
		}
	}
	return first
}

// splitHostname splits <service>.<namespace> and <service>.<namespace>.<cluster>.
func splitHostname(hostname string) (service, namespace, cluster string) {
	service, rest, _ := strings.Cut(hostname, ".")
	namespace, cluster, _ = strings.Cut(rest, ".")
	return service, namespace, cluster
}

// isClustersetHostname reports whether the hostname is that of an exported Service in one cluster.
func isClustersetHostname(hostname string) bool { return strings.Count(hostname, ".") == 2 }
