// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package membership has the servers that use one store: it admits a server, keeps a replica alive by
// beats, fences others whose beats have stopped, and tells all servers of what a command has changed.
//
// What comes in: the start and the end of a server, its beats, and changes of accounts by commands.
// Whom it hands over to: the rows of replicas, beats and changes in the database, by transactions of
// internal/service/store, which it asks to end the sessions of the servers that it fenced.
package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
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
		sqldb.TimeField(&r.StartedAt)}
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

// Writer runs the transactions that write to the store.
type Writer interface {
	// Write runs fn in a transaction of its own, which fails with ErrFenced on a replica without a row.
	Write(ctx context.Context, doing string, fn func(sqldb.Tx) error) error
	// WriteUnlisted is Write for a replica whose row is missing. Its errors are the driver's.
	WriteUnlisted(ctx context.Context, fn func(sqldb.Tx) error) error
	// Now returns the time in the precision that the database has.
	Now() time.Time
}

// Sessions ends the sessions of servers that are no longer there.
type Sessions interface {
	EndLost(ctx context.Context, reason string) error
}

// Options say which server of the store this one is.
type Options struct {
	Replica *Replica          // Replica is nil for the only server, and for a command.
	Lock    *sqldb.ServerLock // Lock is the server's, nil for a command.
	Times   BeatTimes
	Lease   *lease.Lease // Lease has the clock of the beats; nil = that of the system.
	AnyMode bool         // AnyMode admits a server that is alone to a store of replicas.
}

// Members are the servers of the store, and what they do to be or become one of them.
type Members struct {
	db          *sqldb.DB
	writer      Writer
	sessions    Sessions
	opt         Options
	clockOffset atomic.Int64 // clockOffset is in nanoseconds.
	draining    atomic.Bool  // draining is set once SetDraining was called.
	sweeper     atomic.Bool  // sweeper is set while this replica sweeps for all.
}

// New returns the servers of the store in a database.
func New(db *sqldb.DB, w Writer, s Sessions, opt Options) *Members {
	if opt.Times == (BeatTimes{}) {
		opt.Times = BeatTimes{beatInterval, beatTimeout, fenceAfter}
	}
	return &Members{db: db, writer: w, sessions: s, opt: opt}
}

// ownID returns the id of this replica, "" where one server is alone.
func (m *Members) ownID() string {
	if m.opt.Replica == nil {
		return ""
	}
	return m.opt.Replica.ID
}

// join adds the replica to the servers of the store. It is in a write transaction.
func (m *Members) join(t sqldb.Tx, r *Replica) error {
	err := t.Exec(`INSERT INTO replicas (`+replicaColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		r.ID, r.Address, r.AddressMAC, r.RelayAddress, r.BaseURL, r.Version, r.Draining, sqldb.Micros(m.writer.Now()))
	if err != nil {
		return err
	}
	return t.Exec(`INSERT INTO replica_beats (replica_id, beats) VALUES ($1, 0)`, r.ID)
}

// Leave ends that this replica is one of the store's servers. It cannot write from then on.
func (m *Members) Leave(ctx context.Context) error {
	return m.writer.Write(ctx, "leaving the store", func(t sqldb.Tx) error {
		return t.Exec(`DELETE FROM replicas WHERE id = $1`, m.ownID())
	})
}

// fence ends that a replica can write, unless it has beaten since. The transaction has the turn to
// write, so that no write of the replica is under way.
func (m *Members) fence(ctx context.Context, id string, beats int64) (fenced bool, err error) {
	err = m.writer.Write(ctx, "fencing a server", func(t sqldb.Tx) (err error) {
		fenced, err = t.Exists(`DELETE FROM replicas
			WHERE id = $1 AND EXISTS (SELECT 1 FROM replica_beats WHERE replica_id = $1 AND beats = $2) RETURNING id`,
			id, beats)
		return err
	})
	return fenced, err
}

// Replicas returns the servers of the store that are not fenced and not known to be dead, in the order
// of their start; none where one server is alone by its configuration.
func (m *Members) Replicas(ctx context.Context) (all []Replica, err error) {
	err = m.db.Read(ctx, "listing the servers", func(t sqldb.Tx) (err error) {
		all, err = sqldb.List(t, (*Replica).fields, `SELECT `+replicaColumns+` FROM replicas
			WHERE relay_address <> '' ORDER BY started_at, id`)
		return err
	})
	return all, err
}

// SetDraining records that this replica is about to stop.
func (m *Members) SetDraining(ctx context.Context) error {
	if m.opt.Replica == nil {
		return nil
	}
	m.draining.Store(true)
	return m.writer.Write(ctx, "recording that the server is about to stop", func(t sqldb.Tx) error {
		return t.Exec(`UPDATE replicas SET draining = 1 WHERE id = $1`, m.opt.Replica.ID)
	})
}

// checkMode refuses a server of one mode on a store of the other. A store of one server becomes one
// of replicas with the first of them. Administration that holds the lock alone is admitted to
// either: all replicas are dead.
func (m *Members) checkMode(t sqldb.Tx) error {
	var mode string
	if err := t.Row(`SELECT mode FROM store`).Scan(&mode); err != nil {
		return err
	}
	switch {
	case m.opt.Replica != nil && mode == "":
		return t.Exec(`UPDATE store SET mode = $1`, modeReplicas)
	case m.opt.AnyMode:
		return t.Exec(`DELETE FROM replicas`)
	case m.opt.Replica == nil && mode != "":
		return account.Errorf(account.CodeInUse, "the store is used by several servers: start this one with "+
			"--relay-address, too; or stop all servers and run `fairlead-server store single` first")
	}
	return nil
}

// MaxClockOffset is how far the clock of a replica may be from the database's when it joins.
const MaxClockOffset = time.Second

// BeginTerm takes the next term, or joins the replicas: the first of them takes a term, too, so
// that a server that was alone cannot write. joined reports that this server is a replica now.
func (m *Members) BeginTerm(ctx context.Context) (joined bool, err error) {
	if !m.opt.Lock.HasTerms() {
		return false, nil
	}
	var term int64
	err = m.writer.Write(ctx, "taking the store over", func(t sqldb.Tx) error {
		err := m.checkMode(t)
		if err == nil && m.opt.Replica != nil {
			err = m.joinOthers(t, m.opt.Replica)
		}
		if err == nil {
			term, err = t.NextTerm()
		}
		return err
	})
	if err == nil && m.opt.Replica == nil {
		m.opt.Lock.BeginTerm(term)
	}
	return err == nil && m.opt.Replica != nil, err
}

// joinOthers adds the replica to those that it may join.
func (m *Members) joinOthers(t sqldb.Tx, r *Replica) error {
	if err := m.checkClock(t); err != nil {
		return err
	}
	if err := m.markPredecessors(t, r.RelayAddress); err != nil {
		return err
	}
	if err := m.checkBaseURL(t, r.BaseURL); err != nil {
		return err
	}
	return m.join(t, r)
}

// checkClock refuses a clock that is too far from the database's: replicas compare times that
// others wrote with their own.
func (m *Members) checkClock(t sqldb.Tx) error {
	before := m.writer.Now()
	database, err := t.Time()
	if err != nil {
		return err
	}
	offset, direction := clockOffset(before, m.writer.Now(), database), "ahead of"
	if offset < 0 {
		offset, direction = -offset, "behind"
	}
	if offset <= MaxClockOffset {
		return nil
	}
	return account.Errorf(account.CodeUnavailable,
		"this machine's clock is %s %s the database's, and replicas need clocks within %s of it: set both by NTP, "+
			"then start the server again", offset.Round(time.Millisecond), direction, MaxClockOffset)
}

// clockOffset returns how far this machine's clock is ahead of the database's, negative when it is
// behind, by a question that was asked and answered at these times of the machine. It is the least
// that they prove.
func clockOffset(asked, answered, database time.Time) time.Duration {
	switch {
	case asked.After(database):
		return asked.Sub(database)
	case answered.Before(database):
		return answered.Sub(database)
	}
	return 0
}

// ClockOffset returns how far a replica's clock was ahead of the database's at its last beat, negative
// when it was behind.
func (m *Members) ClockOffset() time.Duration { return time.Duration(m.clockOffset.Load()) }

// markPredecessors records of earlier processes at the relay address of this one, which listens
// there, that they do not, if they have no connection with the database any more: they are dead.
// Only IP addresses prove it: several machines may share a name. Their sessions are left to the
// beats, as the agents may have joined other replicas.
func (m *Members) markPredecessors(t sqldb.Tx, relayAddress string) error {
	if _, err := netip.ParseAddrPort(relayAddress); err != nil {
		return nil //nolint:nilerr // a name, or none
	}
	return t.Exec(`UPDATE replicas SET relay_address = '' WHERE relay_address = $1
		AND pg_try_advisory_xact_lock($2, hashtext('replica ' || id))`, relayAddress, sqldb.AdvisoryKey)
}

// checkBaseURL refuses another base URL than that of the live replicas: clients reach all by one.
// Rows of replicas that died are removed when none is left.
func (m *Members) checkBaseURL(t sqldb.Tx, baseURL string) error {
	var id, theirs string
	differs, err := t.Row(`SELECT id, base_url FROM replicas WHERE base_url <> $1 ORDER BY started_at, id LIMIT 1`,
		baseURL).Find(&id, &theirs)
	if err != nil || !differs {
		return err
	}
	live, err := t.OtherServers()
	if err != nil {
		return err
	}
	if live > 0 {
		return account.Invalid("--base-url", baseURL, fmt.Sprintf("is not %q, that of the live server %s; give all "+
			"servers of the database the same, or stop the others first (one that was cut off counts for half a "+
			"minute)", theirs, id))
	}
	return t.Exec(`DELETE FROM replicas`)
}

// Sweeps reports whether this server deletes expired rows: one does it for all.
func (m *Members) Sweeps() bool { return m.opt.Replica == nil || m.sweeper.Load() }

// Alone reports whether there is no other replica.
func (m *Members) Alone(t sqldb.Tx) (bool, error) {
	if m.opt.Replica == nil {
		return true, nil
	}
	others, err := t.Exists(`SELECT 1 FROM replicas WHERE id <> $1`, m.opt.Replica.ID)
	return !others, err
}
