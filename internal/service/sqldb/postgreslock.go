// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// regainEvery is how often a lost lock is asked for again.
	regainEvery = time.Second
	// maxLockWait is how long a database may take to notice that the process that held the lock was
	// killed.
	maxLockWait = 2 * time.Second
)

// postgresLock is an advisory lock on a connection of its own, so that it ends with the process.
// The server's term fences it: a server takes a new term when it starts, and a write of a server
// whose term has passed is refused in its transaction, however late that server notices that its
// lock is gone.
type postgresLock struct {
	config *pgx.ConnConfig
	name   string
	shared bool      // shared is set for one of several servers.
	member string    // member names it, if shared.
	conn   *pgx.Conn // conn is nil before acquire; only lockPostgres, maintain and release use it.
	locked atomic.Bool
	term   atomic.Int64 // term is 0 before BeginTerm.
	pid    atomic.Int64 // pid is the database's process that serves conn.
	once   sync.Once
	passed chan struct{} // passed is closed when a write has seen another server's term.
}

var (
	errLockedElsewhere = errors.New("it is in use by another fairlead-server; stop that one (a server that was " +
		"cut off holds on for half a minute), or choose another --database-url")
	errUsedBySeveral = errors.New("it is in use by several fairlead-servers; start this one as a replica, too, " +
		"with --relay-address, or stop them")
)

func lockPostgres(ctx context.Context, databaseURL, member string) (*postgresLock, error) {
	config, name, err := parseDatabaseURL(databaseURL)
	if err != nil {
		return nil, err
	}
	l := &postgresLock{config: config, name: name, shared: member != "", member: member, passed: make(chan struct{})}
	if err = refusePooler(ctx, config); err != nil {
		return nil, explainPostgresError(name, err)
	}
	err = l.acquire(ctx)
	deadline := time.Now().Add(maxLockWait)
	for ; isHeld(err) && time.Now().Before(deadline); err = l.acquire(ctx) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(maxLockWait / 20):
		}
	}
	if isHeld(err) {
		return nil, fmt.Errorf("database %s: %w", name, err)
	}
	if err != nil {
		return nil, errors.Join(explainPostgresError(name, err), l.release())
	}
	return l, nil
}

func isHeld(err error) bool {
	return errors.Is(err, errLockedElsewhere) || errors.Is(err, errUsedBySeveral)
}

// acquire connects and locks; errLockedElsewhere or errUsedBySeveral when other connections have
// the lock.
func (l *postgresLock) acquire(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	var locked bool
	statement := serverLock
	if l.shared {
		statement = sharedLock
	}
	if err = conn.QueryRow(ctx, statement, AdvisoryKey).Scan(&locked); err == nil && !locked {
		err = l.heldBy(ctx, conn)
	}
	if err == nil && l.shared {
		_, err = conn.Exec(ctx, lifeLock, AdvisoryKey, l.member)
	}
	if err == nil && l.term.Load() != 0 {
		var term int64
		if err = conn.QueryRow(ctx, `SELECT server_term FROM fairlead_schema`).Scan(&term); err == nil {
			err = l.checkTerm(term)
		}
	}
	if err != nil {
		_ = conn.Close(ctx) // the first error is the more precise one
		return err
	}
	l.conn = conn
	l.pid.Store(int64(conn.PgConn().PID()))
	l.locked.Store(true)
	return nil
}

// heldBy returns which other servers have the lock.
func (l *postgresLock) heldBy(ctx context.Context, conn *pgx.Conn) error {
	var several bool
	if l.shared {
		return errLockedElsewhere
	}
	if err := conn.QueryRow(ctx, sharedLock, AdvisoryKey).Scan(&several); err != nil {
		return err
	}
	if several {
		return errUsedBySeveral
	}
	return errLockedElsewhere
}

func (l *postgresLock) maintain(ctx context.Context, report func(locked bool, err error)) error {
	for {
		lost := l.waitUntilLost(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-l.passed:
			return l.passedError()
		default:
		}
		l.locked.Store(false)
		report(false, lost)
		if err := l.regain(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		report(true, nil)
	}
}

// waitUntilLost waits for the end of the connection: by itself, by ctx, or because the term has
// passed. It returns the cause.
func (l *postgresLock) waitUntilLost(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.passed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		// there is no notification: it waits for the connection's end
		if _, err := l.conn.WaitForNotification(ctx); err != nil {
			_ = l.conn.Close(ctx)
			return err
		}
	}
}

// regain acquires the lock again. It gives up only when the term has passed: until then the holder
// is this server's own lost connection, which the database has not noticed yet, or a server that
// has not started.
func (l *postgresLock) regain(ctx context.Context) error {
	tick := time.NewTicker(regainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.passed:
			return l.passedError()
		case <-tick.C:
		}
		if err := l.acquire(ctx); err == nil {
			return nil
		}
	}
}

func (l *postgresLock) passedError() error {
	return fmt.Errorf("another fairlead-server has started on database %s while this one had lost it; this one stops",
		l.name)
}

// checkTerm returns CodeUnavailable unless the term of the store is still that of this server.
func (l *postgresLock) checkTerm(term int64) error {
	if own := l.term.Load(); own == 0 || own == term {
		return nil
	}
	l.once.Do(func() { close(l.passed) })
	return account.Errorf(account.CodeUnavailable, "the store is not available: another server has taken it over")
}

func (l *postgresLock) release() error {
	if l.conn == nil || l.conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := l.conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`) // closing alone is noticed later
	return errors.Join(err, l.conn.Close(ctx))
}
