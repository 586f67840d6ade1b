// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// lookTimeout bounds the one look at an http upstream when the endpoint comes online for the first
// time.
const lookTimeout = 2 * time.Second

// serve relays one stream. It dials before it accepts, so that a refused upstream refuses the
// stream and the edge may try another.
func (a *agent) serve(ctx context.Context, s *tunnel.Session, st *tunnel.Stream) {
	stack.Grow8KiB()
	defer a.crashing()
	a.streams.begin()
	defer a.streams.end()
	h, start := st.Header(), time.Now()
	index, code, ok := a.admits(ctx, s, h)
	if !ok {
		a.Logger.Debug("refusing a stream", "endpoint", h.EndpointID, "code", code)
		_ = st.Refuse(code)
		return
	}
	timeout := upstreamTimeout
	if h.Deadline > 0 {
		timeout = min(timeout, h.Deadline*9/10) // later nobody waits for the answer
	}
	e := &a.Endpoints[index]
	c := a.connection(e, index, h)
	conn, err := e.Upstream.dial(ctx, a.Dial, a.UpstreamTLS, timeout)
	a.noteUpstream(ctx, index, c.HTTP, err)
	if err != nil {
		_ = st.Refuse(tunnel.RefusedUpstream)
		a.Observe(c.ended(Connection{Ended: true, Refused: true, Duration: time.Since(start), Cause: upstreamCause(err)}))
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
	a.Observe(c.ended(end))
}

func (a *agent) connection(e *Endpoint, index int, h tunnel.OpenHeader) Connection {
	c := Connection{EndpointInfo: a.named[index], HTTP: e.isHTTP(h), Client: h.ClientAddr}
	if h.Pod != nil && h.Pod.Name != "" {
		c.Pod = h.Pod.Namespace + "/" + h.Pod.Name
	}
	return c
}

// ended returns the end of c.
func (c Connection) ended(end Connection) Connection {
	end.EndpointInfo, end.HTTP, end.Client, end.Pod = c.EndpointInfo, c.HTTP, c.Client, c.Pod
	return end
}

// noteUpstream reports when an upstream goes and when it comes back. A dial that was cancelled says
// nothing about the upstream.
func (a *agent) noteUpstream(ctx context.Context, index int, http bool, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	st := &a.states[index]
	was := st.upstreamDown
	st.upstreamDown = err != nil
	a.mu.Unlock()
	target := a.named[index]
	switch {
	case err != nil && !was:
		a.Observe(UpstreamDown{EndpointInfo: target, Cause: upstreamCause(err), HTTP: http})
	case err == nil && was:
		a.Observe(UpstreamUp{EndpointInfo: target})
	}
}

// lookOnce warns early when an http upstream is not there yet. It never repeats, and never touches
// a tcp upstream, nor that of a labelled tunnel: that might serve just one connection, or log every
// one.
func (a *agent) lookOnce(ctx context.Context, index int) {
	e := &a.Endpoints[index]
	if !e.isHTTP(tunnel.OpenHeader{}) {
		return
	}
	conn, err := e.Upstream.dial(ctx, a.Dial, a.UpstreamTLS, lookTimeout)
	if err == nil {
		_ = conn.Close()
	}
	a.noteUpstream(ctx, index, true, err)
}

// upstreamCause words why an upstream could not be reached.
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
