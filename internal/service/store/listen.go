// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// defaultPollInterval is how often a listening store looks for changes of which it was not
// notified.
const defaultPollInterval = time.Second

// Listen wakes the waiters for an account's changes when another process makes them, such as a
// command of fairlead-server, until ctx is done. PostgreSQL notifies; what a notification misses,
// and all changes with SQLite, are found within a second.
func (s *Store) Listen(ctx context.Context) { s.engine.listen(ctx, s) }

// poller finds changes by the version numbers of the accounts that are waited for.
type poller struct {
	s     *Store
	known map[string][2]int64 // by account: the numbers of endpoints' and of audit events
}

// run polls until ctx is done.
func (p *poller) run(ctx context.Context) {
	for timer.Sleep(ctx, p.s.pollInterval) {
		p.poll(ctx)
	}
}

// poll wakes the waiting whose account has other numbers than before. The store's failures are
// reported by those who read it.
func (p *poller) poll(ctx context.Context) {
	waited := append(p.s.wakes.accounts(), p.s.auditWakes.accounts()...)
	slices.Sort(waited)
	found := map[string][2]int64{}
	for ids := range slices.Chunk(slices.Compact(waited), 5*sweepBatch) {
		if err := p.read(ctx, ids, found); err != nil {
			return
		}
	}
	for accountID, now := range found {
		before, ok := p.known[accountID]
		if !ok || before[0] != now[0] {
			p.s.wakes.wake(accountID)
		}
		if !ok || before[1] != now[1] {
			p.s.auditWakes.wake(accountID)
		}
	}
	p.known = found
}

func (p *poller) read(ctx context.Context, ids []string, found map[string][2]int64) error {
	places, args := make([]string, len(ids)), make([]any, len(ids))
	for i, id := range ids {
		places[i], args[i] = fmt.Sprintf("$%d", i+1), id
	}
	epoch := p.s.epoch.Load()
	err := p.s.read(ctx, "looking for changes", func(t *tx) error {
		return t.each(func(from scanner) error {
			var id string
			var numbers [2]int64
			err := from.Scan(&id, &numbers[0], &numbers[1], &epoch)
			found[id] = numbers
			return err
		}, `SELECT a.id, a.seq, a.audit_seq, s.epoch FROM accounts AS a, store AS s
			WHERE a.id IN (`+strings.Join(places, ", ")+`)`, args...)
	})
	if err == nil {
		p.s.recordEpoch(epoch)
	}
	return err
}

// outbox holds the accounts of committed changes until other processes have been notified. It is
// safe for concurrent use.
type outbox struct {
	mu        sync.Mutex
	listening bool
	pending   map[string]struct{}
	since     time.Time          // time of the oldest pending change
	interrupt context.CancelFunc // ends the listener's wait; nil while it does not wait
}

// add adds the accounts, and reports whether a listener will send them.
func (o *outbox) add(accountIDs []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.listening {
		return false
	}
	if len(o.pending) == 0 {
		o.since = time.Now()
	}
	for _, id := range accountIDs {
		o.pending[id] = struct{}{}
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

// drain removes and returns the pending accounts, with the time of the oldest change.
func (o *outbox) drain() ([]string, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Collect(maps.Keys(o.pending))
	clear(o.pending)
	return all, o.since
}
