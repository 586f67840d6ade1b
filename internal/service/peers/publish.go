// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	// publishGrace is how much longer than the lease Publish waits.
	publishGrace = time.Second
	minRetry     = 50 * time.Millisecond // before a change is published again; doubled with each attempt
	maxRetry     = time.Second
)

// Publish tells all peers a change that has been committed. It returns nil when it is true on every
// replica: each one in the registry has answered that it has applied it, or is not in the registry
// any more, or Lease + 1 s have passed, within which each one compares with the store or serves no
// people any more. The error is ctx's, or that Run has ended.
//
// The registry is read once, so that a replica which joined before the commit is told; one that
// joins later compares with the store before it serves. While the registry cannot be read, the
// known replicas are told, and Publish waits for the lease.
func (p *Peers) Publish(ctx context.Context, c Change) error {
	p.forget(c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pub := &publication{peers: p, ctx: ctx, change: c, told: make(map[string]*peer),
		answers: make(chan string)}
	defer pub.release()
	deadline := time.NewTimer(p.opt.Lease + publishGrace)
	defer deadline.Stop()
	retry := time.NewTimer(maxRetry) // until a read that failed is repeated
	retry.Stop()
	changes := p.registry.changes()
	read := p.registry.start() // begins after the commit
	pub.tellAll()
	current := false // the list is one of after the commit
	for {
		if current && len(pub.told) == 0 {
			return nil
		}
		select {
		case id := <-pub.answers:
			pub.remove(id)
		case <-read.done:
			current = read.err == nil
			pub.tellAll()
			read = &registryRead{} // never done
			if !current {
				retry.Reset(maxRetry)
			}
		case <-retry.C:
			read = p.registry.start()
		case <-changes:
			changes = p.registry.changes()
			pub.removeGone()
		case <-deadline.C:
			pub.recordOverdue()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errClosed
		}
	}
}

// publication is a change that peers are being told.
type publication struct {
	peers   *Peers
	ctx     context.Context
	change  Change
	told    map[string]*peer // peers that have not answered, by id
	done    []string         // those that have, or are gone
	answers chan string
}

// tellAll tells the peers in the registry that have not been told, and removes those that are gone.
func (pub *publication) tellAll() {
	for id, pr := range pub.peers.livePeers() {
		if pub.told[id] != nil || slices.Contains(pub.done, id) {
			continue
		}
		if pub.peers.tasks.Start(func() { pub.tell(pr) }) {
			pub.told[id] = pr
			pr.pending.Add(1)
		}
	}
	pub.removeGone()
}

// tell repeats the change until the peer has answered.
func (pub *publication) tell(pr *peer) {
	ctx, cancel := context.WithCancel(pub.ctx)
	defer cancel()
	defer context.AfterFunc(pr.ctx, cancel)()
	change := pub.change
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		err := pr.sendChange(ctx, change)
		if err == nil {
			break
		}
		pub.peers.log.Debug("a replica did not apply a change", "replica", pr.id, "kind", pub.change.Kind, "err", err)
		read := pub.peers.registry.start() // it may have left
		if !timer.Sleep(ctx, wait) {
			return
		}
		change.StoreAnswers = read.succeeded()
	}
	select {
	case pub.answers <- pr.id:
	case <-pub.ctx.Done():
	}
}

func (pub *publication) removeGone() {
	for id, pr := range pub.told {
		if pr.ctx.Err() != nil {
			pub.remove(id)
		}
	}
}

func (pub *publication) remove(id string) {
	if pr := pub.told[id]; pr != nil {
		pr.pending.Add(-1)
		delete(pub.told, id)
		pub.done = append(pub.done, id)
	}
}

// release stops counting the change as pending.
func (pub *publication) release() {
	for _, pr := range pub.told {
		pr.pending.Add(-1)
	}
}

func (pub *publication) recordOverdue() {
	for _, pr := range pub.told {
		pr.overdue.Add(1)
		pr.peers.overdue.Add(1)
	}
	pub.peers.log.Warn("replicas did not answer a change within their lease; they have stopped serving people",
		"kind", pub.change.Kind, "replicas", strings.Join(slices.Sorted(maps.Keys(pub.told)), " "))
}
