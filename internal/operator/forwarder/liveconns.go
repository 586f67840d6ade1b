// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"maps"
	"slices"
	"sync"
)

// liveConns are the connections being served. The zero value is ready for use.
type liveConns struct {
	mu    sync.Mutex
	conns map[*clientConn]struct{}
}

func (l *liveConns) add(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[*clientConn]struct{}{}
	}
	l.conns[c] = struct{}{}
}

// remove removes a connection and reports whether it was one of them.
func (l *liveConns) remove(c *clientConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, found := l.conns[c]
	delete(l.conns, c)
	return found
}

func (l *liveConns) list() []*clientConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}
