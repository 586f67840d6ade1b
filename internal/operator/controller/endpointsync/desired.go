// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
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
	d := Desired{Ports: map[int32]string{}, Frozen: s.removals.source.frozen, MayRelease: s.mayRelease(hostname),
		Immediate: PortSet{s.disabled, immediate}}
	for port := range s.deletedPorts[hostname] {
		immediate[int32(port)] = true
	}
	for _, e := range s.sorted(hostname) {
		if !e.admitted {
			immediate[int32(e.url.Port)] = true
			continue
		}
		d.add(e)
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
	d.Endpoints = append(d.Endpoints, v1alpha1.EndpointRef{ID: e.endpoint.ID, URL: e.url.String()})
	if d.OldestID == "" {
		d.OldestID = e.endpoint.ID
	}
	if d.ProjectionID == "" {
		d.ProjectionID = e.endpoint.ProjectionID
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
