// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"sync"
	"time"
)

const (
	// throttleInterval limits deferrable writes to 50 a second.
	throttleInterval = 20 * time.Millisecond
	// firstStatusTimeout is how long the first status of a spec waits for the forwarders to listen,
	// so that one write suffices.
	firstStatusTimeout = 3 * time.Second
	// firstStatusStartTimeout is how long it waits while the first forwarder of the installation
	// starts.
	firstStatusStartTimeout = 10 * time.Second
)

// writeThrottle spreads status writes that many objects need at once. It is safe for concurrent
// use.
type writeThrottle struct {
	mu    sync.Mutex
	next  time.Time            // the first free slot
	slots map[string]time.Time // hostname -> when it may write
}

func newWriteThrottle() *writeThrottle { return &writeThrottle{slots: map[string]time.Time{}} }

// delay returns how long the hostname has to wait for its slot. 0 means that it may write now, and
// frees the slot.
func (p *writeThrottle) delay(hostname string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.slots[hostname]
	if !ok {
		at = now
		if p.next.After(now) {
			at = p.next
		}
		p.next = at.Add(throttleInterval)
	}
	if at.After(now) {
		p.slots[hostname] = at
		return at.Sub(now)
	}
	delete(p.slots, hostname)
	return 0
}

// cancel frees the slot of a hostname that has nothing to write.
func (p *writeThrottle) cancel(hostname string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.slots[hostname]; !ok {
		return
	}
	delete(p.slots, hostname)
	if len(p.slots) == 0 {
		p.next = now.Add(throttleInterval)
	}
}
