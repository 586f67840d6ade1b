// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "sync"

// broadcaster wakes any number of waiters. The zero value is ready for use.
type broadcaster struct {
	mu sync.Mutex
	c  chan struct{}
}

// next returns a channel that the next call of broadcast closes.
func (b *broadcaster) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// broadcast closes the channels that next returned.
func (b *broadcaster) broadcast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
