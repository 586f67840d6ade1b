// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"
)

// defaultPollInterval is how often a listening store looks for changes of which it was not
// notified.
const defaultPollInterval = time.Second

// Listen wakes the waiters for an account's changes when another process makes them, such as a
// command of fairlead-server, until ctx is done. PostgreSQL notifies; what a notification misses,
// and all changes with SQLite, are found within a second.
func (s *Store) Listen(ctx context.Context) { s.db.Listen(ctx, s.pollInterval, &poller{s: s}) }

// poller finds changes by the version numbers of the accounts that are waited for. It implements
// sqldb.Listener.
type poller struct {
	s     *Store
	known map[string][2]int64 // by account: the numbers of endpoints' and of audit events
}

// Wake wakes those who wait for changes of the account.
func (p *poller) Wake(accountID string) {
	p.s.wakes.Wake(accountID)
	p.s.auditWakes.Wake(accountID)
}

// Poll wakes the waiting whose account has other numbers than before. The store's failures are
// reported by those who read it.
func (p *poller) Poll(ctx context.Context) {
	waited := append(p.s.wakes.Keys(), p.s.auditWakes.Keys()...)
	slices.Sort(waited)
	found, epoch := map[string][2]int64{}, p.s.epoch.Load()
	if len(waited) > 0 {
		err := p.s.read(ctx, "looking for changes", func(t *tx) error {
			return t.EachIn(slices.Compact(waited), 1, func(from scanner) error {
				var id string
				var numbers [2]int64
				err := from.Scan(&id, &numbers[0], &numbers[1], &epoch)
				found[id] = numbers
				return err
			}, `SELECT a.id, a.seq, a.audit_seq, s.epoch FROM accounts AS a, store AS s
				WHERE s.id = $1 AND a.id IN IDS`)
		})
		if err != nil {
			return
		}
		p.s.recordEpoch(epoch)
	}
	for accountID, now := range found {
		before, ok := p.known[accountID]
		if !ok || before[0] != now[0] {
			p.s.wakes.Wake(accountID)
		}
		if !ok || before[1] != now[1] {
			p.s.auditWakes.Wake(accountID)
		}
	}
	p.known = found
}

// Subscribe implements account.EventLog.
func (s *Store) Subscribe(accountID string) (wake <-chan struct{}, cancel func()) {
	return s.wakes.Subscribe(accountID)
}
