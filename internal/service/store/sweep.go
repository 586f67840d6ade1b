// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	s.operatorsDue.Store(micros(s.now().Add(operatorSweep)))
	s.clustersDue.Store(micros(s.now().Add(clusterSweep)))
	if err := s.endLost(ctx, "the server was restarted"); err != nil {
		return err
	}
	return s.write(ctx, "starting the server", func(t *tx) error {
		if err := t.Exec(`UPDATE store SET own_hosts = $1 WHERE own_hosts <> $1`,
			strings.Join(s.opt.OwnHosts, " ")); err != nil {
			return err
		}
		if alone, err := t.alone(); err != nil || !alone {
			return err
		}
		return t.Exec(`UPDATE endpoints SET grace_from = $1 WHERE online = 0`, micros(t.now))
	})
}

// alone reports whether there is no other replica.
func (t *tx) alone() (bool, error) {
	if t.s.opt.Replica == nil {
		return true, nil
	}
	others, err := t.Exists(`SELECT 1 FROM replicas WHERE id <> $1`, t.s.opt.Replica.ID)
	return !others, err
}

// Sweep deletes expired rows: endpoints whose grace has ended are deleted, old events compacted,
// expired reservations and sessions dropped, last-used times written. The server calls it every
// second or so; without anything to do it only reads. Of several replicas one does it for all.
func (s *Store) Sweep(ctx context.Context) error {
	if s.opt.Replica != nil && !s.sweeper.Load() {
		return errors.Join(s.flushLastUsedIfDue(ctx), s.flushUses(ctx, false))
	}
	return errors.Join(s.sweepLost(ctx), s.sweepGrace(ctx), s.sweepOwned(ctx), s.sweepClusters(ctx),
		s.sweepEvents(ctx), s.auditRetention.sweep(ctx, s), s.sweepReservations(ctx), s.flushLastUsedIfDue(ctx),
		s.sweepSessions(ctx), s.sweepUsers(ctx), s.sweepOperators(ctx))
}

// sweepLost ends the sessions of replicas that have left, or were fenced by one that has ended
// since.
func (s *Store) sweepLost(ctx context.Context) error {
	if s.opt.Replica == nil {
		return nil
	}
	some, err := s.exists(ctx, `SELECT 1 FROM tunnel_sessions WHERE `+sessionLost+` LIMIT 1`)
	if err != nil || !some {
		return err
	}
	return s.endLost(ctx, "its server was lost")
}

// sweepGrace deletes the endpoints of agents whose grace has ended.
func (s *Store) sweepGrace(ctx context.Context) error {
	return s.deleteExpired(ctx, `online = 0 AND owner_cluster = '' AND grace_from <= $1 AND type = $2`)
}

// sweepOwned does the same for endpoints with an owner. Their grace is OwnedGrace, but Grace beside
// another one of the owner that has been online for as long.
func (s *Store) sweepOwned(ctx context.Context) error {
	now := s.now()
	if micros(now) < s.ownedDue.Load() {
		return nil
	}
	s.ownedDue.Store(micros(now.Add(ownedSweep)))
	return s.deleteExpired(ctx, `online = 0 AND owner_cluster <> '' AND grace_from <= $1 AND type = $2
		AND (grace_from <= $3 OR EXISTS (SELECT 1 FROM endpoints AS o
			WHERE o.account_id = endpoints.account_id AND o.binding = endpoints.binding AND o.host = endpoints.host
			AND o.port = endpoints.port AND o.owner_cluster = endpoints.owner_cluster
			AND o.owner_object = endpoints.owner_object AND o.online = 1 AND o.online_since <= $1))`,
		micros(now.Add(-s.opt.OwnedGrace)))
}

// deleteExpired deletes the endpoints that the condition selects; $1 is the time before Grace, $2
// the type of agents' endpoints.
func (s *Store) deleteExpired(ctx context.Context, condition string, more ...any) error {
	args := append([]any{micros(s.now().Add(-s.opt.Grace)), account.TypeAgent}, more...)
	return s.deleteEndpoints(ctx, "deleting endpoints after their grace", condition, `grace_from, id`, args...)
}

// deleteEndpoints deletes the endpoints that the condition selects, in batches.
func (s *Store) deleteEndpoints(ctx context.Context, doing, condition, order string, args ...any) error {
	for {
		some, err := s.exists(ctx, `SELECT 1 FROM endpoints WHERE `+condition+` LIMIT 1`, args...)
		if err != nil || !some {
			return err
		}
		err = s.write(ctx, doing, func(t *tx) error {
			rows, err := t.endpointsWhere(condition+fmt.Sprintf(` ORDER BY %s LIMIT %d`, order, sweepBatch), args...)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if err := t.deleteEndpoint(row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (s *Store) sweepEvents(ctx context.Context) error {
	before := micros(s.now().Add(-s.opt.EventRetention))
	for {
		some, err := s.exists(ctx, `SELECT 1 FROM events WHERE at <= $1 LIMIT 1`, before)
		if err != nil || !some {
			return err
		}
		if err := s.write(ctx, "compacting events", func(t *tx) error { return t.compact(before) }); err != nil {
			return err
		}
	}
}

// compact removes a batch of one account's oldest events. What stays is a whole tail of the log,
// whatever the clock did.
func (t *tx) compact(before int64) error {
	var accountID string
	var last, first int64
	err := t.Row(`SELECT account_id, MAX(seq) FROM events WHERE at <= $1 GROUP BY account_id LIMIT 1`, before).
		Scan(&accountID, &last)
	if err != nil {
		return err
	}
	if err := t.Row(`SELECT MIN(seq) FROM events WHERE account_id = $1`, accountID).Scan(&first); err != nil {
		return err
	}
	last = min(last, first+50*sweepBatch)
	if err := t.Exec(`DELETE FROM events WHERE account_id = $1 AND seq <= $2`, accountID, last); err != nil {
		return err
	}
	return t.Exec(`UPDATE accounts SET compacted_seq = $1 WHERE id = $2`, last, accountID)
}

func (s *Store) sweepReservations(ctx context.Context) error {
	now := micros(s.now())
	some, err := s.exists(ctx, `SELECT 1 WHERE EXISTS (SELECT 1 FROM slot_reservations WHERE expires_at <= $1)
		OR EXISTS (SELECT 1 FROM hostnames WHERE expires_at BETWEEN 1 AND $1)`, now)
	if err != nil || !some {
		return err
	}
	return s.write(ctx, "dropping reservations", func(t *tx) error {
		if err := t.Exec(`DELETE FROM slot_reservations WHERE expires_at <= $1`, now); err != nil {
			return err
		}
		return t.Exec(`DELETE FROM hostnames WHERE expires_at BETWEEN 1 AND $1`, now)
	})
}

func (s *Store) exists(ctx context.Context, query string, args ...any) (bool, error) {
	return result(ctx, s, "looking for something to sweep", func(t *tx) (bool, error) {
		return t.Exists(query, args...)
	})
}
