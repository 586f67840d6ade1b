// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
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

// onSessionUp begins to bind the endpoints on a new session. With Options.KeepRunning it does not
// wait. Otherwise its error makes the client close the session and retry, unless it ends the agent.
// A refusal of one of several endpoints does not end the others: the agent retries it while it
// serves them.
func (a *Agent) onSessionUp(ctx context.Context, s *tunnel.Session) error {
	defer a.opt.reportPanic()
	h := newSessionBinds(s)
	endpoints := a.trackSession(h)
	w := s.Welcome()
	a.opt.Observer.Observe(Connected{SessionID: w.SessionID, Server: a.opt.Server, ServerVersion: w.ServerVersion,
		AccountID: w.AccountID, Region: w.Region})
	a.background.Go(func() { a.reportReplicas(ctx, h) })
	if a.opt.PingInterval > 0 {
		a.background.Go(func() { a.measureLatency(ctx, s) })
	}
	a.background.Go(func() { a.syncQueue(ctx, h) })
	if a.opt.KeepRunning {
		return nil
	}
	if !a.waitFor(ctx, h, func() bool { return len(h.results) >= len(endpoints) }) {
		return s.Err()
	}
	f, err := a.firstProblem(h, endpoints)
	if f != nil {
		a.giveUp(f)
		return f
	}
	return err
}

// firstProblem returns why the agent gives up, or why the session is to be tried again, if all of
// the endpoints were refused or the refusal of one concerns the session.
func (a *Agent) firstProblem(h *sessionBinds, endpoints []*endpoint) (*Failure, error) {
	a.mu.Lock()
	results := h.results
	h.results = nil
	a.mu.Unlock()
	var first *Failure
	hopeless := len(results) == len(endpoints)
	for _, e := range endpoints {
		err := results[e]
		if err == nil {
			hopeless = false
			continue
		}
		f := a.failureOf(err, e.spec.info.DisplayName(), a.neverOnline())
		if f != nil {
			f.Endpoint = &e.spec.Endpoint
		}
		if !a.concernsOne(err) {
			return f, err
		}
		if first == nil {
			first = f
		}
		if f == nil {
			hopeless = false
		}
	}
	if hopeless {
		return first, nil
	}
	return nil, nil
}

// concernsOne reports whether the failure of a bind concerns one of several endpoints only.
func (a *Agent) concernsOne(err error) bool {
	if a.opt.KeepRunning || !a.isOneOfSeveral() {
		return a.opt.KeepRunning
	}
	switch codeOf(err) {
	case tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit, tunnel.CodeRateLimited,
		tunnel.CodeInternal:
		return true
	default:
		return false
	}
}

// syncQueue binds and unbinds the endpoints of the session's queue until ctx is done, the server
// drains, or the agent shuts down.
func (a *Agent) syncQueue(ctx context.Context, h *sessionBinds) {
	defer a.opt.reportPanic()
	var syncing sync.WaitGroup
	slots := make(chan struct{}, maxBinds)
	for {
		slots <- struct{}{} // each sync ends
		e := a.next(ctx, h)
		if e == nil {
			break
		}
		syncing.Go(func() {
			a.sync(ctx, h, e)
			<-slots
		})
	}
	a.endBinds(h)
	syncing.Wait()
}

// sync binds or unbinds an endpoint until the session has of it what the last Set asked for, or the
// server has refused that.
func (a *Agent) sync(ctx context.Context, h *sessionBinds, e *endpoint) {
	defer a.opt.reportPanic()
	for {
		a.mu.Lock()
		s, secret, held, removed := e.spec, e.resumeSecret, e.session == h, e.removed
		done := held && !removed && sameBind(e.bound, s) || removed && !held || a.isShuttingDown()
		a.mu.Unlock()
		var err error
		switch {
		case done:
		case removed:
			err = a.unbind(ctx, h, e)
		default:
			err = a.bind(ctx, h, e, s, secret)
		}
		if done || err != nil {
			a.synced(ctx, h, e, err)
			return
		}
	}
}

// synced records the end of sync, and what is to follow.
func (a *Agent) synced(ctx context.Context, h *sessionBinds, e *endpoint, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.syncing = false
	h.pending--
	if _, again := h.results[e]; h.results != nil && !again {
		h.results[e] = err
	}
	defer h.signal()
	limited := codeOf(err) == tunnel.CodeRateLimited
	if limited {
		h.notBefore = time.Now().Add(a.pause(0, maxRebind))
	}
	switch {
	case e.again || limited:
		e.again = false
		a.enqueueOrRelease(e)
	case err == nil && e.removed && !a.isShuttingDown():
		a.release(e)
		a.background.Go(func() { a.drain(ctx, e) })
	case err == nil:
		e.failures = 0
	case ctx.Err() == nil:
		e.retry = time.AfterFunc(a.pause(e.failures, a.longestPause(err)), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.enqueueOrRelease(e)
		})
		e.failures++
	case e.removed:
		a.forgetID(e)
		a.release(e)
	}
}

// pause returns a random wait after so many failures in a row.
func (a *Agent) pause(failures int, longest time.Duration) time.Duration {
	wait := min(a.opt.RebindDelay<<min(failures, 10), longest)
	return wait/2 + rand.N(wait/2+1)
}

// longestPause returns how long the agent waits at most before it binds again: a refusal that a
// person has to mend may wait longer than an outage.
func (a *Agent) longestPause(err error) time.Duration {
	switch codeOf(err) {
	case tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit:
		return maxRebind
	default:
		return a.opt.MaxBackoff
	}
}

// bind binds one endpoint.
func (a *Agent) bind(ctx context.Context, h *sessionBinds, e *endpoint, s *spec, resumeSecret string) error {
	m := s.bind
	m.ResumeSecret = resumeSecret
	bound, err := h.session.Bind(ctx, m)
	if err == nil && bound.EndpointID == "" {
		err = fmt.Errorf("binding %s: the server named no endpoint", s.info.DisplayName())
	}
	if err != nil {
		a.opt.Logger.Debug("a bind failed", "endpoint", s.info.DisplayName(), "error", err)
		a.reportRefusal(ctx, e, s, err)
		return err
	}
	if first := a.setBound(h, e, s, bound); first && s.isProbed() {
		a.probes.Go(func() { a.probeUpstream(ctx, e, s) })
	}
	return nil
}

// setBound records and reports that an endpoint is bound. It returns true for the first time.
func (a *Agent) setBound(h *sessionBinds, e *endpoint, s *spec, bound tunnel.Bound) (first bool) {
	a.mu.Lock()
	again := e.everOnline
	if e.id != bound.EndpointID {
		a.forgetID(e)
	}
	e.bound, e.session, e.id, e.resumeSecret = s, h, bound.EndpointID, bound.ResumeSecret
	e.everOnline, e.refusal = true, ""
	a.everOnline, a.lastCause = true, ""
	a.byID[e.id] = e
	a.mu.Unlock()
	a.inspectEndpoint(s, bound.EndpointID)
	w := h.session.Welcome()
	a.opt.Observer.Observe(Online{EndpointInfo: s.info, Reconnected: again, EndpointID: bound.EndpointID,
		AssignedURL: bound.URL, OwnerEndpointID: bound.OwnerEndpointID, SessionID: w.SessionID, Server: a.opt.Server,
		ServerVersion: w.ServerVersion})
	return !again
}

// reportRefusal reports the refusal of one of several endpoints, once for each cause. It omits
// CodeRateLimited, which passes by itself, and the end of the session.
func (a *Agent) reportRefusal(ctx context.Context, e *endpoint, s *spec, err error) {
	if !a.concernsOne(err) || codeOf(err) == tunnel.CodeRateLimited || ctx.Err() != nil {
		return
	}
	cause := causeOf(err, a.opt.Server)
	a.mu.Lock()
	news := e.refusal != cause
	e.refusal = cause
	bound := e.bound != nil && e.session == a.current
	a.mu.Unlock()
	if news {
		a.opt.Observer.Observe(BindRefused{EndpointInfo: s.info, Cause: cause, Code: codeOf(err), StillBound: bound})
	}
}

// unbind unbinds an endpoint that was removed.
func (a *Agent) unbind(ctx context.Context, h *sessionBinds, e *endpoint) error {
	a.mu.Lock()
	id := e.id
	a.mu.Unlock()
	err := h.session.Unbind(ctx, id)
	if err != nil && codeOf(err) != tunnel.CodeInvalid { // invalid: the session does not hold it
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.session, e.resumeSecret = nil, ""
	return nil
}

// drain serves the streams of an endpoint that was unbound, also those that were on their way,
// until they have ended, within Options.DrainTimeout.
func (a *Agent) drain(ctx context.Context, e *endpoint) {
	defer a.opt.reportPanic()
	if timer.Sleep(ctx, min(lateStreams, a.opt.DrainTimeout)) {
		ctx, cancel := context.WithTimeout(ctx, a.opt.DrainTimeout)
		e.streams.wait(ctx)
		cancel()
	}
	a.mu.Lock()
	a.forgetID(e)
	a.mu.Unlock()
	e.streams.abort()
}
