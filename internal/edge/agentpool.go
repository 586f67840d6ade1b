// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
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

// agentPool pools the streams to one agent for one endpoint. Each bind has its own pool: a stream
// never serves an agent that has lost the endpoint.
type agentPool struct {
	transport *http.Transport
	direct    directPool
	isShared  bool // isShared allows the use of direct: the pool serves all clients.
	http2     bool
	isLocal   bool // isLocal reports that the agent is a LocalAgent: there are no streams.
}

func (u *upstreams) newAgentPool(agent Agent) *agentPool {
	ep := agent.Endpoint()
	local, isLocal := agent.(LocalAgent)
	t := newTransport(func(ctx context.Context, _, _ string) (net.Conn, error) {
		if isLocal {
			return u.dialLocal(ctx, local, ep.UpstreamProtocol == protocolHTTP2)
		}
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
	p := &agentPool{transport: t, http2: ep.UpstreamProtocol == protocolHTTP2, isLocal: isLocal,
		direct: directPool{upstreams: u, agent: agent}}
	if p.http2 {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	return p
}

// roundTrip sends a request. When the agent becomes unresponsive before the answer, one that is
// retryable is given up at once with tunnel.ErrUnresponsive, and any other after unansweredPatience
// with trafficerror.ErrUnanswered.
func (p *agentPool) roundTrip(r *http.Request, body *replayReader) (*http.Response, *flusher, error) {
	if p.isLocal {
		return p.sendLocal(r, body)
	}
	if p.isShared && !p.http2 && canSendDirectly(r) {
		return p.direct.roundTrip(r)
	}
	patience, reason := time.Duration(0), tunnel.ErrUnresponsive
	if !isRetryable(r) {
		patience, reason = unansweredPatience, trafficerror.ErrUnanswered
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // not canceled here: the answer's body needs it
	stop := func() {}
	defer func() { stop() }()
	res, flusher, err := p.send(ctx, r, body, func(conn pooledStream) {
		stop() // the transport may try another stream
		if conn.agentStream != nil {
			stop = watchSilence(conn, patience, cancel, reason).stop
		}
	})
	if err != nil && errors.Is(context.Cause(ctx), reason) {
		err = reason
	}
	return res, flusher, err
}

// send sends a request over a stream of the pool; onConn is called with the stream. On HTTP/1 it
// counts the users of the stream, so that Close can tell an idle stream from one in use, and
// returns the stream's flusher.
func (p *agentPool) send(
	ctx context.Context, r *http.Request, body *replayReader, onConn func(pooledStream),
) (*http.Response, *flusher, error) {
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
	if conn.agentStream == nil {
		return res, nil, err
	}
	return res, &conn.flusher, err
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

// idleCloseTimeout is how long a stream that is closed while idle waits for the agent's side to
// end.
const idleCloseTimeout = 2 * time.Second

// agentStream is the edge's end of a stream to an agent. Writes are sent at once; the first read
// waits for the agent's answer, at most until the deadline that the agent was given.
type agentStream struct {
	*tunnel.Stream
	upstreams *upstreams
	deadline  time.Time

	answerOnce sync.Once
	answerErr  error
	inUse      atomic.Int32 // requests that use the stream; counted by agentPool only
	closeOnce  sync.Once
	flusher    flusher // flusher is used by agentPool only.

	mu       sync.Mutex
	answered bool
	body     *replayReader // body gets the agent's answer; nil = none waits for it.
}

var _ targetConn = (*agentStream)(nil)

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

// waitOpened waits for the agent's answer; every call returns the same.
func (s *agentStream) waitOpened() error {
	s.answerOnce.Do(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), s.deadline, trafficerror.ErrAgentTimeout)
		defer cancel()
		ctx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		stop := s.Stream.OnUnresponsive(func() { cut(tunnel.ErrUnresponsive) })
		err := s.Stream.WaitOpened(ctx)
		stop()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			_ = s.Stream.Reset(tunnel.Aborted)
		case isConnectionLost(err): // before the agent had acted
			err = &account.Error{Code: account.CodeEndpointOffline, Msg: "the agent went away", Cause: err}
		}
		s.upstreams.meter.CountStream(trafficerror.StreamOutcome(err))
		s.answerErr = err
		s.mu.Lock()
		body := s.body
		s.answered, s.body = true, nil
		s.mu.Unlock()
		if body != nil {
			body.answered(err)
		}
	})
	return s.answerErr
}

// attachBody passes the agent's answer to a request's body, now or once it arrives.
func (s *agentStream) attachBody(body *replayReader) {
	s.mu.Lock()
	answered := s.answered
	if !answered {
		body.awaitAnswer()
		s.body = body
	}
	s.mu.Unlock()
	if answered {
		body.answered(s.answerErr)
	}
}

// isConnectionLost reports whether a stream ended with its tunnel connection, and not by the agent.
func isConnectionLost(err error) bool {
	return !errors.As(err, new(*tunnel.RefusedError)) && !errors.As(err, new(*tunnel.ResetError)) &&
		!errors.Is(err, io.ErrUnexpectedEOF)
}

// Read waits for the agent's answer first.
func (s *agentStream) Read(p []byte) (int, error) {
	if err := s.waitOpened(); err != nil {
		return 0, err
	}
	s.flusher.flush()
	n, err := s.Stream.Read(p)
	s.upstreams.meter.CountBytes(0, n)
	return n, err
}

// Next is Read without a copy.
func (s *agentStream) Next() ([]byte, error) {
	if err := s.waitOpened(); err != nil {
		return nil, err
	}
	p, err := s.Stream.Next()
	s.upstreams.meter.CountBytes(0, len(p))
	return p, err
}

// Write does not wait. When it fails because the agent refused the stream, it returns the refusal.
func (s *agentStream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	s.upstreams.meter.CountBytes(n, 0)
	if err != nil {
		if refusal := s.waitOpened(); refusal != nil {
			err = refusal
		}
	}
	return n, err
}

// closeIdle ends a stream between two requests, so that the agent's upstream sees an ordinary end
// of connection and no abort. It does not block: while a transport closes an idle stream, its other
// requests wait.
func (s *agentStream) closeIdle() {
	started := s.upstreams.background.Start(func() { _ = s.CloseGracefully(idleCloseTimeout) })
	if !started {
		_ = s.Stream.Close()
	}
}
