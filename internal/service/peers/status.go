// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"slices"
	"time"
)

// Status describes a link with a peer.
type Status struct {
	ID, Address, Version string
	Draining             bool // the peer is about to stop
	Connected            bool
	Since                time.Time     // when the link was made, or lost
	Error                string        // why there is none, or why the last ping failed; "" = none
	RoundTrip            time.Duration // at rest, by the last ping; 0 = unknown
	Heard                time.Time     // when the last ping was answered; zero = never
	StoreAge             time.Duration // age of the store's last answer to the peer, then; -1 = unknown

	RelayedOut, RelayedIn int64 // streams so far: that this replica opened over the peer, and the reverse
	Members               int   // members that are known through the link
	PendingChanges        int64 // changes that the peer has not answered
	OverdueChanges        int64 // changes that it had not answered within its lease, so far
}

// Totals are counts over all peers, those that have left included.
type Totals struct {
	RelayedOut, RelayedIn int64 // streams
	OverdueChanges        int64
}

// Totals returns the counts since New.
func (p *Peers) Totals() Totals {
	return Totals{p.relayedOut.Load(), p.relayedIn.Load(), p.overdue.Load()}
}

// HasDialed reports whether the registry was read, and each peer in it was dialed and answered a ping,
// or does not answer: from then on questions find connections.
func (p *Peers) HasDialed() bool {
	known := p.registry.has(p.opt.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pr := range p.peers {
		tried := pr.wasTried && (pr.link == nil || pr.silent || !pr.heard.IsZero())
		known = known && (tried || time.Since(pr.since) > handshakeTimeout)
	}
	return known
}

// Status returns the links with all peers in the registry, in the order of their ids.
func (p *Peers) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Status, 0, len(p.peers))
	for id, pr := range p.peers {
		s := Status{ID: id, Address: pr.row.RelayAddress, Version: pr.row.Version, Draining: pr.row.Draining,
			Connected: pr.link != nil, Since: pr.since, Error: pr.lastErr, RoundTrip: pr.roundTrip,
			Heard: pr.heard, StoreAge: pr.storeAge,
			RelayedOut: pr.relayedOut.Load(), RelayedIn: pr.relayedIn.Load(),
			PendingChanges: pr.pending.Load(), OverdueChanges: pr.overdue.Load()}
		if pr.link != nil {
			s.Members = len(pr.link.members)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
