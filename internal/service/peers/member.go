// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Member is an endpoint or labelled tunnel that an agent has bound on a peer. It is the same
// pointer for every choice while the link with the peer and the bind last. It implements
// edge.Agent.
type Member struct {
	link      *link
	key       memberKey
	accountID string
	asked     time.Time
	ctx       context.Context
	cancel    context.CancelFunc
	endpoint  atomic.Pointer[account.Endpoint]

	// guarded by Peers.mu
	sequence    uint64    // the last question whose answer has described it
	connections int       // its connections when the peer was asked
	silentSince time.Time // since when its agent is known not to respond; zero: it does
	uses        int       // choices that are not released
	lastChosen  uint64    // 0 = never
	listedAt    time.Time // last
}

// memberKey tells one bind on a replica from the next.
type memberKey struct {
	id    string
	asked int64 // Unix nanoseconds
}

// Endpoint returns the endpoint as the peer has described it last, with its traffic policy. It must
// not be changed.
func (m *Member) Endpoint() *account.Endpoint { return m.endpoint.Load() }

// Context is done when the link with the peer is lost, when the peer has left the registry, and
// when it has answered that the agent has not bound the endpoint any more.
func (m *Member) Context() context.Context { return m.ctx }

// ReplicaID returns the id of the replica that the agent has its session with.
func (m *Member) ReplicaID() string { return m.link.peer.id }

// Open opens a stream to the agent over the link with its replica, without waiting for an answer.
// The stream's refusals are those of the agent; RefusedOffline also when the replica does not have
// the member any more, and RefusedUnresponsive when its agent does not respond there. The error is
// CodeEndpointOffline when the link is lost, CodeAgentSilent when the replica does not respond.
func (m *Member) Open(ctx context.Context, h tunnel.OpenHeader) (*tunnel.Stream, error) {
	if m.ctx.Err() != nil {
		return nil, ErrOffline(m.key.id, nil)
	}
	relayID := m.link.peer.peers.lastRelayID.Add(1)
	h.EndpointID, h.RelayID = wireID(m.accountID, m.key.id), relayID
	st, err := m.link.session.Open(ctx, h)
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return nil, ErrUnresponsive("replica " + m.ReplicaID() + ", which has the agent of endpoint " + m.key.id +
			", does not respond")
	case err != nil:
		return nil, ErrOffline(m.key.id, err)
	}
	m.link.peer.relayedOut.Add(1)
	m.link.peer.peers.relayedOut.Add(1)
	st.OnRefused(m.handleRefusal)
	st.SetAgentWatch(func(f func()) (stop func()) { return m.watchAgent(relayID, f) })
	return st, nil
}

// handleRefusal drops a member that the peer does not have any more.
func (m *Member) handleRefusal(code tunnel.RefuseCode) {
	switch code {
	case tunnel.RefusedOffline, tunnel.RefusedUnknownEndpoint:
		p := m.link.peer.peers
		p.mu.Lock()
		defer p.mu.Unlock()
		m.dropLocked()
	case tunnel.RefusedUnresponsive:
		m.setUnresponsive()
	}
}

// setUnresponsive makes Choose pass the member over until the peer has been asked again.
func (m *Member) setUnresponsive() {
	p := m.link.peer.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	m.setSilentLocked(true)
}

// setSilentLocked records whether the agent does not respond. Peers.mu must be held.
func (m *Member) setSilentLocked(silent bool) {
	switch {
	case !silent:
		m.silentSince = time.Time{}
	case m.silentSince.IsZero():
		m.silentSince = time.Now()
	}
}

// dropLocked ends the member. Peers.mu must be held.
func (m *Member) dropLocked() {
	m.cancel()
	if m.link.members[m.key] == m {
		delete(m.link.members, m.key)
	}
}

// Report sends a request line to the replica of the agent, for its screen. It does not block.
func (m *Member) Report(line tunnel.RequestLine) {
	line.EndpointID = wireID(m.accountID, m.key.id)
	m.link.session.SendRequestLine(line)
}

// Release ends the use that Choose counted.
func (m *Member) Release() {
	p := m.link.peer.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	m.uses--
}

// canServeLocked reports whether a stream can be opened, and whether the only hindrance is that the
// agent or its replica does not respond. Peers.mu must be held.
func (m *Member) canServeLocked() (ready, silent bool) {
	if m.ctx.Err() != nil || !m.link.session.CanOpen() {
		return false, false
	}
	if _, yes := m.link.session.Unresponsive(); yes || !m.silentSince.IsZero() {
		return false, true
	}
	return true, false
}

// lessLoadedLocked reports whether m is preferred to o for the next connection. Peers.mu must be
// held.
func (m *Member) lessLoadedLocked(o *Member) bool {
	if a, b := m.link.peer.row.Draining, o.link.peer.row.Draining; a != b {
		return b
	}
	return cmp.Or(cmp.Compare(m.connections+m.uses, o.connections+o.uses),
		cmp.Compare(m.lastChosen, o.lastChosen)) < 0
}

// ErrOffline is the error of an endpoint or labelled tunnel to whose agent no stream can be opened.
func ErrOffline(id string, cause error) error {
	return &account.Error{Code: account.CodeEndpointOffline, Msg: fmt.Sprintf("endpoint %s is offline", id),
		Cause: cause}
}

// ErrUnresponsive is the error of agents that are online and do not respond.
func ErrUnresponsive(msg string) error {
	return &account.Error{Code: account.CodeAgentSilent, Msg: msg, Cause: tunnel.ErrUnresponsive}
}
