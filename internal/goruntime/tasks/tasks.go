// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tasks runs goroutines that their owner waits for. Input: functions. Output: whether they
// were started, and their end.
package tasks

import "sync"

// Group is goroutines that Close waits for. The zero value is ready. It is safe for concurrent use.
type Group struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// Start runs f in a goroutine. It returns false, and does not, once Close was called.
func (g *Group) Start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.all.Go(f)
	}
	return !g.closed
}

// Close waits for the goroutines.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.all.Wait()
}
