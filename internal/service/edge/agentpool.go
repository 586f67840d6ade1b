// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	maxIdleStreams = 64 // per pool
	// idleTimeout is shorter than the 5 s after which common servers (Node.js, Apache httpd,
	// uvicorn) close an idle connection, so that a request hardly ever meets a closing connection.
	// A new stream costs no round trip.
	idleTimeout = 4 * time.Second
	// maxResponseHeader bounds an upstream's response header, in bytes.
	maxResponseHeader = 256 << 10
	// expectTimeout is how long to wait for "100 Continue" before the body is sent anyway.
	expectTimeout = time.Second
)

const protocolHTTP2 = "http2"

// agentPool keeps the streams to one agent for one endpoint. Each bind has its own pool: a stream
// never serves an agent that has lost the endpoint.
type agentPool struct {
	transport *http.Transport
	http2     bool
}

func (u *upstreams) newAgentPool(agent Agent) *agentPool {
	ep := agent.Endpoint()
	t := newTransport(func(ctx context.Context, _, _ string) (net.Conn, error) {
		s, err := u.openAgentStream(ctx, agent,
			tunnel.OpenHeader{Scheme: "http", BytesFollow: ep.UpstreamProtocol != protocolHTTP2})
		if err != nil {
			return nil, err
		}
		// A connection serves many requests: the first one waits for the answer, so that a
		// refusal is not taken for a broken connection.
		if ep.UpstreamProtocol == protocolHTTP2 {
			if err := s.waitOpened(); err != nil {
				_ = s.Stream.Close()
				return nil, err
			}
		}
		return pooledStream{s, newIdleCheck()}, nil
	})
	p := &agentPool{transport: t, http2: ep.UpstreamProtocol == protocolHTTP2}
	if p.http2 {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	return p
}

// roundTripStatic sends a request to a static address. A body need not wait for the answer once the
// transport has a connection.
func roundTripStatic(t *http.Transport, r *http.Request, body *replayReader) (*http.Response, error) {
	if body == nil {
		trace := &httptrace.ClientTrace{GotConn: awaitIdle}
		return t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	}
	body.body.rewind(r)
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		awaitIdle(info)
		body.body.deliver()
	}}
	res, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil {
		body.body.answered()
	}
	return res, err
}

// roundTrip sends a request. When the agent becomes unresponsive before the answer, one that is
// retryable is given up at once with tunnel.ErrUnresponsive, and any other after unansweredPatience
// with trafficerror.ErrUnanswered.
func (p *agentPool) roundTrip(r *http.Request, body *replayReader) (*http.Response, *agentStream, error) {
	patience, reason := time.Duration(0), tunnel.ErrUnresponsive
	if !isRetryable(r) {
		patience, reason = unansweredPatience, trafficerror.ErrUnanswered
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // not canceled here: the answer's body needs it
	stop := func() {}
	defer func() { stop() }()
	res, stream, err := p.send(ctx, r, body, func(conn pooledStream) {
		stop() // the transport may try another stream
		if conn.agentStream != nil {
			stop = watchSilence(conn, patience, cancel, reason)
		}
	})
	if err != nil && errors.Is(context.Cause(ctx), reason) {
		err = reason
	}
	return res, stream, err
}

// send sends a request over a stream of the pool; onConn is called with the stream. On HTTP/1 it
// counts the users of the stream, so that Close can tell an idle stream from one in use, and
// returns the stream.
func (p *agentPool) send(
	ctx context.Context, r *http.Request, body *replayReader, onConn func(pooledStream),
) (*http.Response, *agentStream, error) {
	var conn pooledStream
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c, _ := info.Conn.(pooledStream)
		onConn(c)
		if p.http2 { // the stream is open, and shared by many requests
			if body != nil {
				body.body.deliver()
			}
			return
		}
		awaitIdle(info)
		conn = c
		conn.inUse.Add(1)
		if body != nil {
			conn.attachBody(body)
		}
	}}
	if !p.http2 {
		trace.PutIdleConn = func(err error) {
			if err == nil {
				conn.flusher.set(nil)
				conn.inUse.Add(-1)
			}
		}
	}
	if p.http2 && body != nil {
		body.body.rewind(r)
	}
	res, err := p.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if p.http2 && body != nil && err == nil {
		body.body.answered()
	}
	return res, conn.agentStream, err
}

// pooledStream is an agentStream owned by a transport.
type pooledStream struct {
	*agentStream
	*idleCheck
}

// Read reads from the stream, and lets awaitIdle return.
func (p pooledStream) Read(b []byte) (int, error) {
	p.enter(reading)
	defer p.endRead()
	return p.agentStream.Read(b)
}

// Close aborts a stream that is in use and ends an idle one gently.
func (p pooledStream) Close() error {
	p.closeOnce.Do(func() {
		p.enter(closed)
		if p.inUse.Load() > 0 {
			_ = p.Stream.Close() // an abort, unless both directions have ended
			return
		}
		p.closeIdle()
	})
	return nil
}
