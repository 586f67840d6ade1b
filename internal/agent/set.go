// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
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

// endpoint is the state of one endpoint over all sessions. endpointSet.mu guards all but streams
// and upstream, which have locks of their own.
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

	everOnline bool
	refusal    string // the cause that was reported last; "" after Online
	upstream   reachability

	hostRefused bool // hostRefused reports that HostRefused was observed.

	sealProblem string // sealProblem is the cause of the last SealProblem.
}

// endpointSet has the endpoints of the last Set, those that are not unbound yet, and the sessions
// that bind them. It is safe for concurrent use.
type endpointSet struct {
	opt      *Options
	stopping context.Context // stopping ends with shutDown, with mu held: nothing is bound any more.
	stop     context.CancelFunc

	checkingSeal   sync.Mutex // checkingSeal serializes checkSeal; mu is taken after it.
	mu             sync.Mutex
	bindsBySession map[*tunnel.Session]*sessionBinds
	current        *sessionBinds // current has the latest session's binds.
	endpoints      map[identity]*endpoint
	order          []*endpoint          // order has those of the last Set, in its order.
	byID           map[string]*endpoint // byID has those that are served, by endpoint id.
}

func newEndpointSet(o *Options) *endpointSet {
	stopping, stop := context.WithCancel(context.Background())
	return &endpointSet{opt: o, stopping: stopping, stop: stop,
		bindsBySession: make(map[*tunnel.Session]*sessionBinds), byID: make(map[string]*endpoint)}
}

// set replaces the endpoints, see Agent.Set.
func (t *endpointSet) set(endpoints []Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changed []*endpoint
	before := t.endpoints
	t.endpoints, t.order = make(map[identity]*endpoint, len(endpoints)), make([]*endpoint, 0, len(endpoints))
	for i, given := range endpoints {
		given.Key = cmp.Or(given.Key, strconv.Itoa(i))
		id, s := given.identity(), newSpec(given)
		if given.Withheld {
			if e := before[id]; e != nil {
				e.spec = s
			}
			continue
		}
		e := t.endpoints[id]
		if e == nil {
			if e = before[id]; e == nil {
				e = &endpoint{identity: id, spec: s, removed: true}
			}
			t.endpoints[id], t.order = e, append(t.order, e)
		}
		if e.update(s) {
			changed = append(changed, e)
		}
	}
	for id, e := range before {
		if t.endpoints[id] != nil {
			continue
		}
		t.endpoints[id] = e // until it is released
		if !e.removed {
			e.removed, e.failures = true, 0
			changed = append(changed, e)
		}
	}
	for _, e := range changed {
		t.enqueueOrRelease(e)
	}
}

// sameBind reports whether both versions of an endpoint are bound by the same message.
func sameBind(a, b *spec) bool { return a == b || reflect.DeepEqual(a.bind, b.bind) }

// update sets what the endpoint is to be and reports whether a bind may be needed for it. The
// connections of another version's SealedServer end, as their requests are for the upstream and by the
// policy of that one. endpointSet.mu must be held.
func (e *endpoint) update(s *spec) bool {
	same := sameBind(e.spec, s)
	switch before := e.spec.SealedServer; {
	case before == nil:
	case before != s.SealedServer:
		before.Drain()
	case same:
		s = e.spec // a SealedUpstream stays equal
	}
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
func (t *endpointSet) infos() []EndpointInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	infos := make([]EndpointInfo, len(t.order))
	for i, e := range t.order {
		infos[i] = e.spec.info
	}
	return infos
}

// findByID returns the endpoint with an id, described as it is served; nil for an unknown id.
func (t *endpointSet) findByID(id string) (*endpoint, EndpointInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	if e == nil {
		return nil, EndpointInfo{}
	}
	return e, e.bound.info
}

// recordHostRefused records that the upstream of an endpoint does not accept the Host, and reports
// whether that is news. Labelled tunnels have no option that would help.
func (t *endpointSet) recordHostRefused(e *endpoint) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.hostRefused || len(e.spec.Labels) > 0 {
		return false
	}
	e.hostRefused = true
	return true
}

// idOf returns the id of the endpoint's latest bind.
func (t *endpointSet) idOf(e *endpoint) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.id
}

// served returns the version of an endpoint that serves its streams; nil = none, or it was removed.
func (t *endpointSet) served(e *endpoint) *spec {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.removed {
		return nil
	}
	return e.bound
}

// drain waits until the streams have ended, or ctx is done. Meanwhile the servers of these endpoints, or
// else of all that are served, end their connections.
func (t *endpointSet) drain(ctx context.Context, streams *streamSet, of ...*endpoint) {
	t.mu.Lock()
	if of == nil {
		of = slices.Collect(maps.Values(t.byID))
	}
	for _, e := range of {
		if s := e.serving(); s != nil && s.SealedServer != nil {
			s.SealedServer.Drain()
		}
	}
	t.mu.Unlock()
	streams.wait(ctx)
}

// serving returns the version that serves streams: bound. One that is to be sealed, or withheld, serves
// at once, whatever becomes of its bind: no plain stream, and none by a former policy or for former
// callers. endpointSet.mu must be held.
func (e *endpoint) serving() *spec {
	if e.spec.Seal != nil || e.spec.Withheld {
		return e.spec
	}
	return e.bound
}

// bindPatience is how long a stream waits for a bind that changes its endpoint's upstream.
const bindPatience = 2 * time.Second

// find returns the endpoint of a stream, with the stream added to its streams, and the version that
// serves it: nil with the code to refuse the stream with. Host and port must be the endpoint's. A
// stream can arrive before the answer to its bind: one of an unknown endpoint waits for the
// session's pending binds, and one of an endpoint whose upstream changes for its bind, because the
// edge keeps the stream for requests that must not reach the former upstream.
func (t *endpointSet) find(
	ctx context.Context, session *tunnel.Session, st *tunnel.Stream,
) (e *endpoint, s *spec, code tunnel.RefuseCode) {
	header := st.Header()
	known := func() bool {
		if e = t.byID[header.EndpointID]; e != nil {
			e.streams.begin(st)
			s = e.serving()
		}
		return e != nil
	}
	t.mu.Lock()
	h := t.bindsBySession[session]
	ok := known()
	changes := ok && h.changesUpstream(e)
	t.mu.Unlock()
	if !ok && h != nil {
		t.waitFor(ctx, h, func() bool { return known() || h.pending == 0 })
	}
	if changes {
		limit, cancel := context.WithTimeout(ctx, bindPatience)
		defer cancel()
		t.waitFor(limit, h, func() bool {
			s = e.serving()
			return !h.changesUpstream(e)
		})
	}
	switch {
	case e == nil:
		return nil, nil, tunnel.RefusedUnknownEndpoint
	case !s.matches(header):
		return e, nil, tunnel.RefusedMismatch
	}
	return e, s, 0
}

// enqueue makes the current session bind or unbind the endpoint. It returns false without a session
// that can. mu must be held.
func (t *endpointSet) enqueue(e *endpoint) bool {
	if e.retry != nil {
		e.retry.Stop()
		e.retry = nil
	}
	switch h := t.current; {
	case e.syncing:
		e.again = true
	case h == nil || h.ended:
		return false
	case e.queue != h:
		e.queue, h.queue = h, append(h.queue, e)
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// enqueueOrRelease is enqueue; without a session, what was removed is released. mu must be held.
func (t *endpointSet) enqueueOrRelease(e *endpoint) {
	if !t.enqueue(e) && e.removed {
		t.forgetID(e)
		t.release(e)
	}
}

// release forgets and reports an endpoint that was removed, but for its id and its streams. mu must
// be held.
func (t *endpointSet) release(e *endpoint) {
	if t.endpoints[e.identity] == e {
		delete(t.endpoints, e.identity)
		t.opt.Observer.Observe(Removed{EndpointInfo: e.spec.info, Unbound: e.session == nil})
	}
}

// refuseStreams makes new streams to an endpoint be refused.
func (t *endpointSet) refuseStreams(e *endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetID(e)
}

// forgetID makes new streams with the endpoint's id be refused. mu must be held.
func (t *endpointSet) forgetID(e *endpoint) {
	if t.byID[e.id] == e {
		delete(t.byID, e.id)
	}
}
