// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

const (
	probeTimeout  = 2 * time.Second // bounds a dial of probeUpstream
	probePause    = time.Second     // before the first dial of awaitUpstream; doubles
	maxProbePause = 15 * time.Second
)

// serve serves one stream. The upstream is dialed before the stream is accepted: after a refusal
// the edge may try another agent.
func (a *Agent) serve(ctx context.Context, session *tunnel.Session, st *tunnel.Stream) {
	stack.Grow8KiB()
	defer a.opt.reportPanic()
	a.streams.begin(st)
	defer a.streams.end(st)
	h, start := st.Header(), time.Now()
	e, s, code := a.endpointOf(ctx, session, st)
	if e != nil {
		defer e.streams.end(st)
	}
	if s == nil {
		a.opt.Logger.Debug("refusing a stream", "endpoint", h.EndpointID, "code", code)
		_ = st.Refuse(code)
		return
	}
	if s.Serve != nil {
		s.Serve(ctx, st)
		return
	}
	a.relayToUpstream(ctx, e, s, st, start)
}

// relayToUpstream dials the upstream, accepts the stream and joins both.
func (a *Agent) relayToUpstream(ctx context.Context, e *endpoint, s *spec, st *tunnel.Stream, start time.Time) {
	h := st.Header()
	timeout := upstreamTimeout
	if h.Deadline > 0 {
		timeout = min(timeout, h.Deadline*9/10) // later the opener has given up
	}
	c := newConnection(s, h)
	conn, err := a.dial(ctx, s, timeout)
	a.reportUpstream(ctx, e, s, c.HTTP, err)
	if err != nil {
		if a.opt.Inspect != nil && c.HTTP {
			a.inspectRefused(s, st, start, upstreamCause(err))
		}
		_ = st.Refuse(tunnel.RefusedUpstream)
		c.Ended, c.Refused, c.Duration, c.Cause = true, true, time.Since(start), upstreamCause(err)
		a.opt.Observer.Observe(c)
		return
	}
	if err := st.Accept(); err != nil { // the opener is gone
		_ = conn.Close()
		return
	}
	a.opt.Observer.Observe(c)
	stream, endInspection := a.inspected(s, st, c)
	moved, err := relay.Join(ctx, stream, conn, relay.Options{})
	endInspection(err)
	c.Ended, c.BytesIn, c.BytesOut, c.Duration = true, moved.AToB, moved.BToA, time.Since(start)
	if err != nil {
		c.Cause = err.Error()
	}
	a.opt.Observer.Observe(c)
}

// endpointOf returns the endpoint of a stream, with the stream added to its streams, and the
// version that serves it: nil with the code to refuse the stream with. Host and port must be the
// endpoint's. A stream can arrive before the answer to its bind, so one of an unknown endpoint
// waits for the session's pending binds.
func (a *Agent) endpointOf(
	ctx context.Context, session *tunnel.Session, st *tunnel.Stream,
) (e *endpoint, s *spec, code tunnel.RefuseCode) {
	header := st.Header()
	known := func() bool {
		if e = a.byID[header.EndpointID]; e != nil {
			e.streams.begin(st)
			s = e.bound
		}
		return e != nil
	}
	a.mu.Lock()
	h := a.bindsBySession[session]
	ok := known()
	a.mu.Unlock()
	if !ok && h != nil {
		a.waitFor(ctx, h, func() bool { return known() || h.pending == 0 })
	}
	switch {
	case e == nil:
		return nil, nil, tunnel.RefusedUnknownEndpoint
	case !s.matches(header):
		return e, nil, tunnel.RefusedMismatch
	}
	return e, s, 0
}

// dial connects to the upstream of an endpoint.
func (a *Agent) dial(ctx context.Context, s *spec, timeout time.Duration) (relay.HalfCloser, error) {
	dial := a.opt.Dial
	if s.Dial != nil {
		dial = s.Dial
	}
	return s.Upstream.dial(ctx, dial, a.opt.UpstreamTLS, timeout)
}

func newConnection(s *spec, h tunnel.OpenHeader) Connection {
	c := Connection{EndpointInfo: s.info, HTTP: s.isHTTP(h), Client: h.ClientAddr}
	if h.Pod != nil && h.Pod.Name != "" {
		c.Pod = h.Pod.Namespace + "/" + h.Pod.Name
	}
	return c
}

// reportUpstream reports when an upstream goes down and when it is back. A cancelled dial proves
// neither.
func (a *Agent) reportUpstream(ctx context.Context, e *endpoint, s *spec, http bool, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	was := e.upstreamDown
	e.upstreamDown = err != nil
	awaits := err != nil && !e.awaited && s.isProbed()
	e.awaited = e.awaited || awaits
	a.mu.Unlock()
	if awaits {
		a.probes.Go(func() { a.awaitUpstream(e) })
	}
	switch {
	case err != nil && !was:
		a.opt.Observer.Observe(UpstreamDown{EndpointInfo: s.info, Cause: upstreamCause(err), HTTP: http})
	case err == nil && was:
		a.opt.Observer.Observe(UpstreamUp{EndpointInfo: s.info})
	}
}

// isProbed reports whether the agent may dial the upstream without a caller. Those of tcp endpoints
// and of labelled tunnels may serve a single connection, or log each one.
func (s *spec) isProbed() bool {
	return s.Dial == nil && s.Serve == nil && s.isHTTP(tunnel.OpenHeader{})
}

// probeUpstream dials the upstream once, to report early that it is down.
func (a *Agent) probeUpstream(ctx context.Context, e *endpoint, s *spec) {
	conn, err := a.dial(ctx, s, probeTimeout)
	if err == nil {
		_ = conn.Close()
	}
	a.reportUpstream(ctx, e, s, true, err)
}

// awaitUpstream probes an upstream that is down until it is up, to report that.
func (a *Agent) awaitUpstream(e *endpoint) {
	for pause := probePause; timer.Sleep(a.running, pause); pause = min(2*pause, maxProbePause) {
		a.mu.Lock()
		s := e.bound
		e.awaited = e.upstreamDown && !e.removed && s != nil && s.isProbed()
		ended := !e.awaited
		a.mu.Unlock()
		if ended {
			return
		}
		a.probeUpstream(a.running, e, s)
	}
}

// upstreamCause describes why an upstream could not be reached.
func upstreamCause(err error) string {
	var dns *net.DNSError
	var netError net.Error
	switch problem := trust.ProblemOf(err); {
	case problem == trust.UnknownAuthority:
		return identityText(problem) + "; give its authority with --upstream-ca-file"
	case problem != trust.NoProblem:
		return identityText(problem)
	case errors.Is(err, errRefused):
		return "connection refused"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
