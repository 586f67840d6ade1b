// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// LocalAgent is an Agent in this process: its upstream is dialed, and Open is not called.
type LocalAgent interface {
	Agent
	// Dial connects to the upstream. Its error is a *tunnel.RefusedError.
	Dial(ctx context.Context) (relay.HalfCloser, error)
}

// dialLocal connects to the upstream of an agent in this process.
func (u *upstreams) dialLocal(ctx context.Context, agent LocalAgent, http2 bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, u.openTimeout)
	defer cancel()
	c, err := agent.Dial(ctx)
	if err != nil || http2 {
		return c, err // HTTP/2 has no bytes without a stream
	}
	return &localConn{HalfCloser: c, idleCheck: newIdleCheck()}, nil
}

// localConn is a connection to the upstream of a LocalAgent, owned by a transport.
type localConn struct {
	relay.HalfCloser
	*idleCheck
	flusher flusher
	inUse   atomic.Bool // inUse is set while a request uses the connection.

	sawEOF, sentEOF atomic.Bool
}

// Read reads from the upstream, and lets awaitIdle return.
func (c *localConn) Read(p []byte) (int, error) {
	c.enter(reading)
	defer c.endRead()
	c.flusher.flush()
	n, err := c.HalfCloser.Read(p)
	if connread.IsEOF(err) {
		c.sawEOF.Store(true)
	}
	return n, err
}

// CloseWrite ends the sending side of an upgraded connection.
func (c *localConn) CloseWrite() error {
	c.sentEOF.Store(true)
	return c.HalfCloser.CloseWrite()
}

// Close aborts a connection that is in use, unless both directions have ended, and lets awaitIdle
// return.
func (c *localConn) Close() error {
	c.enter(closed)
	if c.inUse.Load() && (!c.sawEOF.Load() || !c.sentEOF.Load()) {
		relay.Abort(c.HalfCloser)
		return nil
	}
	return c.HalfCloser.Close()
}

// sendLocal sends a request to a LocalAgent. A body need not wait for the answer once the transport has
// a connection.
func (p *agentPool) sendLocal(r *http.Request, body *replayReader) (*http.Response, *flusher, error) {
	var conn *localConn
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			awaitIdle(info)
			if conn, _ = info.Conn.(*localConn); conn != nil {
				conn.inUse.Store(true)
			}
			if body != nil {
				body.body.deliver()
			}
		},
		PutIdleConn: func(err error) {
			if err == nil && conn != nil {
				conn.flusher.set(nil)
				conn.inUse.Store(false)
			}
		},
	}
	if body != nil {
		body.body.rewind(r)
	}
	res, err := p.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if body != nil && err == nil {
		body.body.answered()
	}
	if conn == nil {
		return res, nil, err
	}
	return res, &conn.flusher, err
}
