// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// connGroups are sealed connections to http endpoints, by the name that their forwarder gave those that it
// may end together. The zero value is ready. It is safe for concurrent use.
type connGroups struct {
	mu  sync.Mutex
	all map[string]map[*tunnel.Stream]context.CancelFunc
}

// join adds a connection, which drain lets end, until leave is called.
func (g *connGroups) join(name string, st *tunnel.Stream, drain context.CancelFunc) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = make(map[string]map[*tunnel.Stream]context.CancelFunc)
	}
	if g.all[name] == nil {
		g.all[name] = make(map[*tunnel.Stream]context.CancelFunc)
	}
	g.all[name][st] = drain
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.all[name], st); len(g.all[name]) == 0 {
			delete(g.all, name)
		}
	}
}

// drain lets the connections of a group end.
func (g *connGroups) drain(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, drain := range g.all[name] {
		drain()
	}
}
