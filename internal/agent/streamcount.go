// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// streamCount counts open streams. The zero value is ready. Safe for concurrent use.
type streamCount struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil without a waiter
}

func (c *streamCount) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *streamCount) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *streamCount) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait returns when no stream is being served, or when ctx is done.
func (c *streamCount) wait(ctx context.Context) {
	c.mu.Lock()
	if c.n == 0 {
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
