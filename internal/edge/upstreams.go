// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/tasks"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// upstreams opens streams to agents and connections to static addresses, and keeps those that
// clients share. It is safe for concurrent use.
type upstreams struct {
	static      StaticDialer // nil = static addresses are not offered
	rootCAs     *x509.CertPool
	meter       Meter
	openTimeout time.Duration
	background  *tasks.Group
	shared      pools
}

// connect opens a connection to the target.
func (u *upstreams) connect(ctx context.Context, t *target, h tunnel.OpenHeader) (targetConn, error) {
	static := t.leaf.Static
	switch {
	case t.agent != nil:
		s, err := u.openAgentStream(ctx, t.agent, h)
		if err != nil {
			return nil, err // a nil *agentStream would be a non-nil targetConn
		}
		return s, nil
	case static == nil:
		return nil, &staticDialError{errors.New("an HTTP answer is nothing for a tcp endpoint")}
	}
	c, err := u.dialStatic(ctx, static.Address, static.TLS)
	if err != nil {
		return nil, err
	}
	return &staticConn{HalfCloser: c, source: relay.NewSource(c)}, nil
}

// withoutAnnotations returns the pod as agents may know it: annotations are for policies only.
func withoutAnnotations(pod *tunnel.PodIdentity) *tunnel.PodIdentity {
	if pod == nil {
		return nil
	}
	return &tunnel.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.ServiceAccount,
		Truncated: pod.Truncated}
}

// use is by whom the connections of pools are used.
type use int

const (
	byClient  use = iota // one client connection
	byRequest            // one request
	byAll                // all clients
)

// pools are pools of connections with upstreams. The zero value is ready, for one client connection.
// It is safe for concurrent use.
type pools struct {
	use    use
	mu     sync.Mutex
	agents map[Agent]*agentPool
	static map[string]*http.Transport // static has the transports to static addresses, by account.
}

// agent returns the pool of the agent. One that clients share is dropped when the agent no longer
// holds the endpoint.
func (p *pools) agent(u *upstreams, agent Agent) *agentPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool := p.agents[agent]; pool != nil {
		return pool
	}
	pool := u.newAgentPool(agent)
	if p.restrict(pool.transport); p.use == byAll {
		pool.isShared = true
		context.AfterFunc(agent.Context(), func() {
			p.mu.Lock()
			delete(p.agents, agent)
			p.mu.Unlock()
			pool.transport.CloseIdleConnections()
			pool.direct.expire(0)
		})
	}
	if p.agents == nil {
		p.agents = make(map[Agent]*agentPool)
	}
	p.agents[agent] = pool
	return pool
}

// address returns the transport to the static addresses of an account. Accounts never share a
// connection.
func (p *pools) address(u *upstreams, accountID string) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.static[accountID]
	if t == nil {
		t = u.newStaticTransport()
		p.restrict(t)
		if p.static == nil {
			p.static = make(map[string]*http.Transport)
		}
		p.static[accountID] = t
	}
	return t
}

// restrict makes the transport of one client keep one connection for as long as the client may be
// idle: the steps of a handshake would not meet over several.
func (p *pools) restrict(t *http.Transport) {
	switch p.use {
	case byClient:
		t.MaxConnsPerHost, t.IdleConnTimeout = 1, clientIdle
	case byRequest:
		t.DisableKeepAlives = true
	}
}

// closeIdle ends the connections that no request uses.
func (p *pools) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.agents {
		pool.transport.CloseIdleConnections()
		pool.direct.expire(0)
	}
	for _, t := range p.static {
		t.CloseIdleConnections()
	}
}

// newTransport returns a transport with the limits of all upstreams.
func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleStreams,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  expectTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              new(http.Protocols),
	}
}

// PrivateUpstreams are the connections with upstreams that serve one client connection alone,
// because an upstream may have authenticated the connection in place of the request, as with NTLM
// and Negotiate (RFC 4559, section 6). There are none until the client presents such credentials or
// is asked for them; from then on all its requests use them, one at a time for each agent and
// static address. The zero value is ready. It is safe for concurrent use.
type PrivateUpstreams struct {
	inUse   atomic.Bool
	private pools
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

// pools returns the pools for a request, which must not use a connection that other clients use, too,
// when it has credentials of a connection. They are for one request where the client's connection is
// not known.
func (p *PrivateUpstreams) pools(u *upstreams, r *http.Request) *pools {
	bound := hasConnectionScheme(r.Header, "Authorization", "Proxy-Authorization")
	switch {
	case p == nil && bound:
		return &pools{use: byRequest}
	case p == nil:
		return &u.shared
	case bound:
		p.inUse.Store(true)
	}
	if p.inUse.Load() {
		return &p.private
	}
	return &u.shared
}

// observe makes the client's further requests private when the answer asks for credentials of a
// connection.
func (p *PrivateUpstreams) observe(res *http.Response) {
	if p == nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusProxyAuthRequired ||
		!hasConnectionScheme(res.Header, "Www-Authenticate", "Proxy-Authenticate") {
		return
	}
	p.inUse.Store(true)
}

// Close ends the connections once no request uses them.
func (p *PrivateUpstreams) Close() { p.private.closeIdle() }
