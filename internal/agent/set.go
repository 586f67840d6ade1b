// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"reflect"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// identity tells the endpoints of an agent apart. One with another URL is another endpoint.
type identity struct {
	key, binding, labels string
	url                  account.EndpointURL
}

// spec is one version of an endpoint. It is never changed.
type spec struct {
	Endpoint

	info EndpointInfo
	bind tunnel.Bind // without the resume secret
}

func newSpec(e Endpoint) *spec { return &spec{Endpoint: e, info: e.info(), bind: e.bindMessage()} }

// endpoint is the state of one endpoint over all sessions, guarded by Agent.mu.
type endpoint struct {
	identity identity
	spec     *spec         // the spec in the last Set that had it
	removed  bool          // the last Set did not have it
	bound    *spec         // the last one that was bound, by which its streams are served; nil = never
	session  *sessionBinds // the session that has bound it last; nil = none has, or it was unbound since
	id       string        // the latest bind's id
	// the latest bind's secret; in memory only, sent with the next bind
	resumeSecret string
	streams      streamSet

	queue    *sessionBinds // in whose queue it is; nil = in none
	syncing  bool          // sync runs
	again    bool          // sync is to run again, for it has changed
	failures int           // in a row
	retry    *time.Timer   // the next attempt after a failure; nil = none

	everOnline   bool
	refusal      string // the cause that was reported last; "" after Online
	upstreamDown bool
	awaited      bool // awaitUpstream runs
}

// Set makes the agent serve these endpoints and no others, from now on or when Run runs. It does
// not wait. Endpoints are told apart by key, URL and binding, or labels; of several with the same,
// the last counts. A new one is bound. One whose policy, metadata or upstream differ is bound again
// on the same session, and served as before until the server has accepted that. One that is missing
// is unbound, then its open connections get Options.DrainTimeout to end. Set takes time for each
// endpoint: collect changes that come together.
func (a *Agent) Set(endpoints []Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var changed []*endpoint
	before := a.endpoints
	a.endpoints, a.order = make(map[identity]*endpoint, len(endpoints)), make([]*endpoint, 0, len(endpoints))
	for i, given := range endpoints {
		if given.Key == "" {
			given.Key = strconv.Itoa(i)
		}
		id, s := given.identity(), newSpec(given)
		e := a.endpoints[id]
		if e == nil {
			if e = before[id]; e == nil {
				e = &endpoint{identity: id, spec: s, removed: true}
			}
			a.endpoints[id], a.order = e, append(a.order, e)
		}
		if e.update(s) {
			changed = append(changed, e)
		}
	}
	for id, e := range before {
		if a.endpoints[id] != nil {
			continue
		}
		a.endpoints[id] = e // until it is released
		if !e.removed {
			e.removed, e.failures = true, 0
			changed = append(changed, e)
		}
	}
	for _, e := range changed {
		a.enqueueOrRelease(e)
	}
}

// sameBind reports whether both versions of an endpoint are bound by the same message.
func sameBind(a, b *spec) bool { return a == b || reflect.DeepEqual(a.bind, b.bind) }

// update sets what the endpoint is to be and reports whether a bind may be needed for it. Agent.mu
// must be held.
func (e *endpoint) update(s *spec) bool {
	same := sameBind(e.spec, s)
	e.spec = s
	if e.bound != nil && sameBind(e.bound, s) {
		e.bound = s // it may have another Dial
	}
	if same && !e.removed {
		return false
	}
	e.removed, e.failures = false, 0
	return true
}

// infos describes the endpoints of the last Set.
func (a *Agent) infos() []EndpointInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	infos := make([]EndpointInfo, len(a.order))
	for i, e := range a.order {
		infos[i] = e.spec.info
	}
	return infos
}

// isOneOfSeveral reports whether the refusal of one endpoint does not concern the session.
func (a *Agent) isOneOfSeveral() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opt.KeepRunning || len(a.order) > 1
}

// enqueue makes the current session bind or unbind the endpoint. It returns false without a session
// that can. mu must be held.
func (a *Agent) enqueue(e *endpoint) bool {
	if e.retry != nil {
		e.retry.Stop()
		e.retry = nil
	}
	switch h := a.current; {
	case e.syncing:
		e.again = true
	case h == nil || h.ended:
		return false
	case e.queue != h:
		e.queue = h
		h.push(e)
	}
	return true
}

// enqueueOrRelease is enqueue; without a session, what was removed is released. mu must be held.
func (a *Agent) enqueueOrRelease(e *endpoint) {
	if !a.enqueue(e) && e.removed {
		a.forgetID(e)
		a.release(e)
	}
}

// release forgets and reports an endpoint that was removed, but for its id and its streams. mu must
// be held.
func (a *Agent) release(e *endpoint) {
	if a.endpoints[e.identity] == e {
		delete(a.endpoints, e.identity)
		a.opt.Observer.Observe(Removed{EndpointInfo: e.spec.info, Unbound: e.session == nil})
	}
}

// forgetID makes new streams with the endpoint's id be refused. mu must be held.
func (a *Agent) forgetID(e *endpoint) {
	if a.byID[e.id] == e {
		delete(a.byID, e.id)
	}
}
