// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"sync"
	"time"
)

const (
	// paceInterval keeps writes that may be late at 50 a second.
	paceInterval = 20 * time.Millisecond
	// firstWait is how long the first status of a spec waits for the forwarders to listen, so that it
	// has to be written only once.
	firstWait = 3 * time.Second
	// startWait is how long it waits while the first forwarder of the installation starts.
	startWait = 10 * time.Second
)

// pace spreads the writes that a swarm of changes wants. It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex
	next  time.Time            // the first free slot
	slots map[string]time.Time // who writes when
}

func newPace() *pace { return &pace{slots: map[string]time.Time{}} }

// wait returns how long the hostname has to wait for its turn: 0 is now, and ends it.
func (p *pace) wait(hostname string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.slots[hostname]
	if !ok {
		at = now
		if p.next.After(now) {
			at = p.next
		}
		p.next = at.Add(paceInterval)
	}
	if at.After(now) {
		p.slots[hostname] = at
		return at.Sub(now)
	}
	delete(p.slots, hostname)
	return 0
}

// leave takes the hostname out: it has nothing to write any more.
func (p *pace) leave(hostname string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.slots[hostname]; !ok {
		return
	}
	delete(p.slots, hostname)
	if len(p.slots) == 0 { // nobody is left of the swarm
		p.next = now.Add(paceInterval)
	}
}

// novices remembers since when objects wait for the first status of their spec. It is safe for
// concurrent use.
type novices struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func newNovices() *novices { return &novices{since: map[string]time.Time{}} }

// waited returns for how long the hostname has waited.
func (n *novices) waited(hostname string, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.since[hostname]; !ok {
		n.since[hostname] = now
	}
	return now.Sub(n.since[hostname])
}

func (n *novices) forget(hostname string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.since, hostname)
}
