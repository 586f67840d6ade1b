// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// binding is the endpoint as one session holds it. bound is read only after answered is closed.
type binding struct {
	session  *tunnel.Session
	answered chan struct{}
	bound    tunnel.Bound // its EndpointID is empty when the bind was refused
}

// wait returns true when the session holds the endpoint. A stream can overtake the answer to the bind that made it possible.
func (b *binding) wait(ctx context.Context) bool {
	select {
	case <-b.answered:
		return b.bound.EndpointID != ""
	case <-b.session.Done():
	case <-ctx.Done():
	}
	return false
}

// up binds the endpoint on a new session. Its error makes the client close the session and try again, unless it ends the agent.
func (a *agent) up(ctx context.Context, s *tunnel.Session) error {
	b := &binding{session: s, answered: make(chan struct{})}
	secret := a.track(b)
	e := a.Endpoint
	bound, err := s.Bind(ctx, tunnel.Bind{
		URL: e.URL.String(), Binding: e.Binding, Name: e.Name, Description: e.Description, Metadata: e.Metadata,
		UpstreamURL: a.Upstream.String(), UpstreamProtocol: a.Upstream.Protocol, PoolingEnabled: e.Pooling, ResumeSecret: secret,
	})
	if err == nil && bound.EndpointID == "" {
		err = fmt.Errorf("binding %s: the server named no endpoint", e.URL)
	}
	if err != nil {
		close(b.answered)
		if f := failureOf(err, &a.Options, a.atStart()); f != nil {
			a.giveUp(f)
			return f
		}
		return err
	}
	b.bound = bound
	a.online(b)
	close(b.answered)
	return nil
}

// track remembers the session's binding and forgets those of sessions that have ended. It returns the secret to resume with.
func (a *agent) track(b *binding) (resumeSecret string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.bindings {
		select {
		case <-s.Done():
			delete(a.bindings, s)
		default:
		}
	}
	a.bindings[b.session], a.latest = b, b
	return a.resumeSecret
}

func (a *agent) online(b *binding) {
	a.mu.Lock()
	again := a.everOnline
	a.resumeSecret, a.everOnline, a.lastCause = b.bound.ResumeSecret, true, ""
	a.mu.Unlock()
	w := b.session.Welcome()
	a.Observe(Online{Again: again, EndpointID: b.bound.EndpointID, URL: a.Endpoint.URL.String(), Upstream: a.Upstream.String(),
		SessionID: w.SessionID, Server: a.Server, ServerVersion: w.ServerVersion})
	if !again {
		close(a.firstOnline)
	}
}

// admits says whether a stream may be served: its id is the one that its session bound, and its host and port are the endpoint's.
func (a *agent) admits(ctx context.Context, s *tunnel.Session, h tunnel.OpenHeader) (tunnel.RefuseCode, bool) {
	a.mu.Lock()
	b := a.bindings[s]
	a.mu.Unlock()
	switch {
	case b == nil || !b.wait(ctx) || h.EndpointID != b.bound.EndpointID:
		return tunnel.RefusedUnknownEndpoint, false
	case h.Host != a.Endpoint.URL.Host || h.Port != a.Endpoint.URL.Port:
		return tunnel.RefusedMismatch, false
	}
	return 0, true
}
