// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderaddresses

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

const (
	// firstRetry and lastRetry bound the pause before what failed, or has to wait, is tried again.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Cluster reads EndpointSlices; *EndpointSlices implements it.
type Cluster interface {
	// Watch calls update with the EndpointSlices of the forwarders' Service at first and after each
	// change, one call at a time, until ctx is done.
	Watch(ctx context.Context, update func([]*discoveryv1.EndpointSlice)) error
	// Listed returns, from the API server, the addresses that any slice of ours lists as ready.
	Listed(ctx context.Context) (map[string]struct{}, error)
}

// Record is status.projectedForwarders; *registration.Registration implements it.
type Record interface {
	RecordedProjectedForwarders(ctx context.Context) ([]string, error)
	RecordProjectedForwarders(ctx context.Context, addresses []string) error
}

// Options of a Tracker. All are required.
type Options struct {
	Cluster Cluster
	Record  Record
	// Holders are notified of hostnames whose slices may have to change.
	Holders notify.Listener
	Log     logr.Logger
}

// Provider provides addresses for EndpointSlices; *Tracker implements it.
type Provider interface {
	// Acquire returns the addresses for the slices of a hostname or ServiceImport; release is called
	// after the slices are written. While ok is false, nothing is known; a notification follows.
	Acquire(key string) (addresses Addresses, release func(), ok bool)
	// Forget ends the notifications of a key that has no slices.
	Forget(key string)
}

// Tracker provides the forwarders' addresses. Its methods are safe for concurrent use and never
// block.
type Tracker struct {
	Options
	changed notify.Signal // receives when the loop has something to do

	mu     sync.Mutex
	source Addresses // nil: not read yet
	// recorded are the addresses of the status while read is true, and allowed those of them that
	// may be handed out; both are sorted.
	read              bool
	recorded, allowed []string
	hostnames         map[string]struct{}
	current           *snapshot
	inUse             map[*snapshot]int // how many acquired each one and have not released it
}

// snapshot is a set of addresses that was handed out.
type snapshot struct{ addresses Addresses }

// New returns a Tracker; Start runs it.
func New(o Options) *Tracker {
	return &Tracker{Options: o, changed: notify.NewSignal(), hostnames: map[string]struct{}{},
		inUse: map[*snapshot]int{}}
}

// Acquire returns the addresses for the slices of a hostname. The caller writes the slices and
// then calls release. ok is false while no address is known; the hostname is notified then, and
// whenever the addresses change, until Forget.
func (t *Tracker) Acquire(hostname string) (addresses Addresses, release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.hostnames[hostname]; !known {
		t.hostnames[hostname] = struct{}{}
		t.changed.Send()
	}
	if t.current == nil || t.unrecorded() {
		return nil, nil, false
	}
	s := t.current
	t.inUse[s]++
	return s.addresses, sync.OnceFunc(func() { t.release(s) }), true
}

// unrecorded reports whether there are ready forwarders and none of them is recorded. mu must be
// held.
func (t *Tracker) unrecorded() bool {
	return len(t.source.ready()) > 0 && len(t.current.addresses.ready()) == 0
}

func (t *Tracker) release(s *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inUse[s]--; t.inUse[s] == 0 {
		delete(t.inUse, s)
	}
}

// Forget ends the notifications of a hostname that has no slices.
func (t *Tracker) Forget(hostname string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.hostnames[hostname]; known {
		delete(t.hostnames, hostname)
		t.changed.Send()
	}
}

// Start tracks until the context ends. An error means that the forwarders' slices cannot be
// watched at all.
func (t *Tracker) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var recording sync.WaitGroup
	defer recording.Wait()
	recording.Go(func() { t.keepRecord(ctx) })
	return t.Cluster.Watch(ctx, func(all []*discoveryv1.EndpointSlice) {
		t.update(func() { t.source = copyEndpoints(all) })
		t.changed.Send()
	})
}

// update calls do with mu held, and notifies the hostnames if the addresses have changed.
func (t *Tracker) update(do func()) {
	t.mu.Lock()
	do()
	changed := t.publish()
	var names []string
	if changed {
		names = slices.Collect(maps.Keys(t.hostnames))
	}
	t.mu.Unlock()
	t.Holders.NotifyAll(names)
}

// publish replaces the current snapshot if it differs. mu must be held.
func (t *Tracker) publish() (changed bool) {
	if t.source == nil || !t.read && t.current == nil {
		return false
	}
	next := t.source.only(t.allowed)
	if t.current != nil && equality.Semantic.DeepEqual(t.current.addresses, next) {
		return false
	}
	t.current = &snapshot{next}
	return true
}

// keepRecord records addresses until the context ends.
func (t *Tracker) keepRecord(ctx context.Context) {
	for retry := firstRetry; ctx.Err() == nil; {
		var again <-chan time.Time
		done, err := t.record(ctx)
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			t.Log.V(1).Info("Recording the forwarders that slices list failed; it is retried", "cause", err.Error())
		}
		if done {
			retry = firstRetry
		} else {
			again = time.After(retry)
			retry = min(2*retry, lastRetry)
		}
		select {
		case <-t.changed:
			retry = firstRetry
		case <-again:
		case <-ctx.Done():
		}
	}
}

// record makes the recorded addresses those that slices list or are about to list. It returns
// whether that is achieved.
func (t *Tracker) record(ctx context.Context) (done bool, err error) {
	if err := t.readRecord(ctx); err != nil {
		return false, err
	}
	recorded, wanted, ok := t.state()
	if !ok {
		return true, nil // update wakes the loop
	}
	if all := union(recorded, wanted); len(all) > len(recorded) {
		if err := t.write(ctx, all); err != nil {
			return false, err
		}
		recorded = all
	}
	t.update(func() { t.allowed = wanted })
	excess := without(recorded, wanted)
	if len(excess) == 0 {
		return true, nil
	}
	if t.handedOut(excess) {
		return false, nil
	}
	listed, err := t.Cluster.Listed(ctx)
	if err != nil {
		return false, err
	}
	gone := slices.DeleteFunc(excess, func(a string) bool { _, ok := listed[a]; return ok })
	if len(gone) == 0 {
		return false, nil
	}
	left := without(recorded, gone)
	return len(left) == len(wanted), t.write(ctx, left)
}

// readRecord reads the record at first, and again after a write whose result is not known.
func (t *Tracker) readRecord(ctx context.Context) error {
	t.mu.Lock()
	read := t.read
	t.mu.Unlock()
	if read {
		return nil
	}
	recorded, err := t.Record.RecordedProjectedForwarders(ctx)
	if err != nil {
		return err
	}
	t.update(func() {
		t.read, t.recorded = true, union(recorded, nil)
		if t.current == nil {
			t.allowed = t.recorded // what an earlier manager wrote is in its slices
		}
	})
	return nil
}

// state returns the recorded addresses and those that should be: the ready forwarders' while any
// hostname has slices. ok is false while they are not known.
func (t *Tracker) state() (recorded, wanted []string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hostnames) > 0 {
		wanted = t.source.ready()
	}
	return t.recorded, wanted, t.source != nil
}

// handedOut reports whether an acquired snapshot has one of the addresses as ready.
func (t *Tracker) handedOut(addresses []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.inUse {
		if len(without(addresses, s.addresses.ready())) < len(addresses) {
			return true
		}
	}
	return false
}

// write writes the record.
func (t *Tracker) write(ctx context.Context, addresses []string) error {
	err := t.Record.RecordProjectedForwarders(ctx, addresses)
	t.update(func() {
		t.read = err == nil
		if err == nil {
			t.recorded = addresses
		}
	})
	return err
}
