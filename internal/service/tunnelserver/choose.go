// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// chooser chooses the members that serve connections, and waits for agents that may come back.
type chooser struct {
	members    *members
	store      account.Endpoints
	started    time.Time // start of this server
	replicated bool      // replicated reports that the server is one of several with one store.
}

// Target is what a connection is for: the URL of an endpoint, or a tunnel group.
type Target struct {
	Query    peers.Query
	endpoint *account.Endpoint // nil for a tunnel group
	// Seals makes Choose wait although members were tried, which do not seal or were refused, while one that
	// seals may be reconnecting.
	Seals bool
}

// URLOf returns the target of connections to the endpoint's URL.
func URLOf(ep *account.Endpoint) Target {
	return Target{Query: peers.Query{Pool: peers.PoolOf(ep)}, endpoint: ep}
}

// TunnelGroup returns the target of connections to the account's tunnels that have all the labels.
func TunnelGroup(accountID string, labels map[string]string) Target {
	return Target{Query: peers.Query{Pool: peers.Pool{AccountID: accountID}, Labels: labels}}
}

// Choose returns the member that serves a new connection to the target: of those online that
// respond, the one with the fewest connections, then the one chosen least recently. The connection
// counts until Release. The error is CodeEndpointOffline when no member is online, or only agents
// that are about to stop; CodeAgentSilent when all are unresponsive. The Endpoint of a member of a
// tunnel group has the tunnel's id and upstream, and no URL.
//
// Members in tried are left out. Unless tried has any, Choose waits for an agent that became
// unresponsive a moment ago, and for one that was connected before this server restarted and may be
// reconnecting: for a tunnel group, whenever this server has just started.
func (ch *chooser) Choose(ctx context.Context, to Target, tried ...*Member) (*Member, error) {
	c, err := ch.members.choose(to.Query, tried), error(nil)
	if c.member == nil && (len(tried) == 0 || to.Seals) {
		wait := time.Duration(0)
		if to.endpoint == nil || c.unresponsive.IsZero() {
			wait, err = ch.reconnectWait(ctx, to.endpoint, tried...)
		}
		if err == nil {
			c, err = ch.awaitMember(ctx, c, to, wait, tried)
		}
	}
	return c.member, to.err(c, err)
}

// ChooseNow is Choose without waiting.
func (ch *chooser) ChooseNow(to Target, tried ...*Member) (*Member, error) {
	c := ch.members.choose(to.Query, tried)
	return c.member, to.err(c, nil)
}

// selection is the result of choosing among members.
type selection struct {
	member       *Member         // chosen member; nil: there is none
	unresponsive time.Time       // start of the latest silence of an unresponsive member; zero = all respond
	changed      <-chan struct{} // changed is closed when choosing again may have another result.
}

// awaitMember chooses again whenever something changes, until it has a member, for at most wait or
// as long as an unresponsive agent is worth waiting for.
func (ch *chooser) awaitMember(
	ctx context.Context, c selection, to Target, wait time.Duration, tried []*Member,
) (selection, error) {
	for began := time.Now(); c.member == nil; c = ch.members.choose(to.Query, tried) {
		left := time.Until(began.Add(wait))
		if !c.unresponsive.IsZero() {
			left = max(left, time.Until(c.unresponsive.Add(maxReconnectWait)))
		}
		if left <= 0 {
			return c, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return c, ctx.Err()
		}
		timer.Stop()
	}
	return c, nil
}

// err returns why the selection has no member, or nil.
func (to Target) err(c selection, cause error) error {
	offline := c.unresponsive.IsZero()
	switch {
	case c.member != nil:
		return nil
	case to.endpoint != nil && offline:
		return peers.ErrOffline(to.endpoint.ID, cause)
	case to.endpoint != nil:
		return peers.ErrUnresponsive("the agent of endpoint " + to.endpoint.ID + " does not respond")
	}
	what := "no tunnel with the labels " + labelsText(to.Query.Labels)
	if offline {
		return &account.Error{Code: account.CodeEndpointOffline, Msg: what + " is online", Cause: cause}
	}
	return peers.ErrUnresponsive(what + " responds")
}

const (
	// reconnectWindow is how long agents may take to reconnect after a start of the server: their
	// longest pause between two attempts, and an attempt.
	reconnectWindow = 12 * time.Second
	// maxReconnectWait is how long one connection waits for that.
	maxReconnectWait = 3 * time.Second
	// restartWindow is how long a server may have been down for its start to count as a restart.
	restartWindow = time.Minute
)

// reconnectWait returns how long to wait for an agent of the endpoint's URL: 0 unless the restart
// of this server disconnected one. That may be another member of the pool than the endpoint itself,
// whose agent may be gone for long. For a tunnel group, ep is nil, and any agent may be waited for. After
// tried, it is one that seals.
func (ch *chooser) reconnectWait(
	ctx context.Context, ep *account.Endpoint, tried ...*Member,
) (time.Duration, error) {
	wait := min(maxReconnectWait, time.Until(ch.started.Add(reconnectWindow)))
	lost := func(ep *account.Endpoint) bool {
		return ch.lostByRestart(ep) && (len(tried) == 0 || ep.Sealed() &&
			!slices.ContainsFunc(tried, func(h *Member) bool { return h.Endpoint().ID == ep.ID }))
	}
	if wait <= 0 || ep == nil || lost(ep) {
		return wait, nil
	}
	if !ep.SharesURL() {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	page, err := ch.store.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return 0, err
	}
	for i := range page.Endpoints {
		if lost(&page.Endpoints[i]) {
			return wait, nil
		}
	}
	return 0, nil
}

// lostByRestart reports whether the restart disconnected the endpoint's agent. One that is online
// in the store of a server that is alone has bound again, and is about to become a member.
func (ch *chooser) lostByRestart(ep *account.Endpoint) bool {
	if ep.Status == account.StatusOnline && !ch.replicated {
		return true
	}
	return ep.OfflineSince != nil && !ep.OfflineSince.After(ch.started) &&
		!ep.OfflineSince.Before(ch.started.Add(-restartWindow))
}

// query returns what the query asks for, and labelled tunnels with other labels. mu must be held.
func (m *members) query(q peers.Query) []*Member {
	switch {
	case len(q.Labels) > 0:
		return m.tunnels[q.AccountID]
	case q.AccountID == "":
		return m.public[q.Pool]
	}
	return m.pools[q.Pool]
}

// choose chooses one of the members that the query asks for, and counts a connection to it.
func (m *members) choose(q peers.Query, tried []*Member) selection {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := selection{changed: m.changed}
	for _, h := range m.query(q) {
		if slices.Contains(tried, h) || !h.canServe(q) {
			continue
		}
		if since, yes := h.session.tun.Unresponsive(); yes {
			if since.After(c.unresponsive) {
				c.unresponsive = since
			}
		} else if c.member == nil || h.lessLoaded(c.member) {
			c.member = h
		}
	}
	if c.member != nil {
		m.countConn(c.member)
	}
	return c
}

// canServe reports whether the member has the labels of the query, and streams can be opened to it.
func (h *Member) canServe(q peers.Query) bool {
	return account.HasLabels(h.labels, q.Labels) && h.session.tun.CanOpen()
}

// lessLoaded reports whether h is preferred to o for the next connection. registry.mu must be held.
func (h *Member) lessLoaded(o *Member) bool {
	return cmp.Or(cmp.Compare(h.conns, o.conns), cmp.Compare(h.lastChosen, o.lastChosen)) < 0
}

// countConn counts a connection to h. mu must be held.
func (m *members) countConn(h *Member) {
	m.chooseCount++
	h.conns++
	h.lastChosen = m.chooseCount
}

// Open opens a stream to the agent, without waiting for its answer. The error is
// CodeEndpointOffline when the session has ended, CodeAgentSilent when the agent does not respond.
func (h *Member) Open(ctx context.Context, header tunnel.OpenHeader) (*tunnel.Stream, error) {
	if h.ctx.Err() != nil {
		return nil, peers.ErrOffline(h.endpoint.ID, nil)
	}
	st, err := h.session.tun.Open(ctx, header)
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return nil, peers.ErrUnresponsive("the agent of endpoint " + h.endpoint.ID + " does not respond")
	case err != nil:
		return nil, peers.ErrOffline(h.endpoint.ID, err)
	}
	return st, nil
}

// Report sends a request line to the agent's screen; it never blocks.
func (h *Member) Report(line tunnel.RequestLine) { h.session.tun.SendRequestLine(line) }

// Release ends a connection that Choose counted.
func (h *Member) Release() {
	h.members.mu.Lock()
	defer h.members.mu.Unlock()
	h.conns--
}

// endpoint returns the account's endpoint of this id if it is bound here, else nil.
func (m *members) endpoint(accountID, id string) *account.Endpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.endpoints[id]; h != nil && h.session.accountID == accountID {
		return h.Endpoint()
	}
	return nil
}

// Online returns the endpoint of a pool, as its agent, or an agent of the pool, bound it; nil when
// none is online.
func (m *members) Online(pool peers.Pool) *account.Endpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.pools[pool]; len(all) > 0 {
		return all[0].Endpoint()
	}
	return nil
}

// OnlinePublic returns the endpoint of the public binding at host and port whose agent bound it
// here last, and when it asked for that; nil when none is online. Of two accounts, the later one
// had the domain's grant later.
func (m *members) OnlinePublic(host string, port int) (ep *account.Endpoint, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.public[peers.PublicAddress(host, port)]
	if len(all) == 0 {
		return nil, time.Time{}
	}
	last := all[len(all)-1]
	return last.Endpoint(), last.asked
}

// IsOnline reports whether Choose would find a member at once.
func (m *members) IsOnline(to Target) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.query(to.Query), func(h *Member) bool {
		_, unresponsive := h.session.tun.Unresponsive()
		return h.canServe(to.Query) && !unresponsive
	})
}

// Holders returns the members of local sessions that the query asks for and to which streams can be
// opened; those of a public address in the order of their binds.
func (m *members) Holders(q peers.Query) []peers.Holder {
	m.mu.Lock()
	defer m.mu.Unlock()
	var holders []peers.Holder
	for _, h := range m.query(q) {
		if !h.canServe(q) {
			continue
		}
		_, unresponsive := h.session.tun.Unresponsive()
		holders = append(holders, peers.Holder{Endpoint: *h.Endpoint(), Connections: h.conns,
			Unresponsive: unresponsive, Asked: h.asked})
	}
	return holders
}

// OpenMember opens a stream to the agent of an endpoint or labelled tunnel of the account, by its
// id, as Member.Open does. Only local sessions count. The stream counts as a connection, as one that
// Choose counted, until release is called, which must be called unless there is an error.
func (m *members) OpenMember(
	ctx context.Context, accountID, id string, h tunnel.OpenHeader,
) (st *tunnel.Stream, release func(), err error) {
	member := m.memberOf(accountID, id)
	if member == nil {
		return nil, nil, peers.ErrOffline(id, nil)
	}
	m.mu.Lock()
	m.countConn(member)
	m.mu.Unlock()
	if st, err = member.Open(ctx, h); err != nil {
		member.Release()
		return nil, nil, err
	}
	return st, member.Release, nil
}

// ReportLine sends a request line to the agent of the line's endpoint; it never blocks.
func (m *members) ReportLine(accountID string, line tunnel.RequestLine) {
	if member := m.memberOf(accountID, line.EndpointID); member != nil {
		member.Report(line)
	}
}

// memberOf returns the account's member with the id of an endpoint or labelled tunnel, or nil.
func (m *members) memberOf(accountID, id string) *Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.endpoints[id]; h != nil && h.session.accountID == accountID {
		return h
	}
	for _, h := range m.tunnels[accountID] {
		if h.endpoint.ID == id {
			return h
		}
	}
	return nil
}
