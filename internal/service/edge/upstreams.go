// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
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

// openAgentStream opens a stream to the agent; h describes the client. The stream's header is sent
// together with the bytes that follow at once.
func (u *upstreams) openAgentStream(ctx context.Context, agent Agent, h tunnel.OpenHeader) (*agentStream, error) {
	ep := agent.Endpoint()
	h.EndpointID, h.Host, h.Port, h.Deadline = ep.ID, ep.Host, ep.Port, u.openTimeout
	st, err := agent.Open(ctx, h)
	if err != nil {
		u.meter.CountStream("offline")
		return nil, err
	}
	return &agentStream{Stream: st, upstreams: u, deadline: time.Now().Add(u.openTimeout)}, nil
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
		context.AfterFunc(agent.Context(), func() {
			p.mu.Lock()
			delete(p.agents, agent)
			p.mu.Unlock()
			pool.transport.CloseIdleConnections()
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
