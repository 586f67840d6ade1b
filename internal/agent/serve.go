// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// streamServer serves the streams that the service opens.
type streamServer struct {
	opt        *Options
	endpoints  *endpointSet
	upstreams  *upstreamWatch
	inspection inspection
	open       streamSet // open has the streams of all endpoints.
	drains     sync.Map  // drains has a context.CancelFunc for each sealed http stream, by its trace id.
	unsealed   *unsealed
}

// serve serves one stream. The upstream is dialed before the stream is accepted: after a refusal
// the edge may try another agent.
func (v *streamServer) serve(ctx context.Context, session *tunnel.Session, st *tunnel.Stream) {
	stack.Grow8KiB()
	defer v.opt.reportPanic()
	v.open.begin(st)
	defer v.open.end(st)
	h, start := st.Header(), time.Now()
	e, s, code := v.endpoints.find(ctx, session, st)
	if e != nil {
		defer e.streams.end(st)
	}
	if s == nil {
		v.opt.Logger.Debug("refusing a stream", "endpoint", h.EndpointID, "code", code)
		_ = st.Refuse(code)
		return
	}
	switch {
	case s.Withheld, h.Sealed != (s.Seal != nil):
		refusal := tunnel.RefusedSealed // a sealed endpoint serves no plain stream, whatever the service says
		if h.Sealed {
			refusal = tunnel.RefusedNotSealed
		}
		_ = st.Refuse(refusal)
	case h.Sealed:
		v.serveSealed(ctx, e, s, st, start)
	case s.Serve != nil:
		s.Serve(ctx, st)
	default:
		v.relayToUpstream(ctx, e, s, plainCaller{st, v.inspection, s}, start)
	}
}

// caller is a connection that the agent answers once it has dialed the upstream.
type caller interface {
	// header describes the connection.
	header() tunnel.OpenHeader
	// name returns the name that the caller has proven; "" = it has not.
	name() string
	// accept opens the connection. end must be called with the relay's error.
	accept(c Connection) (conn relay.HalfCloser, end func(error), err error)
	// refuse refuses it, as the upstream cannot be reached.
	refuse(c Connection, start time.Time)
}

// plainCaller is a caller's stream.
type plainCaller struct {
	*tunnel.Stream
	inspection inspection
	spec       *spec
}

func (p plainCaller) header() tunnel.OpenHeader { return p.Header() }
func (p plainCaller) name() string              { return "" }

func (p plainCaller) accept(c Connection) (relay.HalfCloser, func(error), error) {
	if err := p.Accept(); err != nil { // the opener is gone
		return nil, nil, err
	}
	stream, end := p.inspection.tap(p.spec, p.Stream, c)
	return stream, end, nil
}

func (p plainCaller) refuse(c Connection, start time.Time) {
	p.inspection.addUnreached(p.spec, p.Stream, c, start, c.Cause)
	_ = p.Refuse(tunnel.RefusedUpstream)
}

// relayToUpstream dials the upstream, accepts the connection and joins both.
func (v *streamServer) relayToUpstream(ctx context.Context, e *endpoint, s *spec, from caller, start time.Time) {
	h := from.header()
	timeout := upstreamTimeout
	if h.Deadline > 0 {
		timeout = min(timeout, h.Deadline*9/10) // later the opener has given up
	}
	c := newConnection(s, h)
	c.Caller = from.name()
	conn, err := v.opt.dialUpstream(ctx, s, timeout)
	if err == nil {
		err = s.Upstream.writeProxyHeader(conn, h)
	}
	v.upstreams.report(ctx, e, s, c.HTTP, err)
	if err != nil {
		c.Ended, c.Refused, c.Duration, c.Cause = true, true, time.Since(start), s.upstreamCause(err)
		from.refuse(c, start)
		v.opt.Observer.Observe(c)
		return
	}
	stream, endInspection, err := from.accept(c)
	if err != nil {
		_ = conn.Close()
		return
	}
	v.opt.Observer.Observe(c)
	moved, err := relay.Join(ctx, stream, conn, relay.Options{})
	endInspection(err)
	c.Ended, c.BytesIn, c.BytesOut, c.Duration = true, moved.AToB, moved.BToA, time.Since(start)
	if err != nil {
		c.Cause = err.Error()
	}
	v.opt.Observer.Observe(c)
}

func newConnection(s *spec, h tunnel.OpenHeader) Connection {
	c := Connection{EndpointInfo: s.info, HTTP: s.isHTTP(h), Client: h.ClientAddr}
	if h.Pod != nil && h.Pod.Name != "" {
		c.Pod = h.Pod.Namespace + "/" + h.Pod.Name
	}
	return c
}

// reportRequest reports a request to an endpoint.
func (v *streamServer) reportRequest(e *endpoint, info EndpointInfo, l tunnel.RequestLine) {
	v.opt.Observer.Observe(Request{EndpointInfo: info, Method: l.Method, Path: l.Path, Status: l.Status,
		Duration: l.Duration})
	if l.Code == tunnel.LineHostRefused && v.endpoints.recordHostRefused(e) {
		v.opt.Observer.Observe(HostRefused{EndpointInfo: info})
	}
}

// streamSet has the open streams. The zero value is ready. Safe for concurrent use.
type streamSet struct {
	mu   sync.Mutex
	open map[*tunnel.Stream]struct{}
	idle chan struct{} // closed when none is left; nil without a waiter
}

func (c *streamSet) begin(st *tunnel.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[*tunnel.Stream]struct{})
	}
	c.open[st] = struct{}{}
}

func (c *streamSet) end(st *tunnel.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.open, st); len(c.open) > 0 {
		return
	}
	c.open = nil // a map does not shrink
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *streamSet) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// wait returns when no stream is being served, or when ctx is done.
func (c *streamSet) wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// abort aborts the open streams.
func (c *streamSet) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for st := range c.open {
		_ = st.Abort()
	}
}
