// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// poolKey is a URL of an account: the key of the pool whose members serve its connections.
type poolKey struct {
	accountID, binding, scheme, host string
	port                             int
}

func poolKeyOf(ep *account.Endpoint) poolKey {
	return poolKey{ep.AccountID, ep.Bindings[0], ep.Scheme, ep.Host, ep.Port}
}

// Choose returns the member that serves a new connection to the endpoint's URL: of those online
// that respond, the one with the fewest connections, then the one chosen least recently. The
// connection counts until Release. The error is CodeEndpointOffline when no member is online, or
// only agents that are about to stop; CodeAgentSilent when all are unresponsive.
//
// Members in tried are left out. Unless tried has any, Choose waits for an agent that was connected
// before this server restarted and may be reconnecting, and for one that became unresponsive a
// moment ago.
func (s *Server) Choose(ctx context.Context, ep *account.Endpoint, tried ...*Member) (*Member, error) {
	selectMember := func(tried []*Member) selection { return s.selectByURL(ep, tried) }
	c := selectMember(tried)
	if c.member != nil || len(tried) > 0 {
		return c.member, c.err(ep.ID, nil)
	}
	wait, err := time.Duration(0), error(nil)
	if c.unresponsive.IsZero() {
		wait, err = s.reconnectWait(ctx, ep)
	}
	if err != nil {
		return nil, errOffline(ep.ID, err)
	}
	c, err = c.awaitMember(ctx, wait, selectMember)
	return c.member, c.err(ep.ID, err)
}

// ChooseNow is Choose without waiting.
func (s *Server) ChooseNow(ep *account.Endpoint, tried ...*Member) (*Member, error) {
	c := s.selectByURL(ep, tried)
	return c.member, c.err(ep.ID, nil)
}

// selection is the result of choosing among members.
type selection struct {
	member       *Member         // nil: there is none
	unresponsive time.Time       // since when the last unresponsive one is so; zero = there are none
	changed      <-chan struct{} // closed when choosing again may have another result
}

// awaitMember selects again whenever something changes, until it has a member, for at most wait or
// as long as an unresponsive agent is worth waiting for.
func (c selection) awaitMember(
	ctx context.Context, wait time.Duration, selectMember func(tried []*Member) selection,
) (selection, error) {
	for began := time.Now(); c.member == nil; c = selectMember(nil) {
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

// err returns why there is no member, or nil.
func (c selection) err(endpointID string, cause error) error {
	switch {
	case c.member != nil:
		return nil
	case c.unresponsive.IsZero():
		return errOffline(endpointID, cause)
	}
	return errUnresponsive("the agent of endpoint " + endpointID + " does not respond")
}

func errUnresponsive(msg string) error {
	return &account.Error{Code: account.CodeAgentSilent, Msg: msg, Cause: tunnel.ErrUnresponsive}
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
// whose agent may be gone for long.
func (s *Server) reconnectWait(ctx context.Context, ep *account.Endpoint) (time.Duration, error) {
	wait := min(maxReconnectWait, time.Until(s.started.Add(reconnectWindow)))
	if wait <= 0 || s.lostByRestart(ep) {
		return wait, nil
	}
	if !ep.SharesURL() {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	page, err := s.opt.Store.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return 0, err
	}
	for i := range page.Endpoints {
		if s.lostByRestart(&page.Endpoints[i]) {
			return wait, nil
		}
	}
	return 0, nil
}

// lostByRestart reports whether the restart disconnected the endpoint's agent. One that is online
// in the store of a server that is alone has bound again, and is about to become a member.
func (s *Server) lostByRestart(ep *account.Endpoint) bool {
	if ep.Status == account.StatusOnline && !s.replicated() {
		return true
	}
	return ep.OfflineSince != nil && !ep.OfflineSince.After(s.started) &&
		!ep.OfflineSince.Before(s.started.Add(-restartWindow))
}

func (s *Server) selectByURL(ep *account.Endpoint, tried []*Member) selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.selectMember(s.pools[poolKeyOf(ep)], nil, tried)
}

// selectMember chooses one of the members that have the labels, and counts a connection to it. mu
// must be held.
func (s *Server) selectMember(all []*Member, labels map[string]string, tried []*Member) selection {
	c := selection{changed: s.changed}
	for _, h := range all {
		if !account.HasLabels(h.labels, labels) || slices.Contains(tried, h) || !h.session.tun.CanOpen() {
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
		s.countConn(c.member)
	}
	return c
}

// countConn counts a connection to h. Server.mu must be held.
func (s *Server) countConn(h *Member) {
	s.chooseCount++
	h.conns++
	h.lastChosen = s.chooseCount
}

// lessLoaded reports whether h is preferred to o for the next connection. Server.mu must be held.
func (h *Member) lessLoaded(o *Member) bool {
	return cmp.Or(cmp.Compare(h.conns, o.conns), cmp.Compare(h.lastChosen, o.lastChosen)) < 0
}

// Release ends a connection that Choose counted.
func (h *Member) Release() {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	h.conns--
}

// Online returns the endpoint of an account at a URL of the binding, as its agent, or an agent of
// its pool, bound it; nil when none is online there.
func (s *Server) Online(accountID, binding string, u account.EndpointURL) *account.Endpoint {
	return s.onlineEndpoint(poolKey{accountID, binding, u.Scheme, u.Host, u.Port})
}

// onlineEndpoint returns an online endpoint of the pool, or nil.
func (s *Server) onlineEndpoint(key poolKey) *account.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if members := s.pools[key]; len(members) > 0 {
		return members[0].Endpoint()
	}
	return nil
}

// publicAddress is host and port of a public endpoint, of any account.
type publicAddress struct {
	host string
	port int
}

// OnlinePublic returns the endpoint of the public binding at host and port whose agent bound it
// here last, and when it asked for that; nil when none is online. Of two accounts, the later one
// had the domain's grant later.
func (s *Server) OnlinePublic(host string, port int) (ep *account.Endpoint, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := s.public[publicAddress{host, port}]
	if len(members) == 0 {
		return nil, time.Time{}
	}
	last := members[len(members)-1]
	return last.Endpoint(), last.asked
}
