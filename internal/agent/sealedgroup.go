// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "sync"

// connGroups are sealed connections to http endpoints that may end together: those that a forwarder gave
// one name, over one connection of the tunnel. The zero value is ready. It is safe for concurrent use.
type connGroups struct {
	mu  sync.Mutex
	all map[connGroupKey]*connGroup
}

type connGroupKey struct {
	name    string
	replica <-chan struct{} // replica is closed when the service's replica is about to stop.
}

type connGroup struct {
	conns    int
	draining chan struct{} // draining is closed when they are to end with their next answer.
	told     chan struct{} // told is closed when the forwarder asks for that; nil afterwards.
	empty    chan struct{} // empty is closed with the last connection.
}

// join adds a connection until leave is called. draining is closed once it is to end with its next answer.
func (g *connGroups) join(name string, replica <-chan struct{}) (draining <-chan struct{}, leave func()) {
	if name == "" {
		return replica, func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := connGroupKey{name, replica}
	group := g.all[key]
	if group == nil {
		group = &connGroup{draining: make(chan struct{}), told: make(chan struct{}), empty: make(chan struct{})}
		if g.all == nil {
			g.all = make(map[connGroupKey]*connGroup)
		}
		g.all[key] = group
		go group.watch(replica, group.told)
	}
	group.conns++
	return group.draining, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if group.conns--; group.conns == 0 {
			delete(g.all, key)
			close(group.empty)
		}
	}
}

func (g *connGroup) watch(replica, told <-chan struct{}) {
	select {
	case <-replica:
		close(g.draining)
	case <-told:
		close(g.draining)
	case <-g.empty:
	}
}

// drain lets the connections of a forwarder's group end.
func (g *connGroups) drain(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, group := range g.all {
		if key.name == name && group.told != nil {
			close(group.told)
			group.told = nil
		}
	}
}
