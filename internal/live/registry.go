// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
)

// Registry knows what is being served for each session. It is safe for concurrent use. It holds no
// more than what is being served: ids of sessions that were cut are remembered only as long as a
// request is under way that entered before and has not named its session.
type Registry struct {
	mu       sync.Mutex
	count    uint64 // of calls of Cut
	sessions map[string]map[*Entry]struct{}
	unnamed  list.List         // of *Entry whose sessions are being read, the oldest in front
	cuts     []cutID           // that are remembered, the oldest in front
	cutAt    map[string]uint64 // the last of each id in cuts
}

type cutID struct {
	id string
	at uint64
}

// New makes a Registry.
func New() *Registry {
	return &Registry{sessions: make(map[string]map[*Entry]struct{}), cutAt: make(map[string]uint64)}
}

// Entry is one request that is being served. Its methods are called one after the other.
type Entry struct {
	of      *Registry
	since   uint64        // cuts that count from here on
	place   *list.Element // while its session is not named
	session string

	mu   sync.Mutex // held while it is cut: Leave waits
	cut  func()
	left bool
}

// Enter registers a request before its session is read. cut ends it, must not block, and is called
// at most once, never after Leave has returned.
func (g *Registry) Register(cut func()) *Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &Entry{of: g, since: g.count, cut: cut}
	e.place = g.unnamed.PushBack(e)
	return e
}

// Is names the session, once. It is false when that session was cut since Enter: the request must
// not go on.
func (e *Entry) SetSession(sessionID string) (ok bool) {
	g := e.of
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := g.cutAt[sessionID] > e.since
	g.named(e)
	if gone {
		return false
	}
	e.session = sessionID
	if g.sessions[sessionID] == nil {
		g.sessions[sessionID] = make(map[*Entry]struct{})
	}
	g.sessions[sessionID][e] = struct{}{}
	return true
}

// Leave says that the request has ended. It waits for a cut that is under way. It may be called
// more than once.
func (e *Entry) Done() {
	g := e.of
	g.mu.Lock()
	g.named(e)
	if all := g.sessions[e.session]; all != nil {
		if delete(all, e); len(all) == 0 {
			delete(g.sessions, e.session)
		}
	}
	g.mu.Unlock()
	e.mu.Lock()
	e.left = true
	e.mu.Unlock()
}

// named takes e from those whose sessions are being read, and forgets the cuts that nobody is left
// to ask about. The caller holds mu.
func (g *Registry) named(e *Entry) {
	if e.place == nil {
		return
	}
	g.unnamed.Remove(e.place)
	e.place = nil
	oldest := g.unnamed.Front()
	for len(g.cuts) > 0 && (oldest == nil || g.cuts[0].at <= oldest.Value.(*Entry).since) {
		if c := g.cuts[0]; g.cutAt[c.id] == c.at {
			delete(g.cutAt, c.id)
		}
		g.cuts = g.cuts[1:]
	}
	if len(g.cuts) == 0 {
		g.cuts = nil
	}
}

// Cut cuts all requests of the sessions, and those on their way to them. It returns when that has
// happened, with their number.
func (g *Registry) Abort(sessionIDs []string) (streams int) {
	if len(sessionIDs) == 0 {
		return 0
	}
	var all []*Entry
	g.mu.Lock()
	g.count++
	for _, id := range sessionIDs {
		for e := range g.sessions[id] {
			all = append(all, e)
		}
		if g.unnamed.Len() > 0 {
			g.cuts = append(g.cuts, cutID{id, g.count})
			g.cutAt[id] = g.count
		}
	}
	g.mu.Unlock()
	var n atomic.Int64
	var cutting sync.WaitGroup
	for _, e := range all {
		cutting.Go(func() {
			if e.end() {
				n.Add(1)
			}
		})
	}
	cutting.Wait()
	return int(n.Load())
}

// end cuts the request and says whether it was there to be cut.
func (e *Entry) end() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left || e.cut == nil {
		return false
	}
	e.cut()
	e.cut = nil
	return true
}

// Sessions returns the ids of the sessions for which something is being served, in no order.
func (g *Registry) Sessions() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]string, 0, len(g.sessions))
	for id := range g.sessions {
		ids = append(ids, id)
	}
	return slices.Clip(ids)
}

// Live returns the number of sessions for which something is being served, and of requests of
// theirs.
func (g *Registry) Counts() (sessions, requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, all := range g.sessions {
		requests += len(all)
	}
	return len(g.sessions), requests
}
