// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// streamSet has the open streams. The zero value is ready. Safe for concurrent use.
type streamSet struct {
	mu   sync.Mutex
	open map[*tunnel.Stream]struct{}
	idle chan struct{} // closed when none is left; nil without a waiter
}

func (c *streamSet) begin(st *tunnel.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[*tunnel.Stream]struct{})
	}
	c.open[st] = struct{}{}
}

func (c *streamSet) end(st *tunnel.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.open, st); len(c.open) > 0 {
		return
	}
	c.open = nil // a map does not shrink
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *streamSet) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// wait returns when no stream is being served, or when ctx is done.
func (c *streamSet) wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// abort aborts the open streams.
func (c *streamSet) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for st := range c.open {
		_ = st.Abort()
	}
}
