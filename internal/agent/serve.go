// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// probeTimeout bounds the dial of probeUpstream.
const probeTimeout = 2 * time.Second

// serve relays one stream. It dials the upstream before it accepts the stream: after a refusal the
// edge may try another agent.
func (a *agent) serve(ctx context.Context, s *tunnel.Session, st *tunnel.Stream) {
	stack.Grow8KiB()
	defer a.reportPanic()
	a.streams.begin()
	defer a.streams.end()
	h, start := st.Header(), time.Now()
	index, code, ok := a.endpointOf(ctx, s, h)
	if !ok {
		a.Logger.Debug("refusing a stream", "endpoint", h.EndpointID, "code", code)
		_ = st.Refuse(code)
		return
	}
	timeout := upstreamTimeout
	if h.Deadline > 0 {
		timeout = min(timeout, h.Deadline*9/10) // later the opener has given up
	}
	e := &a.Endpoints[index]
	c := a.newConnection(e, index, h)
	conn, err := e.Upstream.dial(ctx, a.Dial, a.UpstreamTLS, timeout)
	a.reportUpstream(ctx, index, c.HTTP, err)
	if err != nil {
		_ = st.Refuse(tunnel.RefusedUpstream)
		a.Observe(c.withEnd(Connection{Ended: true, Refused: true, Duration: time.Since(start),
			Cause: upstreamCause(err)}))
		return
	}
	if err := st.Accept(); err != nil { // the opener is gone
		_ = conn.Close()
		return
	}
	a.Observe(c)
	moved, err := relay.Join(ctx, st, conn, relay.Options{})
	end := Connection{Ended: true, BytesIn: moved.AToB, BytesOut: moved.BToA, Duration: time.Since(start)}
	if err != nil {
		end.Cause = err.Error()
	}
	a.Observe(c.withEnd(end))
}

func (a *agent) newConnection(e *Endpoint, index int, h tunnel.OpenHeader) Connection {
	c := Connection{EndpointInfo: a.endpointInfos[index], HTTP: e.isHTTP(h), Client: h.ClientAddr}
	if h.Pod != nil && h.Pod.Name != "" {
		c.Pod = h.Pod.Namespace + "/" + h.Pod.Name
	}
	return c
}

// withEnd returns end with the identity of c.
func (c Connection) withEnd(end Connection) Connection {
	end.EndpointInfo, end.HTTP, end.Client, end.Pod = c.EndpointInfo, c.HTTP, c.Client, c.Pod
	return end
}

// reportUpstream reports when an upstream goes down and when it is back. A cancelled dial proves
// neither.
func (a *agent) reportUpstream(ctx context.Context, index int, http bool, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	st := &a.states[index]
	was := st.upstreamDown
	st.upstreamDown = err != nil
	a.mu.Unlock()
	target := a.endpointInfos[index]
	switch {
	case err != nil && !was:
		a.Observe(UpstreamDown{EndpointInfo: target, Cause: upstreamCause(err), HTTP: http})
	case err == nil && was:
		a.Observe(UpstreamUp{EndpointInfo: target})
	}
}

// probeUpstream dials an http upstream once, when its endpoint is online for the first time, to
// report early that it is down. It does not dial a tcp upstream, nor that of a labelled tunnel:
// they may serve a single connection, or log each one.
func (a *agent) probeUpstream(ctx context.Context, index int) {
	e := &a.Endpoints[index]
	if !e.isHTTP(tunnel.OpenHeader{}) {
		return
	}
	conn, err := e.Upstream.dial(ctx, a.Dial, a.UpstreamTLS, probeTimeout)
	if err == nil {
		_ = conn.Close()
	}
	a.reportUpstream(ctx, index, true, err)
}

// upstreamCause describes why an upstream could not be reached.
func upstreamCause(err error) string {
	var dns *net.DNSError
	var netError net.Error
	switch {
	case errors.Is(err, errRefused):
		return "connection refused"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
