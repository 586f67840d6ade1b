// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "errors"

// PairPause is why a client parks no connections for sealed streams at a replica of the server.
type PairPause string

// Reasons of a PairPause.
const (
	PairsUnsupported       PairPause = "unsupported" // the server's version or system, or this system
	PairsWebSocket         PairPause = "websocket"   // WebSockets carry the session.
	PairsClientCertificate PairPause = "client_certificate"
	PairsNoAddress         PairPause = "no_address" // one of several replicas, without an address of its own
	PairsCut               PairPause = "cut"        // something on the way has cut one.
	PairsLimit             PairPause = "limit"      // Here or at the server, descriptors allow no more.
	PairsFailed            PairPause = "failed"     // a connection could not be made.
)

// PairPauses returns all reasons of a PairPause.
func PairPauses() []PairPause {
	return []PairPause{PairsUnsupported, PairsWebSocket, PairsClientCertificate, PairsNoAddress, PairsCut, PairsLimit,
		PairsFailed}
}

// pauseAfter returns why parking pauses after an attempt that returned err.
func pauseAfter(err error) PairPause {
	var refused *Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoAddress):
		return PairsNoAddress
	case errors.As(err, &refused) && refused.Code == CodeLimit:
		return PairsLimit
	}
	return PairsFailed
}

// setPaused records why the last attempt to park failed, and reports whether that has changed.
func (k *parking) setPaused(p PairPause) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed, k.paused = k.paused != p, p
	return changed
}

// pairPauseLocked returns why nothing is parked at the replica behind l; "" = nothing keeps the client
// from it. The session's mutex must be held.
func (l *link) pairPauseLocked() PairPause {
	if l.parking == nil {
		return l.noPairs
	}
	l.parking.mu.Lock()
	defer l.parking.mu.Unlock()
	return l.parking.paused
}

// SealedPaths are what carries the sealed streams of a process.
type SealedPaths struct {
	Raw    int64 `json:"raw"`    // Raw counts the streams so far that had a connection of their own.
	Mux    int64 `json:"mux"`    // Mux counts the streams so far that ran in the multiplexer.
	InUse  int   `json:"in_use"` // InUse counts the raw connections of streams.
	Parked int   `json:"parked"` // Parked counts those that wait for a stream, or are being made.
	// Paused counts the replicas of the server at which nothing is parked, by the reason.
	Paused map[PairPause]int `json:"paused,omitempty"`
}

// SealedPaths returns what carries the sealed streams, and why nothing is parked for those of a client's
// session, which may be nil.
func (b *PairBudget) SealedPaths(s *Session) SealedPaths {
	var p SealedPaths
	for _, streams := range b.streams {
		raw, mux := streams.Counts()
		p.Raw, p.Mux = p.Raw+raw, p.Mux+mux
	}
	p.InUse, p.Parked = b.Connections()
	if s == nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, links := range s.links.byReplica() {
		if why := links[len(links)-1].pairPauseLocked(); why != "" {
			if p.Paused == nil {
				p.Paused = make(map[PairPause]int)
			}
			p.Paused[why]++
		}
	}
	return p
}
