// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// lookTimeout bounds the one look at an http upstream when the endpoint comes online for the first time.
const lookTimeout = 2 * time.Second

// serve relays one stream. It dials before it accepts, so that a refused upstream refuses the stream and the edge may try another.
func (a *agent) serve(ctx context.Context, s *tunnel.Session, st *tunnel.Stream) {
	a.streams.begin()
	defer a.streams.end()
	h, start := st.Header(), time.Now()
	if code, ok := a.admits(ctx, s, h); !ok {
		a.Logger.Debug("refusing a stream", "endpoint", h.EndpointID, "code", code)
		_ = st.Refuse(code)
		return
	}
	timeout := upstreamTimeout
	if h.Deadline > 0 {
		timeout = min(timeout, h.Deadline*9/10) // later nobody waits for the answer
	}
	conn, err := a.Upstream.dial(ctx, a.Dial, a.UpstreamTLS, timeout)
	a.noteUpstream(ctx, err)
	if err != nil {
		_ = st.Refuse(tunnel.RefusedUpstream)
		a.connection(h, Connection{Ended: true, Duration: time.Since(start), Cause: upstreamCause(err)})
		return
	}
	if err := st.Accept(); err != nil { // the opener is gone
		_ = conn.Close()
		return
	}
	a.connection(h, Connection{})
	moved, err := relay.Join(ctx, st, conn, relay.Options{})
	end := Connection{Ended: true, In: moved.AToB, Out: moved.BToA, Duration: time.Since(start)}
	if err != nil {
		end.Cause = err.Error()
	}
	a.connection(h, end)
}

// connection reports one on a tcp endpoint; on an http endpoint the edge reports requests.
func (a *agent) connection(h tunnel.OpenHeader, c Connection) {
	if a.Endpoint.URL.Scheme != "tcp" {
		return
	}
	c.Client = h.ClientAddr
	if h.Pod != nil && h.Pod.Name != "" {
		c.Pod = h.Pod.Namespace + "/" + h.Pod.Name
	}
	a.Observe(c)
}

// noteUpstream reports when the upstream goes and when it comes back. A dial that was cancelled says nothing about the upstream.
func (a *agent) noteUpstream(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	was := a.upstreamDown
	a.upstreamDown = err != nil
	a.mu.Unlock()
	switch {
	case err != nil && !was:
		a.Observe(UpstreamDown{Upstream: a.Upstream.String(), Cause: upstreamCause(err), HTTP: a.Endpoint.URL.Scheme != "tcp"})
	case err == nil && was:
		a.Observe(UpstreamUp{Upstream: a.Upstream.String()})
	}
}

// lookOnce warns early when an http upstream is not there yet. It never repeats, and never touches a tcp upstream: that might serve
// just one connection, or log every one.
func (a *agent) lookOnce(run context.Context) {
	select {
	case <-a.firstOnline:
	case <-run.Done():
		return
	}
	if a.Endpoint.URL.Scheme == "tcp" {
		return
	}
	conn, err := a.Upstream.dial(run, a.Dial, a.UpstreamTLS, lookTimeout)
	if err == nil {
		_ = conn.Close()
	}
	a.noteUpstream(run, err)
}

// upstreamCause words why an upstream could not be reached.
func upstreamCause(err error) string {
	var dns *net.DNSError
	var netError net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
