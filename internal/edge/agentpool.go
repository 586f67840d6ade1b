// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// maxIdle bounds the streams that a pool keeps between requests.
	maxIdle = 64
	// idleTimeout is shorter than the 5 s after which common servers (Node.js, Apache httpd, uvicorn)
	// close an idle connection, so that a request hardly ever meets a connection at its end. A new
	// stream costs no round trip.
	idleTimeout = 4 * time.Second
	// maxResponseHeader bounds what is read of an upstream's response header, in bytes.
	maxResponseHeader = 256 << 10
	// expectTimeout is how long an upstream may think about "Expect: 100-continue" before it gets the
	// body anyway.
	expectTimeout = time.Second
)

const protocolHTTP2 = "http2"

// pool keeps the streams to one agent for one endpoint. A new bind is a new pool: a stream never
// serves an agent that has lost the endpoint.
type pool struct {
	transport *http.Transport
	http2     bool
}

// pool returns the pool of the agent and drops it when the agent no longer holds the endpoint.
func (e *Edge) pool(agent Agent) *pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pools[agent]; p != nil {
		return p
	}
	p := e.newPool(agent)
	e.pools[agent] = p
	context.AfterFunc(agent.Context(), func() {
		e.mu.Lock()
		delete(e.pools, agent)
		e.mu.Unlock()
		p.transport.CloseIdleConnections()
	})
	return p
}

// transports returns those of all pools and static addresses.
func (e *Edge) transports() []*http.Transport {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Collect(maps.Values(e.statics))
	for _, p := range e.pools {
		all = append(all, p.transport)
	}
	return all
}

func (e *Edge) newPool(agent Agent) *pool {
	ep := agent.Endpoint()
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			u, err := e.openAgent(ctx, agent,
				tunnel.OpenHeader{Scheme: "http", BytesFollow: ep.UpstreamProtocol != protocolHTTP2})
			if err != nil {
				return nil, err
			}
			// its connections serve many requests; the first may wait for the answer, so that a refusal is
			// clear
			if ep.UpstreamProtocol == protocolHTTP2 {
				if err := u.opened(); err != nil {
					_ = u.Stream.Close()
					return nil, err
				}
			}
			return pooled{u}, nil
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  expectTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              new(http.Protocols),
	}
	p := &pool{transport: t, http2: ep.UpstreamProtocol == protocolHTTP2}
	if p.http2 {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	return p
}

// traced sends a request over a connection that is open once the transport has it.
func traced(t *http.Transport, r *http.Request, body *attempt) (*http.Response, error) {
	if body == nil {
		return t.RoundTrip(r)
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { body.settle(nil) }}
	return t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// roundTrip is send, but leaves an agent that becomes unresponsive while the request, which may be
// sent twice, waits for the answer: with tunnel.ErrUnresponsive.
func (p *pool) roundTrip(r *http.Request, body *attempt) (*http.Response, *upstream, error) {
	if !onlyAsks(r) {
		return p.send(r.Context(), r, body, func(pooled) {})
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // which ends with the request: the answer's body needs it
	stop := func() {}
	defer func() { stop() }()
	res, stream, err := p.send(ctx, r, body, func(conn pooled) {
		stop() // the transport may try another stream
		if conn.upstream != nil {
			stop = conn.OnUnresponsive(func() { cancel(tunnel.ErrUnresponsive) })
		}
	})
	if err != nil && errors.Is(context.Cause(ctx), tunnel.ErrUnresponsive) {
		err = tunnel.ErrUnresponsive
	}
	return res, stream, err
}

// send sends a request, and its body if it has one, over a stream of the pool, of which got is
// told. On HTTP/1 it keeps count of who uses a stream, so that the stream's Close knows an idle one
// from one that is cut, and returns the stream.
func (p *pool) send(
	ctx context.Context, r *http.Request, body *attempt, got func(pooled),
) (*http.Response, *upstream, error) {
	var conn pooled
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c, _ := info.Conn.(pooled)
		got(c)
		if p.http2 { // which is open, and many requests' at a time
			if body != nil {
				body.settle(nil)
			}
			return
		}
		conn = c
		conn.busy.Add(1)
		if body != nil {
			conn.carry(body)
		}
	}}
	if !p.http2 {
		trace.PutIdleConn = func(err error) {
			if err == nil {
				conn.before.set(nil)
				conn.busy.Add(-1)
			}
		}
	}
	res, err := p.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	return res, conn.upstream, err
}

// pooled is an upstream in the hands of a transport.
type pooled struct{ *upstream }

// Close cuts a stream that is in use and says goodbye on an idle one.
func (p pooled) Close() error {
	p.closing.Do(func() {
		if p.busy.Load() > 0 {
			_ = p.Stream.Close() // an abort, unless both directions have ended
			return
		}
		p.closeIdle()
	})
	return nil
}
