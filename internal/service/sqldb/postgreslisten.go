// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

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
	// notifyChannel takes an array of keys.
	notifyChannel = `SELECT pg_notify('fairlead changes of ' || current_schema(), id) FROM unnest($1::text[]) AS id`
)

// announce notifies other processes. A server that holds the lock alone is the only process that
// waits for changes.
func (e *postgresEngine) announce(ctx context.Context, db *DB, keys []string) {
	if lock := db.opt.Lock; lock.HasTerms() && !lock.postgres.shared || len(keys) == 0 || db.outbox.add(keys) {
		return
	}
	_, _ = db.writer.ExecContext(ctx, notifyChannel, keys) // a notification that is lost is found by a poll
}

// postgresListener is notified of other processes' changes and notifies them of its own, on a
// connection of its own.
type postgresListener struct {
	Listener
	db     *DB
	every  time.Duration // every is the time between two polls.
	config *pgx.ConnConfig
	conn   *pgx.Conn // conn is nil while it is lost.
	polled time.Time
	sent   time.Time
	oldest time.Time // oldest is when a change was made whose own notification has not come back yet; zero = none.
}

func (e *postgresEngine) listen(ctx context.Context, db *DB, every time.Duration, listener Listener) {
	config := e.config.Copy()
	config.RuntimeParams["synchronous_commit"] = "off"
	l := &postgresListener{Listener: listener, db: db, every: every, config: config}
	defer l.disconnect()
	for ctx.Err() == nil {
		if l.conn == nil {
			l.connect(ctx)
		}
		if now := time.Now(); now.Sub(l.polled) >= l.every {
			l.polled = now
			l.Poll(ctx)
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
	l.db.outbox.setListening(true)
	l.polled = time.Time{} // what happened before was not notified
}

func (l *postgresListener) disconnect() {
	if l.conn == nil {
		return
	}
	l.db.outbox.setListening(false)
	closePostgres(l.conn)
	l.conn, l.oldest = nil, time.Time{}
}

// wait waits for a notification, until the next poll, or until own changes have to be sent.
func (l *postgresListener) wait(ctx context.Context) {
	until := l.polled.Add(l.every)
	if l.conn == nil {
		timer.Sleep(ctx, time.Until(until))
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.db.outbox.setInterrupt(nil)
	if l.db.outbox.setInterrupt(cancel) {
		next := l.sent.Add(notifyInterval)
		if time.Until(next) <= 0 {
			l.send(ctx)
			return
		}
		if l.db.outbox.setInterrupt(nil); next.Before(until) {
			until = next
		}
	}
	waiting, stop := context.WithDeadline(waiting, until)
	defer stop()
	switch n, err := l.conn.WaitForNotification(waiting); {
	case err == nil && n.PID == l.conn.PgConn().PID():
		l.measureLag()
	case err == nil:
		l.Wake(n.Payload)
	case err != nil && (waiting.Err() == nil || l.conn.IsClosed()):
		l.disconnect()
	}
}

func (l *postgresListener) send(ctx context.Context) {
	l.sent = time.Now()
	keys, oldest := l.db.outbox.drain()
	if l.oldest.IsZero() {
		l.oldest = oldest
	}
	if _, err := l.conn.Exec(ctx, notifyChannel, keys); err != nil {
		l.disconnect()
	}
}

// measureLag records how long the notification of an own change took, which the database sends back
// when it sends it to the others.
func (l *postgresListener) measureLag() {
	if !l.oldest.IsZero() {
		l.db.notificationLag.Store(int64(time.Since(l.oldest)))
		l.oldest = time.Time{}
	}
}
