// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	// notifyInterval is the least time between two notifications of one process: each takes a lock
	// of the whole cluster until it is committed.
	notifyInterval = 20 * time.Millisecond
	// listenChannel is of the schema, so that schemas of one database are stores of their own.
	listenChannel = `SELECT 'fairlead changes of ' || current_schema()`
	// notifyChannel takes an array of accounts.
	notifyChannel = `SELECT pg_notify('fairlead changes of ' || current_schema(), id) FROM unnest($1::text[]) AS id`
)

// announce notifies other processes of the accounts' changes, which are committed. A server that
// holds the lock alone is the only process that waits for changes.
func (e *postgresEngine) announce(ctx context.Context, s *Store, accountIDs []string) {
	if s.opt.Lock != nil && s.opt.Replica == nil || len(accountIDs) == 0 || s.outbox.add(accountIDs) {
		return
	}
	_, _ = s.writer.ExecContext(ctx, notifyChannel, accountIDs) // a notification that is lost is found by a poll
}

// postgresListener is notified of other processes' changes and notifies them of its own, on a
// connection of its own.
type postgresListener struct {
	poller
	config *pgx.ConnConfig
	conn   *pgx.Conn // nil while it is lost
	polled time.Time
	sent   time.Time
	oldest time.Time // change whose own notification has not come back yet; zero = none
}

func (e *postgresEngine) listen(ctx context.Context, s *Store) {
	config, _, err := parseDatabaseURL(s.opt.DatabaseURL)
	if err != nil {
		return // the store could not have been opened
	}
	config.RuntimeParams["synchronous_commit"] = "off"
	l := &postgresListener{poller: poller{s: s}, config: config}
	defer l.disconnect()
	for ctx.Err() == nil {
		if l.conn == nil {
			l.connect(ctx)
		}
		if now := time.Now(); now.Sub(l.polled) >= l.s.pollInterval {
			l.polled = now
			l.poll(ctx)
		}
		l.wait(ctx)
	}
}

// connect leaves conn nil when the database does not answer.
func (l *postgresListener) connect(ctx context.Context) {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return
	}
	l.conn = conn
	var channel string
	if err = conn.QueryRow(ctx, listenChannel).Scan(&channel); err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize())
	}
	if err != nil {
		l.disconnect()
		return
	}
	l.s.outbox.setListening(true)
	l.polled = time.Time{} // what happened before was not notified
}

func (l *postgresListener) disconnect() {
	if l.conn == nil {
		return
	}
	l.s.outbox.setListening(false)
	closePostgres(l.conn)
	l.conn, l.oldest = nil, time.Time{}
}

// closePostgres closes a connection that is lost or no longer needed.
func closePostgres(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// wait waits for a notification, until the next poll, or until own changes have to be sent.
func (l *postgresListener) wait(ctx context.Context) {
	until := l.polled.Add(l.s.pollInterval)
	if l.conn == nil {
		timer.Sleep(ctx, time.Until(until))
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.s.outbox.setInterrupt(nil)
	if l.s.outbox.setInterrupt(cancel) {
		next := l.sent.Add(notifyInterval)
		if time.Until(next) <= 0 {
			l.send(ctx)
			return
		}
		if l.s.outbox.setInterrupt(nil); next.Before(until) {
			until = next
		}
	}
	waiting, stop := context.WithDeadline(waiting, until)
	defer stop()
	switch n, err := l.conn.WaitForNotification(waiting); {
	case err == nil && n.PID == l.conn.PgConn().PID():
		l.measureLag()
	case err == nil:
		l.s.wakes.wake(n.Payload)
		l.s.auditWakes.wake(n.Payload)
	case err != nil && (waiting.Err() == nil || l.conn.IsClosed()):
		l.disconnect()
	}
}

func (l *postgresListener) send(ctx context.Context) {
	l.sent = time.Now()
	accountIDs, oldest := l.s.outbox.drain()
	if l.oldest.IsZero() {
		l.oldest = oldest
	}
	if _, err := l.conn.Exec(ctx, notifyChannel, accountIDs); err != nil {
		l.disconnect()
	}
}

// measureLag records how long the notification of an own change took, which the database sends back
// when it sends it to the others.
func (l *postgresListener) measureLag() {
	if !l.oldest.IsZero() {
		l.s.notificationLag.Store(int64(time.Since(l.oldest)))
		l.oldest = time.Time{}
	}
}

// NotificationLag returns how long the database took to notify of this server's last change, from
// its commit on; 0 before the first one, and where one server is alone.
func (s *Store) NotificationLag() time.Duration { return time.Duration(s.notificationLag.Load()) }
