// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sqldb owns the databases that the service's data is in: SQLite in the data directory, or
// PostgreSQL. It opens and migrates them, runs transactions and batches of writes, converts
// fields to columns, locks out other servers, and notifies other processes of changes. It knows none of the rows.
//
// What comes in: migrations and statements of internal/service/store, which has one SQL text for
// both engines. Whom it hands over to: the drivers. Their errors leave as *account.Error, the only
// thing of internal/account that is used here.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	transactionTimeout = 30 * time.Second
	migrationTimeout   = 5 * time.Minute // as long as the chart's startup probe waits
)

// Options open a DB.
type Options struct {
	DataDir string // DataDir is made with mode 0700 when missing; its files get 0600.
	// DatabaseURL names a PostgreSQL database; "" is SQLite in DataDir. It may hold a password:
	// never log it.
	DatabaseURL string
	Lock        *ServerLock // Lock refuses writes while it is lost; commands have none.
	Schema      Schema
	Observer    Observer // Observer is nil where no calls are counted.
}

// DB is an open database. Its methods may be called from many goroutines.
type DB struct {
	opt    Options
	engine engine
	writer *sql.DB // writer has one connection.
	reader *sql.DB // reader has many connections, which cannot write.
	name   string

	outbox          outbox
	notificationLag atomic.Int64 // notificationLag is in nanoseconds.
}

// engine is what differs between databases: opening, column types, serialising writes, and what
// errors mean.
type engine interface {
	// open sets name, writer and reader of the database and migrates. Its errors are complete
	// sentences.
	open(ctx context.Context, db *DB) error
	// explain turns an error of opening into a sentence.
	explain(name string, err error) error
	// schema returns the text of a migration with the engine's column types.
	schema(text string) string
	// version returns the number of the newest migration that was applied, 0 for an empty database.
	// It waits for migrations of other processes.
	version(t Tx) (int, error)
	setVersion(t Tx, version int) error
	// lockServers is Tx.LockServers.
	lockServers(t Tx) (unlock func() error, err error)
	// args converts the arguments of a statement to types that the driver accepts.
	args(args []any) []any
	// beginWrite begins a transaction of the writer.
	beginWrite(ctx context.Context, db *DB) (Tx, error)
	// readTx returns the options of a transaction that reads one consistent snapshot.
	readTx() *sql.TxOptions
	// announce is Tx.Announce.
	announce(ctx context.Context, db *DB, keys []string)
	// listen is DB.Listen.
	listen(ctx context.Context, db *DB, every time.Duration, l Listener)
	// clock is Tx.Time.
	clock(t Tx) (time.Time, error)
	// retryable reports whether a transaction that failed with err may run again from its start.
	retryable(err error) bool
	// classify reports whether an error of the driver means that the database is unavailable now;
	// known is false for errors of other origin.
	classify(err error) (unavailable, known bool)
}

// Open opens the database at opt.DatabaseURL, or in opt.DataDir, makes an empty one when there is
// none, and migrates it. Its errors are complete sentences: the place cannot be used, the database
// is of a newer version, it is no database of ours. Any number of processes may have a database
// open; LockServer keeps a second server away.
func Open(ctx context.Context, opt Options) (*DB, error) {
	db := &DB{opt: opt, engine: sqliteEngine{}}
	if opt.DatabaseURL != "" {
		db.engine = &postgresEngine{}
	}
	if err := db.engine.open(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close closes all connections.
func (db *DB) Close() error {
	var errs []error
	for _, pool := range []*sql.DB{db.reader, db.writer} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
}

// DisplayName returns where the data is, for messages: a file, or the URL of a database without its
// password.
func (db *DB) DisplayName() string { return db.name }

// Read runs fn in one read transaction: everything it reads is of one moment. doing is for errors.
func (db *DB) Read(ctx context.Context, doing string, fn func(Tx) error) (err error) {
	defer db.observe(ctx, CallRead, time.Now(), &err)
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	t, err := db.begin(ctx, db.reader, db.engine.readTx())
	if err != nil {
		return db.MapError(doing, err)
	}
	defer t.end()
	return db.MapError(doing, fn(t))
}

// Row reads a row by one statement outside a transaction, so that it costs one round trip to the
// database. Errors are the driver's.
func (db *DB) Row(ctx context.Context, query string, args ...any) Row {
	return Row{row: db.reader.QueryRowContext(ctx, query, db.engine.args(args)...)}
}

// WriterRow reads or changes a setting of the connection that writes.
func (db *DB) WriterRow(ctx context.Context, query string, args ...any) *sql.Row {
	return db.writer.QueryRowContext(ctx, query, args...)
}

// begin begins a transaction. It passes over connections that were lost while they were idle.
func (db *DB) begin(ctx context.Context, pool *sql.DB, opt *sql.TxOptions) (Tx, error) {
	for tries := 0; ; tries++ {
		begun, err := pool.BeginTx(ctx, opt)
		if err == nil || tries > postgresIdleReaders || !pgconn.SafeToRetry(err) {
			return Tx{ctx: ctx, db: db, sql: begun}, err
		}
	}
}

// retries bounds how often a write is tried again that the database ended in favour of another.
const retries = 4

// transact runs fn in one transaction of the writer, again from its start where the database
// preferred another one, and calls ended after a commit.
func (db *DB) transact(ctx context.Context, fn func(Tx) error, ended func(error)) error {
	for tries := 1; ; tries++ {
		err := db.try(ctx, fn, ended)
		if err == nil || tries > retries || !db.engine.retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(time.Duration(tries) * 20 * time.Millisecond)):
		}
	}
}

func (db *DB) try(ctx context.Context, fn func(Tx) error, ended func(error)) error {
	t, err := db.engine.beginWrite(ctx, db)
	if err != nil {
		return err
	}
	defer t.end()
	if err := fn(t); err != nil {
		return err
	}
	err = t.commit()
	t.end() // gives the connection back: ended may use it
	ended(err)
	return err
}

// MapError turns an error of the driver into a domain error; domain errors pass unchanged.
func (db *DB) MapError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*account.Error](err); ok {
		return err
	}
	mapped := &account.Error{Code: account.CodeInternal, Msg: "internal error", Cause: fmt.Errorf("%s: %w", doing, err)}
	if db.unavailable(err) {
		mapped.Code, mapped.Msg = account.CodeUnavailable, "the store is not available; try again"
		if DiskFull(err) {
			mapped.Msg = "the disk that holds the store is full; writes go on as soon as there is room"
		}
	}
	return mapped
}

// ExplainOpenError turns an error of reading an opened database first into a sentence.
func (db *DB) ExplainOpenError(err error) error { return db.engine.explain(db.name, err) }

// unavailable reports whether an error means that the database cannot be used now.
func (db *DB) unavailable(err error) bool {
	unavailable, known := db.engine.classify(err)
	if known {
		return unavailable
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone)
}

// isCallError reports whether an error is that of one call, so that the transaction can go on
// without the writes of the call.
func (db *DB) isCallError(err error) bool {
	return errors.As(err, new(*account.Error)) || !db.unavailable(err)
}

// DiskFull reports whether the error, of an operating system or a driver, means that there is no
// room left.
func DiskFull(err error) bool {
	var lite *sqlite.Error
	var postgres *pgconn.PgError
	switch {
	case errors.As(err, &lite):
		return lite.Code() == sqlite3.SQLITE_FULL || lite.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
	case errors.As(err, &postgres):
		return postgres.Code == "53100"
	}
	return errors.Is(err, syscall.ENOSPC)
}

// CallKind is the kind of access to the database that a call has.
type CallKind string

// Kinds of calls.
const (
	CallRead  CallKind = "read"
	CallWrite CallKind = "write"
)

// Observer is told of calls.
type Observer interface {
	// ObserveCall is called after each transaction with its kind, its time, the wait for its turn
	// included, and whether the database failed. It must not block.
	ObserveCall(kind CallKind, took time.Duration, failed bool)
}

// observe reports a call that began at began and whose result is *err. The database has not failed
// where ctx, of the call's caller, has ended.
func (db *DB) observe(ctx context.Context, kind CallKind, began time.Time, err *error) {
	if db.opt.Observer == nil {
		return
	}
	code := account.CodeOf(*err)
	failed := code == account.CodeUnavailable || code == account.CodeInternal
	db.opt.Observer.ObserveCall(kind, time.Since(began), failed && ctx.Err() == nil)
}
