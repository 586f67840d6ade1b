// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
)

// unreachableAfter is how long the session may be away before the objects' status says so: a server
// that restarts costs no writes.
const unreachableAfter = 10 * time.Second

// bindState is what the agent reported of an endpoint.
type bindState struct {
	Bound           bool
	ID              string // of the oldest endpoint of the object at the URL
	URL             string
	Reason, Message string    // why it is not bound; "" while there is no answer
	asked           time.Time // when the endpoint was last changed
}

// answered reports whether the service has answered a bind.
func (b bindState) answered() bool { return b.Bound || b.Reason != "" }

// bindStates are the states of all endpoints, by their keys, and of the session. It is safe for
// concurrent use. The objects whose state has changed are reconciled.
type bindStates struct {
	ctx     context.Context // ctx ends with the exporter.
	agents  *agentEndpoints
	exports *serviceexport.Reconciler // exports may be nil.

	mu      sync.Mutex
	states  map[string]bindState
	isUp    bool
	downAt  time.Time // since when there is no session
	cause   string    // why there is none
	pending *time.Timer
}

func newBindStates(ctx context.Context, agents *agentEndpoints, exports *serviceexport.Reconciler) *bindStates {
	s := &bindStates{ctx: ctx, agents: agents, exports: exports, states: map[string]bindState{}}
	s.down("the exporter is connecting")
	return s
}

// get returns the state of an endpoint.
func (s *bindStates) get(key string) bindState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[key]
}

// set records an answer to a bind.
func (s *bindStates) set(key string, state bindState) {
	s.mu.Lock()
	before := s.states[key]
	state.asked = before.asked
	s.states[key] = state
	s.mu.Unlock()
	switch of := objectOf(key); {
	case before == state:
	case of.kind == account.KindServiceExport:
		s.exports.Notify(of.NamespacedName)
	default:
		s.agents.changes.NotifyObject(of.NamespacedName)
	}
}

// ask forgets the last answers, as the endpoints have changed and are bound again.
func (s *bindStates) ask(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.states[key] = bindState{asked: time.Now()}
	}
}

// forget forgets endpoints that are gone.
func (s *bindStates) forget(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.states, key)
	}
}

// up records that there is a session.
func (s *bindStates) up() {
	s.mu.Lock()
	wasUnreachable := !s.isUp && time.Since(s.downAt) >= unreachableAfter
	s.isUp, s.cause = true, ""
	if s.pending != nil {
		s.pending.Stop()
		s.pending = nil
	}
	s.mu.Unlock()
	if wasUnreachable {
		s.enqueueAll()
	}
}

// down records that there is no session, and why. The objects' status says so after
// unreachableAfter.
func (s *bindStates) down(cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUp || s.downAt.IsZero() {
		s.isUp, s.downAt = false, time.Now()
	}
	s.cause = cause
	if s.pending == nil {
		s.pending = time.AfterFunc(time.Until(s.downAt.Add(unreachableAfter)), s.enqueueAll)
	}
}

// enqueueAll requests a reconciliation of all objects: what session returns has changed.
func (s *bindStates) enqueueAll() {
	s.agents.enqueueAll(s.ctx)
	if s.exports != nil {
		s.exports.EnqueueAll()
	}
}

// session reports whether there is a session; if there was none for unreachableAfter, why returns
// the cause.
func (s *bindStates) session() (up bool, unreachable string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUp || time.Since(s.downAt) < unreachableAfter {
		return s.isUp, ""
	}
	return false, s.cause
}

// count returns how many endpoints are bound and how many refused.
func (s *bindStates) count() (bound, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		switch {
		case state.Bound:
			bound++
		case state.Reason != "":
			refused++
		}
	}
	return bound, refused
}
