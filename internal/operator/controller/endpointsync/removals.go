// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"cmp"
	"time"
)

// A mass removal concerns more than half of more than massAbove hostnames. It is held for at least
// leastMassDelay.
const (
	massAbove      = 10
	leastMassDelay = time.Minute
)

// removals decides whether ports without an endpoint may be released. It counts hostnames that have
// an object. A hostname is pending from the moment that one of its ports has no endpoint until the
// object no longer has that port, including the minute for which a released port rests, so that a
// removal in several steps counts as one mass. Endpoints that the selector excludes, and removals
// that a second list has confirmed, do not count. A mass removal is held, with all that follow,
// until a complete list that was requested at hold.due or later: ports that were missing when the
// hold began and are still missing may go; later ones are counted anew. Set.mu must be held.
type removals struct {
	delay         time.Duration
	seeded        bool // the existing objects are known
	hosts         map[string]*trackedHostname
	projected     int // hostnames that count
	pending       int // those of them with a pending removal
	hold          *massRemovalHold
	listRequested bool
	source        sourceGuard
	changed       chan struct{} // closed and replaced when a hold or a freeze begins or ends
}

// massRemovalHold is a mass removal that waits for a list.
type massRemovalHold struct{ since, due time.Time }

// trackedHostname is a hostname that has an object.
type trackedHostname struct {
	ports           map[int]*trackedPort
	counts, pending bool
}

// trackedPort is one port of an object.
type trackedPort struct {
	since  time.Time // since when no endpoint has it; zero while one does
	exempt bool      // the selector excludes its endpoints, or a second list has confirmed that they are gone
}

func newRemovals(removalDelay time.Duration, accept string) removals {
	return removals{
		delay: max(removalDelay, leastMassDelay), hosts: map[string]*trackedHostname{}, changed: make(chan struct{}),
		source: sourceGuard{accept: accept},
	}
}

// Removals is the state of pending removals.
type Removals struct {
	// Known reports whether the account has been listed and the existing objects are known.
	Known bool
	// Recorded is the account whose lists may remove, Listed the one that the latest list came
	// from; empty before the first list.
	Recorded, Listed SourceIdentity
	// Frozen reports that nothing is removed until Listed is accepted.
	Frozen bool
	// Held reports that a mass removal was noticed at Since and waits for a list at ListDue or
	// later.
	Held           bool
	Since, ListDue time.Time
	// Pending is how many of the Projected hostnames wait for their removal.
	Pending, Projected int
	// Changed is closed when Frozen, Held, ListDue or Recorded change.
	Changed <-chan struct{}
}

// Removals returns the state of pending removals. It is safe for concurrent use.
func (s *Set) Removals() Removals {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &s.removals
	now := Removals{
		Known: s.synced && r.seeded, Recorded: r.source.recorded, Listed: r.source.listed, Frozen: r.source.frozen,
		Pending: r.pending, Projected: r.projected, Changed: r.changed,
	}
	if r.hold != nil {
		now.Held, now.Since, now.ListDue = true, r.hold.since, r.hold.due
	}
	return now
}

// RequestList requests a complete list as soon as possible.
func (s *Set) RequestList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals.listRequested = true
	s.removals.notifyChanged()
}

// nextList returns when a complete list is needed besides the regular ones; zero means never.
// changed is closed when the result may have changed.
func (s *Set) nextList() (at time.Time, changed <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch r := &s.removals; {
	case r.listRequested:
		return s.clock.Now(), r.changed
	case r.hold != nil && (s.listAgainAt.IsZero() || r.hold.due.Before(s.listAgainAt)):
		return r.hold.due, r.changed
	default:
		return s.listAgainAt, r.changed
	}
}

// Seed sets the existing objects and their ports. Call it before any of them is reconciled.
func (s *Set) Seed(objects map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for hostname, ports := range objects {
		s.removals.track(hostname, ports)
		s.updatePending(hostname, now)
	}
	s.removals.seeded = true
	s.removals.holdMassRemoval(now)
}

// SetPorts sets the ports of the hostname's object; none means that there is no object.
func (s *Set) SetPorts(hostname string, ports []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.removals.track(hostname, ports)
	s.updatePending(hostname, now)
	s.removals.holdMassRemoval(now)
}

// applyRemovals updates the removal state of the hostnames of a change, and measures its new URLs
// that no object has. mu must be held.
func (s *Set) applyRemovals(c *Change, now time.Time) {
	for _, u := range c.newURLs {
		if h := s.removals.hosts[u.Host]; h == nil || h.ports[u.Port] == nil {
			s.latency.Begin(u.Host, int32(u.Port))
		}
	}
	for _, hostname := range c.Hostnames {
		s.updatePending(hostname, now)
	}
}

// updatePending updates the hostname's removal state. mu must be held.
func (s *Set) updatePending(hostname string, now time.Time) {
	h := s.removals.hosts[hostname]
	if h == nil {
		return
	}
	unknown := s.isUnknown(hostname)
	admitted := map[int]bool{}
	for _, e := range s.byHost[hostname] {
		admitted[e.url.Port] = admitted[e.url.Port] || e.admitted
	}
	for port, p := range h.ports {
		switch served, known := admitted[port]; {
		case served, unknown:
			*p = trackedPort{}
		case known:
			*p = trackedPort{exempt: true}
		case p.since.IsZero():
			p.since = now
		}
	}
	s.removals.updateCounts(h)
}

// mayRelease returns the ports of the hostname that may be released. mu must be held.
func (s *Set) mayRelease(hostname string) PortSet {
	r := &s.removals
	if s.isUnknown(hostname) {
		return PortSet{}
	}
	if s.disabled || r.hold == nil && !r.source.frozen {
		return PortSet{all: true}
	}
	exempt := map[int32]bool{}
	if h := r.hosts[hostname]; h != nil {
		for port, p := range h.ports {
			exempt[int32(port)] = p.exempt
		}
	}
	return PortSet{some: exempt}
}

// isUnknown reports whether the latest list does not say which endpoints the hostname has. mu must
// be held.
func (s *Set) isUnknown(hostname string) bool {
	return s.withoutClusterset && !s.disabled && isClustersetHostname(hostname)
}

// track sets the ports of the hostname's object.
func (r *removals) track(hostname string, ports []int32) {
	h := r.hosts[hostname]
	if h == nil {
		h = &trackedHostname{ports: make(map[int]*trackedPort, len(ports))}
		r.hosts[hostname] = h
	}
	has := make(map[int]bool, len(ports))
	for _, port := range ports {
		has[int(port)] = true
		if h.ports[int(port)] == nil {
			h.ports[int(port)] = &trackedPort{}
		}
	}
	for port := range h.ports {
		if !has[port] {
			delete(h.ports, port)
		}
	}
	if len(ports) == 0 {
		r.updateCounts(h)
		delete(r.hosts, hostname)
	}
}

// updateCounts updates the totals after a change of one hostname.
func (r *removals) updateCounts(h *trackedHostname) {
	counts, pending := false, false
	for _, p := range h.ports {
		counts = counts || !p.exempt
		pending = pending || !p.exempt && !p.since.IsZero()
	}
	r.projected += boolToInt(counts) - boolToInt(h.counts)
	r.pending += boolToInt(pending) - boolToInt(h.pending)
	h.counts, h.pending = counts, pending
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// holdMassRemoval begins a hold if the pending removals are a mass.
func (r *removals) holdMassRemoval(now time.Time) {
	if r.hold == nil && r.seeded && !r.source.frozen && r.projected > massAbove && 2*r.pending > r.projected {
		r.hold = &massRemovalHold{since: now, due: now.Add(r.delay)}
		r.notifyChanged()
	}
}

// listApplied records that a complete list requested at begun has been applied. It returns the
// hostnames whose removals are no longer held.
func (r *removals) listApplied(requested, now time.Time) (released []string) {
	if r.listRequested {
		r.listRequested = false
		r.notifyChanged()
	}
	switch {
	case r.source.frozen:
		r.hold = nil // the freeze covers it
		return nil
	case r.hold != nil && !requested.Before(r.hold.due):
		since := r.hold.since
		r.hold = nil
		r.notifyChanged()
		released = r.confirmMissing(since)
	}
	r.holdMassRemoval(now)
	return released
}

// confirmMissing exempts ports that have been missing since the given time or longer, and returns
// the names of all pending hostnames.
func (r *removals) confirmMissing(since time.Time) (confirmed []string) {
	for hostname, h := range r.hosts {
		if !h.pending {
			continue
		}
		confirmed = append(confirmed, hostname)
		for _, p := range h.ports {
			p.exempt = p.exempt || !p.since.IsZero() && !p.since.After(since)
		}
		r.updateCounts(h)
	}
	return confirmed
}

// pendingHostnames returns the names of all pending hostnames.
func (r *removals) pendingHostnames() (names []string) {
	for hostname, h := range r.hosts {
		if h.pending {
			names = append(names, hostname)
		}
	}
	return names
}

func (r *removals) notifyChanged() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// SourceIdentity identifies the account and the store that a list came from. An empty part is
// unknown.
type SourceIdentity struct{ AccountID, StoreID string }

// sourceGuard freezes removals while lists come from another account or store than the recorded
// one, until the new one is accepted by its id. A list without an identity changes nothing.
type sourceGuard struct {
	accept           string
	recorded, listed SourceIdentity
	frozen           bool
}

// update compares a list's identity with the recorded one. It reports whether a freeze has ended
// and whether the guard changed.
func (b *sourceGuard) update(listed SourceIdentity) (freezeEnded, changed bool) {
	before := *b
	b.listed = listed
	switch {
	case differs(b.recorded.AccountID, listed.AccountID):
		b.frozen = b.accept != listed.AccountID
	case differs(b.recorded.StoreID, listed.StoreID):
		b.frozen = b.accept != listed.StoreID
	default:
		b.frozen = false
	}
	if !b.frozen {
		b.recorded = SourceIdentity{AccountID: cmp.Or(listed.AccountID, b.recorded.AccountID),
			StoreID: cmp.Or(listed.StoreID, b.recorded.StoreID)}
	}
	return before.frozen && !b.frozen, before != *b
}

func differs(recorded, listed string) bool {
	return recorded != "" && listed != "" && recorded != listed
}

// SetRecordedSource sets the identity that an earlier manager recorded. Call it before the first
// list.
func (s *Set) SetRecordedSource(recorded SourceIdentity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals.source.recorded = recorded
}
