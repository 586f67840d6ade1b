// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Wakes are the channels of those who wait for changes under a key. They are safe for concurrent
// use.
type Wakes struct {
	mu   sync.Mutex
	subs map[string]map[chan struct{}]struct{}
}

// Subscribe returns a channel that gets a value after changes under the key, until cancel is
// called.
func (w *Wakes) Subscribe(key string) (wake <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = map[string]map[chan struct{}]struct{}{}
	}
	if w.subs[key] == nil {
		w.subs[key] = map[chan struct{}]struct{}{}
	}
	w.subs[key][ch] = struct{}{}
	return ch, func() { w.unsubscribe(key, ch) }
}

func (w *Wakes) unsubscribe(key string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs[key], ch)
	if len(w.subs[key]) == 0 {
		delete(w.subs, key)
	}
}

// WakeAll wakes all who wait.
func (w *Wakes) WakeAll() {
	for _, key := range w.Keys() {
		w.Wake(key)
	}
}

// Keys returns the keys under which changes are waited for.
func (w *Wakes) Keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.subs))
}

// Wake wakes those who wait for changes under the key.
func (w *Wakes) Wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.subs[key] {
		select {
		case ch <- struct{}{}:
		default: // it is awake already
		}
	}
}

// Announce tells other processes of changes under the keys by this transaction, which was
// committed.
func (t Tx) Announce(keys []string) { t.db.engine.announce(t.ctx, t.db, keys) }

// Listener looks for changes that other processes make.
type Listener interface {
	// Wake is called with the key of a change that another process has announced.
	Wake(key string)
	// Poll looks for changes that were not announced.
	Poll(ctx context.Context)
}

// Listen tells the listener of announcements, and to poll every so often, until ctx is done. SQLite
// has no announcements.
func (db *DB) Listen(ctx context.Context, every time.Duration, l Listener) {
	db.engine.listen(ctx, db, every, l)
}

// NotificationLag returns how long the database took to notify of this server's last change, from
// its commit on; 0 before the first one, and where one server is alone.
func (db *DB) NotificationLag() time.Duration { return time.Duration(db.notificationLag.Load()) }

// outbox holds the keys of committed changes until other processes have been notified. It is
// safe for concurrent use.
type outbox struct {
	mu        sync.Mutex
	listening bool
	pending   map[string]struct{}
	since     time.Time          // since is the time of the oldest pending change.
	interrupt context.CancelFunc // interrupt ends the listener's wait; nil while it does not wait.
}

// add adds the keys, and reports whether a listener will send them.
func (o *outbox) add(keys []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.listening {
		return false
	}
	if len(o.pending) == 0 {
		o.since = time.Now()
	}
	for _, key := range keys {
		o.pending[key] = struct{}{}
	}
	if o.interrupt != nil {
		o.interrupt()
	}
	return true
}

// setListening begins or ends that a listener sends. What is pending at the end is found by polls.
func (o *outbox) setListening(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listening, o.pending = on, map[string]struct{}{}
}

// setInterrupt sets what interrupts the listener's wait, and reports whether something is pending.
func (o *outbox) setInterrupt(interrupt context.CancelFunc) (pending bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.interrupt = interrupt
	return len(o.pending) > 0
}

// drain removes and returns the pending keys, with the time of the oldest change.
func (o *outbox) drain() ([]string, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Collect(maps.Keys(o.pending))
	clear(o.pending)
	return all, o.since
}
