// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	registryTimeout = 5 * time.Second // for one read
	// registryPause is the least time between two reads on behalf of replicas that are not known.
	registryPause = 250 * time.Millisecond
)

// registry keeps the live rows as they were last read. Concurrent reads are merged.
type registry struct {
	peers   *Peers             // is told of the rows after each read that succeeded
	unknown singleflight.Group // reads for replicas that are not known

	mu            sync.Mutex // guards what follows
	running, next *registryRead
	began         time.Time          // when the last read began
	rows          map[string]Replica // must not be changed
	changed       chan struct{}      // closed and replaced after each read that succeeded
}

// registryRead is a read, under way or about to begin.
type registryRead struct {
	done chan struct{}
	err  error // set before done is closed
}

// succeeded reports whether the read has ended without an error.
func (r *registryRead) succeeded() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// has reports whether id is that of a live row.
func (r *registry) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.rows[id]
	return ok
}

// changes returns a channel that is closed after the next read that succeeds.
func (r *registry) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// refresh reads the registry: the read begins after refresh was called.
func (r *registry) refresh(ctx context.Context) error {
	read := r.start()
	select {
	case <-read.done:
		return read.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refreshFor reads the registry for a replica that is not known, registryPause after the last read,
// and reports whether it is known then. Concurrent calls share a read.
func (r *registry) refreshFor(ctx context.Context, id string) bool {
	read := r.unknown.DoChan("", func() (any, error) {
		r.mu.Lock()
		wait := registryPause - time.Since(r.began)
		r.mu.Unlock()
		timer.Sleep(r.peers.ctx, wait)
		return nil, r.refresh(r.peers.ctx) // after an error, the rows that are known stay
	})
	select {
	case <-read:
	case <-ctx.Done():
	}
	return r.has(id)
}

// start returns a read that begins from now on.
func (r *registry) start() *registryRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := &registryRead{done: make(chan struct{}), err: errClosed}
	switch {
	case r.next != nil:
		return r.next
	case r.running != nil:
		r.next = read
	case r.peers.tasks.Start(r.run):
		r.running, r.began = read, time.Now()
	default:
		close(read.done)
	}
	return read
}

// run carries out the running read and those that follow it.
func (r *registry) run() {
	for {
		ctx, cancel := context.WithTimeout(r.peers.ctx, registryTimeout)
		all, err := r.peers.opt.Registry.Replicas(ctx)
		cancel()
		if err == nil {
			r.setRows(all)
		}
		r.mu.Lock()
		r.running.err = err
		close(r.running.done)
		r.running, r.next = r.next, nil
		if r.running == nil {
			r.mu.Unlock()
			return
		}
		r.began = time.Now()
		r.mu.Unlock()
	}
}

func (r *registry) setRows(all []Replica) {
	rows := make(map[string]Replica, len(all))
	for _, row := range all {
		rows[row.ID] = row
	}
	r.mu.Lock()
	r.rows = rows
	r.mu.Unlock()
	r.peers.setReplicas(rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}
