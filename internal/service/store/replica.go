// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Replica describes one of several servers that are active on one PostgreSQL database. Each writes
// beats. A replica whose beats stop is fenced by another: it cannot write any more, and its
// sessions end.
type Replica struct {
	ID           string    // new at each start of a process, with account.PrefixReplica
	Address      string    // where clients may reach it past the balancer; "" = nowhere
	AddressMAC   string    // authenticates ID and Address; the store does not look at it
	RelayAddress string    // HOST:PORT where it listens for the other replicas; "" = it is dead
	BaseURL      string    // by which clients reach all replicas: the same for each
	Version      string    // version of the program
	Draining     bool      // it is about to stop
	StartedAt    time.Time // as Store.Replicas returns it
}

// fields are where the columns of replicaColumns are scanned to.
func (r *Replica) fields() []any {
	return []any{&r.ID, &r.Address, &r.AddressMAC, &r.RelayAddress, &r.BaseURL, &r.Version, &r.Draining,
		timeField(&r.StartedAt)}
}

const replicaColumns = `id, address, address_mac, relay_address, base_url, version, draining, started_at`

const (
	// modeReplicas is the mode of a store that several servers use.
	modeReplicas = "replicas"
	// beatInterval is the time between two beats of a replica.
	beatInterval = 2 * time.Second
	// beatTimeout is how long the database may take to answer a beat that counts.
	beatTimeout = 2 * time.Second
	// fenceAfter is how long a replica's beats must have been missing, while those of the observer
	// were answered. It is longer than a replica serves without having beaten.
	fenceAfter = 16 * time.Second
)

// ErrFenced means that the other servers took this one for dead. It has to end its sessions and
// join again with another id.
var ErrFenced = errors.New("this server was taken for dead by another one, after its beats were missing")

// BeatTimes are the times of the replicas' protocol: between two beats, for the database's answer to
// one, and until a replica whose beats are missing is fenced.
type BeatTimes struct{ Interval, Timeout, FenceAfter time.Duration }

// join adds the replica to the servers of the store. It is in a write transaction.
func (t *tx) join(r *Replica) error {
	err := t.exec(`INSERT INTO replicas (`+replicaColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		r.ID, r.Address, r.AddressMAC, r.RelayAddress, r.BaseURL, r.Version, r.Draining, micros(t.now))
	if err != nil {
		return err
	}
	return t.exec(`INSERT INTO replica_beats (replica_id, beats) VALUES ($1, 0)`, r.ID)
}

// Leave writes everything that waits for a batch, and ends that this server is one of the
// store's, at the end of its work. It cannot write from then on.
func (s *Store) Leave(ctx context.Context) error {
	if s.opt.Replica == nil {
		return nil
	}
	return errors.Join(s.flush(ctx), s.write(ctx, "leaving the store", func(t *tx) error {
		return t.exec(`DELETE FROM replicas WHERE id = $1`, s.opt.Replica.ID)
	}))
}

// fence ends that a replica can write, unless it has beaten since. The transaction has the turn to
// write, so that no write of the replica is under way.
func (s *Store) fence(ctx context.Context, id string, beats int64) (fenced bool, err error) {
	err = s.write(ctx, "fencing a server", func(t *tx) error {
		fenced = false
		return t.each(func(scanner) error { fenced = true; return nil }, `DELETE FROM replicas
			WHERE id = $1 AND EXISTS (SELECT 1 FROM replica_beats WHERE replica_id = $1 AND beats = $2) RETURNING id`,
			id, beats)
	})
	return fenced, err
}

// Replicas returns the servers of the store that are not fenced and not known to be dead, in the order
// of their start; none where one server is alone by its configuration.
func (s *Store) Replicas(ctx context.Context) (all []Replica, err error) {
	err = s.read(ctx, "listing the servers", func(t *tx) error {
		return t.each(func(from scanner) error {
			var r Replica
			err := from.Scan(r.fields()...)
			all = append(all, r)
			return err
		}, `SELECT `+replicaColumns+` FROM replicas WHERE relay_address <> '' ORDER BY started_at, id`)
	})
	return all, err
}

// SetDraining records that this replica is about to stop.
func (s *Store) SetDraining(ctx context.Context) error {
	if s.opt.Replica == nil {
		return nil
	}
	s.draining.Store(true)
	return s.write(ctx, "recording that the server is about to stop", func(t *tx) error {
		return t.exec(`UPDATE replicas SET draining = 1 WHERE id = $1`, s.opt.Replica.ID)
	})
}

// checkMode refuses a server of one mode on a store of the other. A store of one server becomes one
// of replicas with the first of them. Administration that holds the lock alone is admitted to
// either: all replicas are dead.
func (t *tx) checkMode() error {
	var mode string
	if err := t.row(`SELECT mode FROM store`).Scan(&mode); err != nil {
		return err
	}
	switch {
	case t.s.opt.Replica != nil && mode == "":
		return t.exec(`UPDATE store SET mode = $1`, modeReplicas)
	case t.s.opt.anyMode:
		return t.exec(`DELETE FROM replicas`)
	case t.s.opt.Replica == nil && mode != "":
		return account.Errorf(account.CodeInUse, "the store is used by several servers: start this one with "+
			"--relay-address, too; or stop all servers and run `fairlead-server store single` first")
	}
	return nil
}

// UseOneServer ends that the store is used by several servers, whose sessions end. It refuses while
// one lives. changed is false when it was used by one already.
func UseOneServer(ctx context.Context, opt Options) (changed bool, err error) {
	if opt.Lock, err = LockServer(ctx, opt); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, opt.Lock.Release()) }()
	opt.anyMode = true
	s, err := Open(ctx, opt)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.BeginServerTerm(ctx); err != nil {
		return false, err
	}
	err = s.write(ctx, "changing to one server", func(t *tx) error {
		changed = false
		return t.each(func(scanner) error { changed = true; return nil },
			`UPDATE store SET mode = '' WHERE mode <> '' RETURNING id`)
	})
	return changed, err
}

// Conditions of what has no leg: its servers are no longer there. A server without replicas has no
// legs, and none of its own sessions when it starts.
const (
	sessionLost = `NOT EXISTS (SELECT 1 FROM legs WHERE legs.session_id = tunnel_sessions.id)`
	holderLost  = `session_id NOT IN (SELECT session_id FROM legs)`
)

// endLost ends the sessions of servers that are no longer there; their endpoints go offline.
func (s *Store) endLost(ctx context.Context, reason string) error {
	for more := true; more; {
		err := s.write(ctx, "ending sessions of a lost server", func(t *tx) error {
			rows, err := t.endpointsWhere(`online = 1 AND type = $1 AND `+holderLost+` ORDER BY id LIMIT $2`,
				account.TypeAgent, 5*sweepBatch)
			for _, row := range rows {
				row.setOffline(t.now)
				t.changed(account.Modified, row)
			}
			if more = len(rows) > 0; more || err != nil {
				return err
			}
			if err := t.exec(`DELETE FROM tunnels WHERE ` + holderLost); err != nil {
				return err
			}
			return t.endSessions(account.SessionEnd{Reason: reason}, sessionLost)
		})
		if err != nil {
			return fmt.Errorf("ending the sessions of lost servers: %w", err)
		}
	}
	return nil
}
