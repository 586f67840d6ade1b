// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
)

// sweepBatch bounds how long one transaction of Sweep keeps the writer.
const sweepBatch = 100

// BeginServerTerm is called once by the server that holds Options.Lock, before it accepts anything:
// no session of an earlier process lives on, so their endpoints go offline, and unless another
// replica serves, the grace of every offline endpoint begins anew. An outage of any length deletes
// nothing. From then on no earlier server can write, even if it did not notice that it lost its
// lock.
func (s *Store) BeginServerTerm(ctx context.Context) error {
	if err := s.beginTerm(ctx); err != nil {
		return err
	}
	s.Operators.due.Store(micros(s.db.now().Add(operatorSweep)))
	s.clusterIDs.due.Store(micros(s.db.now().Add(clusterSweep)))
	if err := s.endLost(ctx, "the server was restarted"); err != nil {
		return err
	}
	return s.db.write(ctx, "starting the server", func(t *tx) error {
		if err := t.Exec(`UPDATE store SET own_hosts = $1 WHERE own_hosts <> $1`,
			strings.Join(s.ownHosts, " ")); err != nil {
			return err
		}
		if alone, err := s.alone(t); err != nil || !alone {
			return err
		}
		return t.Exec(`UPDATE endpoints SET grace_from = $1 WHERE online = 0`, micros(t.now))
	})
}

// Sweep deletes expired rows: endpoints whose grace has ended are deleted, old events compacted,
// expired reservations and sessions dropped, last-used times written. The server calls it every
// second or so; without anything to do it only reads. Of several replicas one does it for all.
func (s *Store) Sweep(ctx context.Context) error {
	if s.replica != nil && !s.sweeper.Load() {
		return errors.Join(s.lastUsed.flush(ctx, false), s.UserSessions.flush(ctx, false))
	}
	return errors.Join(s.sweepLost(ctx), s.sweepGrace(ctx), s.sweepOwned(ctx), s.clusterIDs.sweep(ctx),
		s.EventLog.sweep(ctx), s.AuditLog.sweep(ctx), s.sweepReservations(ctx), s.lastUsed.flush(ctx, false),
		s.Logins.sweep(ctx), s.People.sweep(ctx), s.Operators.sweep(ctx))
}
