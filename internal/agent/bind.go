// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// maxRebind is the longest pause before a refused bind is tried again.
const maxRebind = time.Minute

// onSessionUp binds the endpoints on a new session. Its error makes the client close the session
// and retry, unless it ends the agent. A refusal of one of several endpoints does not end the
// others: the agent retries it while it serves them.
func (a *agent) onSessionUp(ctx context.Context, s *tunnel.Session) error {
	defer a.reportPanic()
	h := newSessionBinds(s)
	a.trackSession(h)
	w := s.Welcome()
	a.Observe(Connected{SessionID: w.SessionID, Server: a.Server, ServerVersion: w.ServerVersion,
		AccountID: w.AccountID,
		Region:    w.Region})
	a.background.Go(func() { a.reportReplicas(ctx, h) })
	if a.PingInterval > 0 {
		a.background.Go(func() { a.measureLatency(ctx, s) })
	}
	refusals := a.bindAll(ctx, h)
	var first *Failure
	hopeless := len(refusals) > 0
	for i, err := range refusals {
		if err == nil {
			hopeless = false
			continue
		}
		f := failureOf(err, a.Server, a.endpointInfos[i].DisplayName(), a.neverOnline())
		if f != nil {
			f.Endpoint = i
		}
		if first == nil {
			first = f
		}
		if f == nil {
			hopeless = false
		}
		if !a.isPerEndpoint(err) {
			if f != nil {
				a.giveUp(f)
				return f
			}
			return err
		}
	}
	if hopeless {
		a.giveUp(first)
		return first
	}
	if len(h.missing(len(a.Endpoints))) > 0 {
		a.background.Go(func() { a.rebind(ctx, h) })
	}
	return nil
}

// isPerEndpoint reports whether the refusal concerns one of several endpoints only.
func (a *agent) isPerEndpoint(err error) bool {
	var refused *tunnel.Error
	if len(a.Endpoints) < 2 || !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit, tunnel.CodeRateLimited,
		tunnel.CodeInternal:
		return true
	default:
		return false
	}
}

// maxBinds is how many binds are on their way at a time.
const maxBinds = 8

// bindAll binds every endpoint and returns the errors by index.
func (a *agent) bindAll(ctx context.Context, h *sessionBinds) []error {
	errs := make([]error, len(a.Endpoints))
	slots := make(chan struct{}, maxBinds)
	var asking sync.WaitGroup
	for i := range a.Endpoints {
		h.addPending()
		asking.Go(func() {
			slots <- struct{}{}
			errs[i] = a.bindOne(ctx, h, i)
			<-slots
		})
	}
	asking.Wait()
	return errs
}

// bindOne binds one endpoint. The caller has called addPending.
func (a *agent) bindOne(ctx context.Context, h *sessionBinds, index int) error {
	e := &a.Endpoints[index]
	bound, err := h.session.Bind(ctx, e.bindMessage(a.resumeSecret(index)))
	if err == nil && bound.EndpointID == "" {
		err = fmt.Errorf("binding %s: the server named no endpoint", a.endpointInfos[index].DisplayName())
	}
	if err != nil {
		a.reportRefusal(index, err)
		h.setAnswer(index, "")
		return err
	}
	first := a.setOnline(h, index, bound)
	h.setAnswer(index, bound.EndpointID)
	if first {
		a.probes.Go(func() { a.probeUpstream(ctx, index) })
	}
	return nil
}

// reportRefusal reports the refusal of one of several endpoints, once for each cause. It omits
// CodeRateLimited, which passes by itself.
func (a *agent) reportRefusal(index int, err error) {
	if !a.isPerEndpoint(err) || rateLimited(err) {
		return
	}
	cause := causeOf(err, a.Server)
	a.mu.Lock()
	st := &a.states[index]
	news := st.refusal != cause
	st.refusal = cause
	a.mu.Unlock()
	if news {
		a.Observe(BindRefused{EndpointInfo: a.endpointInfos[index], Cause: cause})
	}
}

func rateLimited(err error) bool {
	var refused *tunnel.Error
	return errors.As(err, &refused) && refused.Code == tunnel.CodeRateLimited
}

// rebind retries refused binds with growing pauses until all are bound or the session ends.
func (a *agent) rebind(ctx context.Context, h *sessionBinds) {
	for wait, left := a.RebindDelay, len(a.Endpoints); ; wait = min(2*wait, maxRebind) {
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		case <-h.session.PeerDraining():
			timer.Stop()
			return
		case <-a.shuttingDown:
			timer.Stop()
			return
		}
		a.bindMissing(ctx, h)
		missing := len(h.missing(len(a.Endpoints)))
		if missing == 0 {
			return
		}
		if missing < left {
			wait = a.RebindDelay / 2 // some were bound: a rate limit, not a refusal
		}
		left = missing
	}
}

// bindMissing binds each endpoint that the session lacks once, and stops at CodeRateLimited.
func (a *agent) bindMissing(ctx context.Context, h *sessionBinds) {
	for _, index := range h.missing(len(a.Endpoints)) {
		h.addPending()
		// checked after addPending: either shutDown waits for this bind, or this sees the shutdown
		if a.isShuttingDown() {
			h.setAnswer(index, "")
			return
		}
		err := a.bindOne(ctx, h, index)
		if err != nil {
			a.Logger.Debug("a bind was refused again", "endpoint", a.endpointInfos[index].DisplayName(), "error", err)
		}
		if rateLimited(err) {
			return
		}
	}
}

func (a *agent) isShuttingDown() bool {
	select {
	case <-a.shuttingDown:
		return true
	default:
		return false
	}
}

// trackSession records a new session and forgets those that have ended.
func (a *agent) trackSession(h *sessionBinds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.bindsBySession {
		select {
		case <-s.Done():
			delete(a.bindsBySession, s)
		default:
		}
	}
	a.bindsBySession[h.session], a.current = h, h
	a.sessionCount++
}

func (a *agent) resumeSecret(index int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.states[index].resumeSecret
}

// setOnline records and reports that an endpoint is bound. It returns true for the first time.
func (a *agent) setOnline(h *sessionBinds, index int, bound tunnel.Bound) (first bool) {
	a.mu.Lock()
	st := &a.states[index]
	again := st.everOnline
	st.resumeSecret, st.everOnline, st.refusal = bound.ResumeSecret, true, ""
	a.everOnline, a.lastCause = true, ""
	a.indexes[bound.EndpointID] = index
	a.mu.Unlock()
	w := h.session.Welcome()
	a.Observe(Online{EndpointInfo: a.endpointInfos[index], Reconnected: again, EndpointID: bound.EndpointID,
		SessionID: w.SessionID, Server: a.Server, ServerVersion: w.ServerVersion})
	return !again
}

// endpointOf returns the index of a stream's endpoint, or the code to refuse the stream with. The
// session must hold the endpoint's id, and host and port must be the endpoint's.
func (a *agent) endpointOf(
	ctx context.Context, s *tunnel.Session, header tunnel.OpenHeader,
) (index int, code tunnel.RefuseCode, ok bool) {
	a.mu.Lock()
	h := a.bindsBySession[s]
	a.mu.Unlock()
	if h == nil {
		return 0, tunnel.RefusedUnknownEndpoint, false
	}
	index, ok = h.indexOf(ctx, header.EndpointID)
	switch {
	case !ok:
		return 0, tunnel.RefusedUnknownEndpoint, false
	case !a.Endpoints[index].matches(header):
		return 0, tunnel.RefusedMismatch, false
	}
	return index, 0, true
}
