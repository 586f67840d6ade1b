// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// maxBinds is how many binds are on their way at a time.
	maxBinds = 64
	// maxRebind is the longest pause before a refused bind is tried again.
	maxRebind = time.Minute
	// lateStreams is for how long after an unbind streams may arrive that were opened before.
	lateStreams = time.Second
)

// pause returns a random wait after so many failures in a row.
func (o *Options) pause(failures int, longest time.Duration) time.Duration {
	wait := min(o.RebindDelay<<min(failures, 10), longest)
	return wait/2 + rand.N(wait/2+1)
}

// longestPause returns how long the agent waits at most before it binds again: a refusal that a
// person has to mend may wait longer than an outage.
func (o *Options) longestPause(err error) time.Duration {
	switch codeOf(err) {
	case tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit:
		return maxRebind
	default:
		return o.MaxBackoff
	}
}

// binder binds and unbinds the endpoints of a set on a session until both agree.
type binder struct {
	opt        *Options
	endpoints  *endpointSet
	outages    *Outages
	upstreams  *upstreamWatch
	inspection inspection
	background *sync.WaitGroup
}

// firstProblem returns why the agent gives up, or why the session is to be tried again, if all of
// the endpoints were refused or the refusal of one concerns the session.
func (b *binder) firstProblem(results map[*endpoint]error, endpoints []*endpoint) (*Failure, error) {
	var first *Failure
	hopeless := len(results) == len(endpoints)
	for _, e := range endpoints {
		err := results[e]
		if err == nil {
			hopeless = false
			continue
		}
		f := b.outages.FailureOf(err, e.spec.info.DisplayName())
		if f != nil {
			f.Endpoint = &e.spec.Endpoint
		}
		if !b.concernsOne(err) {
			return f, err
		}
		first, hopeless = cmp.Or(first, f), hopeless && f != nil
	}
	if hopeless {
		return first, nil
	}
	return nil, nil
}

// concernsOne reports whether the failure of a bind concerns one of several endpoints only.
func (b *binder) concernsOne(err error) bool {
	if b.opt.KeepRunning || len(b.endpoints.infos()) < 2 {
		return b.opt.KeepRunning
	}
	switch codeOf(err) {
	case tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit, tunnel.CodeRateLimited,
		tunnel.CodeInternal:
		return true
	default:
		return false
	}
}

// run binds and unbinds the endpoints of the session's queue until ctx is done, the server drains,
// or the agent shuts down.
func (b *binder) run(ctx context.Context, h *sessionBinds) {
	defer b.opt.reportPanic()
	var syncing sync.WaitGroup
	slots := make(chan struct{}, maxBinds)
	for {
		slots <- struct{}{} // each sync ends
		e := b.endpoints.next(ctx, h)
		if e == nil {
			break
		}
		syncing.Go(func() {
			b.sync(ctx, h, e)
			<-slots
		})
	}
	b.endpoints.endBinds(h)
	syncing.Wait()
}

// sync binds or unbinds an endpoint until the session has of it what the last Set asked for, or the
// server has refused that.
func (b *binder) sync(ctx context.Context, h *sessionBinds, e *endpoint) {
	defer b.opt.reportPanic()
	for {
		p := b.endpoints.plan(h, e)
		var err error
		switch {
		case p.done:
		case p.unbind:
			err = b.unbind(ctx, h, e, p.id)
		default:
			err = b.bind(ctx, h, e, p.spec, p.resumeSecret)
		}
		if p.done || err != nil {
			if b.endpoints.finish(ctx, h, e, err) {
				b.background.Go(func() { b.drain(ctx, e) })
			}
			return
		}
	}
}

// bind binds one endpoint and reports that it is bound.
func (b *binder) bind(ctx context.Context, h *sessionBinds, e *endpoint, s *spec, resumeSecret string) error {
	m := s.bind
	m.ResumeSecret = resumeSecret
	bound, err := h.session.Bind(ctx, m)
	if err == nil && bound.EndpointID == "" {
		err = fmt.Errorf("binding %s: the server named no endpoint", s.info.DisplayName())
	}
	if err != nil {
		b.opt.Logger.Debug("a bind failed", "endpoint", s.info.DisplayName(), "error", err)
		b.reportRefusal(ctx, e, s, err)
		return err
	}
	again := b.endpoints.setBound(h, e, s, bound)
	b.outages.End(true)
	w := h.session.Welcome()
	online := Online{EndpointInfo: s.info, Reconnected: again, EndpointID: bound.EndpointID,
		AssignedURL: bound.URL, OwnerEndpointID: bound.OwnerEndpointID, ListenerURL: bound.ListenerURL,
		SessionID: w.SessionID, Server: b.opt.Server, ServerVersion: w.ServerVersion}
	b.inspection.setEndpoint(s, &online)
	b.opt.Observer.Observe(online)
	if !again && bound.Unreachable != "" {
		b.opt.Observer.Observe(Unreachable{EndpointInfo: s.info, Cause: bound.Unreachable})
	}
	if !again && s.isProbed() {
		b.upstreams.probes.Go(func() { b.upstreams.probe(ctx, e, s) })
	}
	return nil
}

// reportRefusal reports the refusal of one of several endpoints, once for each cause. It omits
// CodeRateLimited, which passes by itself, and the end of the session.
func (b *binder) reportRefusal(ctx context.Context, e *endpoint, s *spec, err error) {
	if !b.concernsOne(err) || codeOf(err) == tunnel.CodeRateLimited || ctx.Err() != nil {
		return
	}
	cause := causeOf(err, b.opt.Server)
	if news, bound := b.endpoints.setRefused(e, cause); news {
		b.opt.Observer.Observe(BindRefused{EndpointInfo: s.info, Cause: cause, Code: codeOf(err), StillBound: bound})
	}
}

// unbind unbinds an endpoint that was removed.
func (b *binder) unbind(ctx context.Context, h *sessionBinds, e *endpoint, id string) error {
	err := h.session.Unbind(ctx, id)
	if err != nil && codeOf(err) != tunnel.CodeInvalid { // invalid: the session does not hold it
		return err
	}
	b.endpoints.setUnbound(e)
	return nil
}

// drain serves the streams of an endpoint that was unbound, also those that were on their way,
// until they have ended, within Options.DrainTimeout.
func (b *binder) drain(ctx context.Context, e *endpoint) {
	defer b.opt.reportPanic()
	if timer.Sleep(ctx, min(lateStreams, b.opt.DrainTimeout)) {
		ctx, cancel := context.WithTimeout(ctx, b.opt.DrainTimeout)
		b.endpoints.drain(ctx, &e.streams, e)
		cancel()
	}
	b.endpoints.refuseStreams(e)
	e.streams.abort()
}
