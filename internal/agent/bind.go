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

// up binds the endpoints on a new session. Its error makes the client close the session and try
// again, unless it ends the agent. When an agent has several endpoints, one that is refused does
// not end the others: it is tried again while they are served.
func (a *agent) up(ctx context.Context, s *tunnel.Session) error {
	defer a.crashing()
	h := newHeld(s)
	a.track(h)
	w := s.Welcome()
	a.Observe(Connected{SessionID: w.SessionID, Server: a.Server, ServerVersion: w.ServerVersion, AccountID: w.AccountID,
		Region: w.Region})
	if a.PingInterval > 0 {
		a.rebinding.Go(func() { a.measure(ctx, s) })
	}
	refusals := a.bindAll(ctx, h)
	var first *Failure
	hopeless := len(refusals) > 0
	for i, err := range refusals {
		if err == nil {
			hopeless = false
			continue
		}
		f := failureOf(err, a.Server, a.named[i].DisplayName(), a.atStart())
		if f != nil {
			f.Endpoint = i
		}
		if first == nil {
			first = f
		}
		if f == nil {
			hopeless = false
		}
		if !a.severally(err) {
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
		a.rebinding.Go(func() { a.rebind(ctx, h) })
	}
	return nil
}

// severally says that the refusal is about one of several endpoints.
func (a *agent) severally(err error) bool {
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

// bindAll asks for every endpoint and returns the errors, by index.
func (a *agent) bindAll(ctx context.Context, h *held) []error {
	errs := make([]error, len(a.Endpoints))
	slots := make(chan struct{}, maxBinds)
	var asking sync.WaitGroup
	for i := range a.Endpoints {
		h.asked()
		asking.Go(func() {
			slots <- struct{}{}
			errs[i] = a.bindOne(ctx, h, i)
			<-slots
		})
	}
	asking.Wait()
	return errs
}

// bindOne asks for one endpoint; held.asked was called before.
func (a *agent) bindOne(ctx context.Context, h *held, index int) error {
	e := &a.Endpoints[index]
	bound, err := h.session.Bind(ctx, e.bindMessage(a.resumeSecret(index)))
	if err == nil && bound.EndpointID == "" {
		err = fmt.Errorf("binding %s: the server named no endpoint", a.named[index].DisplayName())
	}
	if err != nil {
		a.refused(index, err)
		h.answered(index, "")
		return err
	}
	first := a.online(h, index, bound)
	h.answered(index, bound.EndpointID)
	if first {
		a.looking.Go(func() { a.lookOnce(ctx, index) })
	}
	return nil
}

// refused reports a refusal of one of several endpoints, once for each cause. That there are too
// many binds at once is nobody's concern: it passes.
func (a *agent) refused(index int, err error) {
	if !a.severally(err) || rateLimited(err) {
		return
	}
	cause := causeOf(err, a.Server)
	a.mu.Lock()
	st := &a.states[index]
	news := st.refusal != cause
	st.refusal = cause
	a.mu.Unlock()
	if news {
		a.Observe(BindRefused{EndpointInfo: a.named[index], Cause: cause})
	}
}

func rateLimited(err error) bool {
	var refused *tunnel.Error
	return errors.As(err, &refused) && refused.Code == tunnel.CodeRateLimited
}

// rebind tries refused binds again for as long as the session takes any.
func (a *agent) rebind(ctx context.Context, h *held) {
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
		case <-a.leaving:
			timer.Stop()
			return
		}
		a.bindMissing(ctx, h)
		missing := len(h.missing(len(a.Endpoints)))
		if missing == 0 {
			return
		}
		if missing < left {
			wait = a.RebindDelay / 2 // it gets on, only not all at once
		}
		left = missing
	}
}

// bindMissing asks once for each endpoint that the session does not hold, unless the server takes
// no more for now.
func (a *agent) bindMissing(ctx context.Context, h *held) {
	for _, index := range h.missing(len(a.Endpoints)) {
		h.asked()
		if a.isLeaving() { // looked at after asked, for the goodbye to wait or for this to see it
			h.answered(index, "")
			return
		}
		err := a.bindOne(ctx, h, index)
		if err != nil {
			a.Logger.Debug("a bind was refused again", "endpoint", a.named[index].DisplayName(), "error", err)
		}
		if rateLimited(err) {
			return
		}
	}
}

func (a *agent) isLeaving() bool {
	select {
	case <-a.leaving:
		return true
	default:
		return false
	}
}

// track remembers what the session holds and forgets sessions that have ended.
func (a *agent) track(h *held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.held {
		select {
		case <-s.Done():
			delete(a.held, s)
		default:
		}
	}
	a.held[h.session], a.latest = h, h
	a.ups++
}

func (a *agent) resumeSecret(index int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.states[index].resumeSecret
}

// online notes that an endpoint is bound. It returns true for the first time.
func (a *agent) online(h *held, index int, bound tunnel.Bound) (first bool) {
	a.mu.Lock()
	st := &a.states[index]
	again := st.everOnline
	st.resumeSecret, st.everOnline, st.refusal = bound.ResumeSecret, true, ""
	a.everOnline, a.lastCause = true, ""
	a.indexes[bound.EndpointID] = index
	a.mu.Unlock()
	w := h.session.Welcome()
	a.Observe(Online{EndpointInfo: a.named[index], Reconnected: again, EndpointID: bound.EndpointID,
		SessionID: w.SessionID, Server: a.Server, ServerVersion: w.ServerVersion})
	return !again
}

// admits finds the endpoint of a stream: its id is one that its session holds, and its host and
// port are the endpoint's.
func (a *agent) admits(
	ctx context.Context, s *tunnel.Session, header tunnel.OpenHeader,
) (index int, code tunnel.RefuseCode, ok bool) {
	a.mu.Lock()
	h := a.held[s]
	a.mu.Unlock()
	if h == nil {
		return 0, tunnel.RefusedUnknownEndpoint, false
	}
	index, ok = h.index(ctx, header.EndpointID)
	switch {
	case !ok:
		return 0, tunnel.RefusedUnknownEndpoint, false
	case !a.Endpoints[index].matches(header):
		return 0, tunnel.RefusedMismatch, false
	}
	return index, 0, true
}
