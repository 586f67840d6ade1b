// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// PrivateUpstreams are the connections with upstreams that serve one client connection alone,
// because an upstream may have authenticated the connection in place of the request, as with NTLM
// and Negotiate (RFC 4559, section 6). There are none until the client presents such credentials or
// is asked for them; from then on all its requests use them, one at a time for each agent and
// static address. The zero value is ready. It is safe for concurrent use.
type PrivateUpstreams struct {
	mu     sync.Mutex
	inUse  bool
	agents map[Agent]*agentPool
	static map[string]*http.Transport // static has the transports to static addresses, by account.
}

// connectionSchemes are the schemes of HTTP authentication that authenticate a connection.
var connectionSchemes = []string{"NTLM", "Negotiate", "Kerberos", "Nego2"}

// hasConnectionScheme reports whether one of the headers has a scheme that authenticates a
// connection. Challenges can stand in one header, separated by commas (RFC 9110, section 11.6.1).
func hasConnectionScheme(h http.Header, names ...string) bool {
	for _, name := range names {
		for _, value := range h[name] {
			for challenge := range strings.SplitSeq(value, ",") {
				scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " ")
				if slices.ContainsFunc(connectionSchemes, func(s string) bool { return strings.EqualFold(s, scheme) }) {
					return true
				}
			}
		}
	}
	return false
}

// required reports whether the request must not use a connection that other clients use, too.
func (u *PrivateUpstreams) required(r *http.Request) bool {
	bound := hasConnectionScheme(r.Header, "Authorization", "Proxy-Authorization")
	if u == nil {
		return bound
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inUse = u.inUse || bound
	return u.inUse
}

// observe makes the client's further requests private when the answer asks for credentials of a
// connection.
func (u *PrivateUpstreams) observe(res *http.Response) {
	if u == nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusProxyAuthRequired ||
		!hasConnectionScheme(res.Header, "Www-Authenticate", "Proxy-Authenticate") {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inUse = true
}

// agentPool returns the client's own pool of the agent. Without a client connection that is known,
// it serves one request.
func (u *PrivateUpstreams) agentPool(e *Edge, agent Agent) *agentPool {
	if u == nil {
		p := e.newAgentPool(agent)
		p.transport.DisableKeepAlives = true
		return p
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.agents[agent]
	if p == nil {
		p = e.newAgentPool(agent)
		makePrivate(p.transport)
		if u.agents == nil {
			u.agents = make(map[Agent]*agentPool)
		}
		u.agents[agent] = p
	}
	return p
}

// staticTransport returns the client's own transport to the static addresses of an account.
func (u *PrivateUpstreams) staticTransport(e *Edge, accountID string) *http.Transport {
	if u == nil {
		t := e.newStaticTransport()
		t.DisableKeepAlives = true
		return t
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.static[accountID]
	if t == nil {
		t = e.newStaticTransport()
		makePrivate(t)
		if u.static == nil {
			u.static = make(map[string]*http.Transport)
		}
		u.static[accountID] = t
	}
	return t
}

// makePrivate makes a transport keep one connection for as long as its client may be idle. The steps
// of a handshake would not meet over several.
func makePrivate(t *http.Transport) {
	t.MaxConnsPerHost, t.IdleConnTimeout = 1, clientIdle
}

// Close ends the connections once no request uses them.
func (u *PrivateUpstreams) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.agents {
		p.transport.CloseIdleConnections()
	}
	for _, t := range u.static {
		t.CloseIdleConnections()
	}
}
