// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	probeTimeout  = 2 * time.Second // bounds a dial of probe
	probePause    = time.Second     // before the first dial of await; doubles
	maxProbePause = 15 * time.Second
)

// upstreamWatch reports when upstreams go down and when they are back.
type upstreamWatch struct {
	opt       *Options
	endpoints *endpointSet
	running   context.Context // running ends with Agent.Run.
	probes    sync.WaitGroup
	mu        sync.Mutex // mu guards the reachability of all endpoints.
}

// reachability is whether the upstream of an endpoint can be reached. The zero value is one that can.
type reachability struct {
	down    bool
	awaited bool // awaited is true while await runs.
}

// report reports when an upstream goes down and when it is back. A cancelled dial proves neither.
func (w *upstreamWatch) report(ctx context.Context, e *endpoint, s *spec, http bool, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	was, now := e.upstream, reachability{down: err != nil, awaited: e.upstream.awaited || err != nil && s.isProbed()}
	e.upstream = now
	w.mu.Unlock()
	if now.awaited && !was.awaited {
		w.probes.Go(func() { w.await(e) })
	}
	switch {
	case err != nil && !was.down:
		w.opt.Observer.Observe(UpstreamDown{EndpointInfo: s.info, Cause: s.upstreamCause(err), HTTP: http})
	case err == nil && was.down:
		w.opt.Observer.Observe(UpstreamUp{EndpointInfo: s.info})
	}
}

// isDown reports whether the upstream could not be reached the last time.
func (w *upstreamWatch) isDown(e *endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.upstream.down
}

// probe dials the upstream once, to report early that it is down.
func (w *upstreamWatch) probe(ctx context.Context, e *endpoint, s *spec) {
	conn, err := w.opt.dialUpstream(ctx, s, probeTimeout)
	if err == nil {
		_ = conn.Close()
	}
	w.report(ctx, e, s, true, err)
}

// await probes an upstream that is down until it is up, to report that.
func (w *upstreamWatch) await(e *endpoint) {
	for pause := probePause; timer.Sleep(w.running, pause); pause = min(2*pause, maxProbePause) {
		s := w.nextProbe(e)
		if s == nil {
			return
		}
		w.probe(w.running, e, s)
	}
}

// nextProbe returns the version of the endpoint to probe; nil ends await. It holds the lock over both
// questions: a version that is bound meanwhile then finds an await that goes on, or none.
func (w *upstreamWatch) nextProbe(e *endpoint) *spec {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.endpoints.served(e)
	e.upstream.awaited = e.upstream.down && s != nil && s.isProbed()
	if !e.upstream.awaited {
		return nil
	}
	return s
}

// isProbed reports whether the agent may dial the upstream without a caller. Those of tcp endpoints
// and of labelled tunnels may serve a single connection, or log each one.
func (s *spec) isProbed() bool {
	return s.Dial == nil && s.Serve == nil && s.isHTTP(tunnel.OpenHeader{})
}

// upstreamCause describes why an upstream could not be reached.
func (s *spec) upstreamCause(err error) string {
	var dns *net.DNSError
	var netError net.Error
	switch problem := trust.ProblemOf(err); {
	case problem != trust.NoProblem:
		return s.untrustedCause(problem, err)
	case errors.Is(err, errRefused):
		return "connection refused"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
