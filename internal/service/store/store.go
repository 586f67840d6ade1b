// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store owns the service's data: accounts, API keys, authtokens, tunnel sessions, endpoints
// and the reservations of their identities, operators, and the sequenced log of changes that
// watches read.
//
// What comes in: calls of the interfaces of internal/account by internal/service/tunnelserver,
// internal/service/apiserver, internal/service/login and internal/edge, and the
// administration by the commands of fairlead-server, which may run in another process at the same
// time. Whom it hands over to: a database of internal/service/sqldb. One method is one transaction,
// or shares one with others that wait for the turn to write at the same time; the event of a change
// is written in the transaction of the change, and those who wait are woken after its commit.
//
// Each noun has a type with its reads, and its writes in a given transaction: tx. What spans nouns
// (Binds, CloudEndpoints, Revocations, a restore) is built from the nouns. Store is all of them.
//
// One SQL text serves both engines. So a statement has $1, $2, … and each has one type wherever it
// stands; times and booleans are integers (online = 1, never online alone); ids are compared and
// sorted as bytes; rows have an order only by ORDER BY; ON CONFLICT … DO UPDATE, RETURNING,
// COALESCE and CASE are there, and whatever one engine has alone is not (INSERT OR, IFNULL, GLOB,
// rowid, json functions, arrays, = ANY, now()). An order by id over a few rows of an account wants
// an index that ends in id: SQLite would rather walk all ids of the account than sort. Write
// transactions run one after the other, so what one has read stays so until its end.
package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
)

// Times and limits that Options may override.
const (
	DefaultGrace          = 10 * time.Minute
	DefaultOwnedGrace     = 7 * 24 * time.Hour
	DefaultReserve        = 7 * 24 * time.Hour
	DefaultEventRetention = 24 * time.Hour
	DefaultAuditRetention = 90 * 24 * time.Hour
	DefaultMaxAuditEvents = 100_000
	DefaultKeepOperators  = 30 * 24 * time.Hour

	// operatorSweep is how often vanished operators are looked for, and so how long operators may
	// take to register again after a server's start.
	operatorSweep = time.Hour
	// ownedSweep is how often endpoints with an owner are looked for whose grace has ended: a
	// cluster that is gone may leave thousands, which are compared each time.
	ownedSweep = 10 * time.Second
)

// Options open a Store. Zero values mean the defaults.
type Options struct {
	DataDir string // created with mode 0700 when missing; its files get 0600
	// PostgreSQL database; "" = SQLite in DataDir. It may hold a password: never log it
	DatabaseURL string
	// the server's lock: writes are refused while it is lost; nil for commands, which need none
	Lock *sqldb.ServerLock
	// makes the server one of several on DatabaseURL; nil: it is the only one, or a command
	Replica   *membership.Replica
	Lease     *lease.Lease         // Lease has the clock of a replica's beats; nil = that of the system.
	BeatTimes membership.BeatTimes // for a replica; tests shorten them
	Clock     func() time.Time     // nil = time.Now, and the database's clock for revocations
	// hosts of the service's own URLs, in lower case: no endpoint with the public binding has them
	OwnHosts []string
	// seals traffic policies and identities; nil for commands that have nothing to do with them
	Key      *seal.Key
	Observer sqldb.Observer // Observer is told of each transaction; nil = none.
	Limits
	Retention

	anyMode bool // allows BeginServerTerm in any mode, to administer a stopped store
}

// Limits bound the rows of an account.
type Limits struct {
	MaxEndpoints, MaxBackends, MaxOperators, MaxClusters, MaxAPIKeys, MaxAuthtokens int

	MaxAuditEvents  int // MaxAuditEvents is for each class (AuditLog.sweep); the oldest go first.
	MaxUsers        int // MaxUsers bounds the application users.
	MaxUserSessions int // MaxUserSessions is for each user.
}

// Retention is how long rows are kept that are no longer used.
type Retention struct {
	Grace          time.Duration // Grace is for the row of a lost endpoint.
	OwnedGrace     time.Duration // OwnedGrace is Grace for the last endpoint of an owner.
	Reserve        time.Duration // Reserve is for the ids of a deleted endpoint and of its hostname.
	EventRetention time.Duration
	AuditRetention time.Duration
	KeepUsers      time.Duration // KeepUsers is from the last activity of an application user; 0 = for ever.
	KeepOperators  time.Duration // KeepOperators is from when an operator was last seen; 0 = for ever.
}

func (o *Options) setDefaults() {
	setDefault(&o.Grace, DefaultGrace)
	setDefault(&o.OwnedGrace, DefaultOwnedGrace)
	setDefault(&o.Reserve, DefaultReserve)
	setDefault(&o.EventRetention, DefaultEventRetention)
	setDefault(&o.AuditRetention, DefaultAuditRetention)
	setDefault(&o.MaxAuditEvents, DefaultMaxAuditEvents)
	setDefault(&o.MaxEndpoints, account.DefaultMaxEndpoints)
	setDefault(&o.MaxOperators, account.DefaultMaxOperators)
	setDefault(&o.MaxAPIKeys, account.DefaultMaxAPIKeys)
	setDefault(&o.MaxAuthtokens, account.DefaultMaxAuthtokens)
	setDefault(&o.MaxClusters, account.DefaultMaxClusters)
	setDefault(&o.MaxBackends, account.MaxBackends)
	setDefault(&o.MaxUsers, account.DefaultMaxUsers)
	setDefault(&o.MaxUserSessions, account.MaxUserSessions)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Store implements the interfaces of internal/account on a database, by one type for each kind of
// object. Its methods, and theirs, may be called from many goroutines.
type Store struct {
	*Accounts
	*ACME
	*AuditLog
	*Backends
	*Binds
	*CloudEndpoints
	*Clusters
	*Credentials
	*Domains
	*Endpoints
	*EventLog
	*Logins
	*membership.Members
	*Operators
	*People
	*Revocations
	*Secrets
	*SignIns
	*TunnelSessions
	*UserSessions
	clusterIDs   *ClusterIDs
	lastUsed     *lastUsedTimes
	db           *database
	probe        probe
	pollInterval time.Duration // pollInterval is how often Listen polls.
}

// LockServer makes the caller the only active server of the data directory, and of opt.DatabaseURL,
// until Release is called or the process ends. A second server gets an error with the reason. With
// opt.Replica it makes the caller one of the replicas of opt.DatabaseURL.
// Commands that administer the store while a server runs need no lock.
func LockServer(ctx context.Context, opt Options) (*sqldb.ServerLock, error) {
	member := ""
	if opt.Replica != nil {
		member = "replica " + opt.Replica.ID
	}
	return sqldb.LockServer(ctx, opt.DataDir, opt.DatabaseURL, member)
}

// Open opens the store at opt.DatabaseURL, or in opt.DataDir, and makes an empty one when there is
// none. Its errors are complete sentences: the place cannot be used, the database is of a newer
// version, it is no database of ours. Any number of processes may have a store open; LockServer keeps
// a second server away, unless both are replicas.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.setDefaults()
	db := &database{opt: opt}
	if opt.Replica != nil {
		db.replicaID = opt.Replica.ID
	}
	if err := db.open(ctx, opt); err != nil {
		return nil, err
	}
	return newStore(db, &opt), nil
}

// newStore makes the types of the store's objects, each with what it needs of the others and of the
// options.
func newStore(db *database, opt *Options) *Store {
	s := &Store{db: db, pollInterval: defaultPollInterval, Accounts: &Accounts{db}, lastUsed: &lastUsedTimes{db: db},
		AuditLog: &AuditLog{db: db, age: opt.AuditRetention, most: int64(opt.MaxAuditEvents)},
		EventLog: &EventLog{db, opt.EventRetention}, probe: probe{lock: opt.Lock}}
	s.SignIns = &SignIns{db, s.lastUsed}
	s.Operators = &Operators{db: db, uses: s.lastUsed, max: opt.MaxOperators, keep: opt.KeepOperators}
	s.Clusters = &Clusters{db, s.Accounts, s.lastUsed, opt.MaxClusters}
	s.Credentials = &Credentials{db, s.Accounts, s.Clusters, s.lastUsed, opt.MaxAPIKeys, opt.MaxAuthtokens}
	s.Backends = &Backends{db, s.Accounts, opt.MaxBackends}
	s.Endpoints = &Endpoints{db: db, key: opt.Key, backends: s.Backends, max: opt.MaxEndpoints, grace: opt.Grace,
		ownedGrace: opt.OwnedGrace, reserve: opt.Reserve}
	s.Secrets = &Secrets{db, opt.Key, s.Endpoints}
	s.Domains = &Domains{db, s.Accounts, s.Endpoints, opt.OwnHosts}
	s.ACME = &ACME{db, opt.Key, s.Domains}
	s.clusterIDs = &ClusterIDs{db: db, endpoints: s.Endpoints, uses: s.lastUsed, grace: opt.OwnedGrace}
	s.CloudEndpoints = &CloudEndpoints{db, s.Accounts, s.Endpoints, s.Domains, s.clusterIDs}
	s.Binds = &Binds{db, s.Endpoints, s.Domains, s.clusterIDs}
	s.TunnelSessions = &TunnelSessions{db, s.Endpoints, opt.MaxEndpoints}
	s.Members = membership.New(db.DB, db, s.TunnelSessions, membership.Options{Replica: opt.Replica, Lock: opt.Lock,
		Times: opt.BeatTimes, Lease: opt.Lease, AnyMode: opt.anyMode})
	s.UserSessions = &UserSessions{db: db, key: opt.Key}
	s.People = &People{db}
	s.Logins = &Logins{db, opt.Key, s.UserSessions, opt.MaxUsers, opt.MaxUserSessions}
	s.Revocations = &Revocations{db, s.Logins, opt.KeepUsers}
	return s
}

// Close writes everything that waits for a batch, unless this server has left the store or was
// fenced, and closes the database.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.flush(ctx)
	if errors.Is(err, membership.ErrFenced) {
		err = nil
	}
	return errors.Join(err, s.db.Close())
}

// Leave writes everything that waits for a batch, and ends that this server is one of the store's,
// at the end of its work. It cannot write from then on.
func (s *Store) Leave(ctx context.Context) error {
	if s.db.replicaID == "" {
		return nil
	}
	return errors.Join(s.flush(ctx), s.Members.Leave(ctx))
}

// flush writes everything that waits for a batch.
func (s *Store) flush(ctx context.Context) error {
	return errors.Join(s.lastUsed.flush(ctx, true), s.UserSessions.flush(ctx, true))
}

// Database returns what the store is in.
func (s *Store) Database() *sqldb.DB { return s.db.DB }

// DisplayName returns where the data is, for messages: a file, or the URL of a database without its
// password.
func (s *Store) DisplayName() string { return s.db.DisplayName() }

// WaitingWrites returns how many calls wait for their turn to write.
func (s *Store) WaitingWrites() int { return s.db.writes.Waiting() }

// StoreID returns the identifier that the store got when it was made. Operators freeze removals
// when it changes.
func (s *Store) StoreID() string { return s.db.storeID }

// sweepBatch bounds how long one transaction of Sweep keeps the writer.
const sweepBatch = 100

// BeginServerTerm is called once by the server that holds Options.Lock, before it accepts anything:
// no session of an earlier process lives on, so their endpoints go offline, and unless another
// replica serves, the grace of every offline endpoint begins anew. An outage of any length deletes
// nothing. From then on no earlier server can write, even if it did not notice that it lost its
// lock.
func (s *Store) BeginServerTerm(ctx context.Context) error {
	joined, err := s.BeginTerm(ctx)
	if err != nil {
		return err
	}
	s.db.joined.Store(joined)
	s.Operators.due.Store(sqldb.Micros(s.db.Now().Add(operatorSweep)))
	s.clusterIDs.due.Store(sqldb.Micros(s.db.Now().Add(clusterSweep)))
	if err := s.EndLost(ctx, "the server was restarted"); err != nil {
		return err
	}
	return s.db.write(ctx, "starting the server", func(t *tx) error {
		if err := t.Exec(`UPDATE store SET own_hosts = $1 WHERE own_hosts <> $1`,
			strings.Join(s.ownHosts, " ")); err != nil {
			return err
		}
		if alone, err := s.Alone(t.Tx); err != nil || !alone {
			return err
		}
		return t.Exec(`UPDATE endpoints SET grace_from = $1 WHERE online = 0`, sqldb.Micros(t.now))
	})
}

// Sweep deletes expired rows: endpoints whose grace has ended are deleted, old events compacted,
// expired reservations and sessions dropped, last-used times written. The server calls it every
// second or so; without anything to do it only reads. Of several replicas one does it for all.
func (s *Store) Sweep(ctx context.Context) error {
	if !s.Sweeps() {
		return errors.Join(s.lastUsed.flush(ctx, false), s.UserSessions.flush(ctx, false))
	}
	return errors.Join(s.sweepLost(ctx), s.sweepGrace(ctx), s.sweepOwned(ctx), s.clusterIDs.sweep(ctx),
		s.EventLog.sweep(ctx), s.AuditLog.sweep(ctx), s.sweepReservations(ctx), s.lastUsed.flush(ctx, false),
		s.Logins.sweep(ctx), s.Revocations.sweep(ctx), s.Operators.sweep(ctx))
}
