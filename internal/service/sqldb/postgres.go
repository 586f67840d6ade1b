// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Connections of one process: one writes, so many read, and of a server the lock, the notifications
// and Connect have one each.
const (
	postgresReaders     = 12
	postgresServerConns = 1 + postgresReaders + 3
	postgresIdleReaders = 6
	postgresIdleTime    = 5 * time.Minute
	postgresLifetime    = 30 * time.Minute
)

// postgresEngine is a schema of a PostgreSQL database. Its table fairlead_schema, which the other
// engine lacks, has one row: the version of the schema, and the term of the server that may write.
type postgresEngine struct {
	config   *pgx.ConnConfig
	timeline string // timeline is the expression of the timeline; "''" where it cannot be read.
}

func (e *postgresEngine) open(ctx context.Context, db *DB) (err error) {
	if e.config, db.name, err = parseDatabaseURL(db.opt.DatabaseURL); err != nil {
		return err
	}
	if db.opt.Lock == nil { // LockServer has asked
		if err := refusePooler(ctx, e.config); err != nil {
			return db.ExplainOpenError(err)
		}
	}
	db.writer = openPostgres(e.config, 1, 1, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, rememberSystem); err != nil && !postgresLacks(err) {
			return err
		}
		return nil
	}))
	if err := db.migrate(ctx); err != nil {
		return db.ExplainOpenError(err)
	}
	db.reader = openPostgres(e.config, postgresReaders, postgresIdleReaders)
	if err := e.checkConnections(ctx, db); err != nil {
		return err
	}
	e.timeline = postgresTimeline
	var now string
	if err := db.WriterRow(ctx, `SELECT `+e.timeline).Scan(&now); postgresLacks(err) {
		e.timeline = `''`
	}
	return nil
}

// checkConnections refuses a database that admits fewer connections than a server needs.
func (*postgresEngine) checkConnections(ctx context.Context, db *DB) error {
	if db.opt.Lock == nil {
		return nil
	}
	var admitted int
	err := db.WriterRow(ctx,
		`SELECT LEAST(NULLIF(rolconnlimit, -1),
			(SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),
			CAST(current_setting('max_connections') AS INT)
				- CAST(current_setting('superuser_reserved_connections') AS INT))
		FROM pg_roles WHERE rolname = current_user`).Scan(&admitted)
	if err != nil {
		return db.ExplainOpenError(err)
	}
	if admitted < postgresServerConns {
		return fmt.Errorf("database %s cannot be used: it admits %d connections of this user, and a server takes up "+
			"to %d; raise max_connections, or the connection limit of the database or the user", db.name, admitted,
			postgresServerConns)
	}
	return nil
}

func (*postgresEngine) explain(name string, err error) error { return explainPostgresError(name, err) }

func openPostgres(config *pgx.ConnConfig, most, idle int, options ...stdlib.OptionOpenDB) *sql.DB {
	db := stdlib.OpenDB(*config, options...)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(idle)
	db.SetConnMaxIdleTime(postgresIdleTime)
	db.SetConnMaxLifetime(postgresLifetime)
	return db
}

// AdvisoryKey is the first half of the keys of advisory locks; the second has the schema's name, so
// that schemas of one database are stores of their own.
const AdvisoryKey = 0x464c4431

const (
	migrationLock = `SELECT pg_advisory_xact_lock($1, hashtext('migration of ' || COALESCE(current_schema(), '')))`
	serverLock    = `SELECT pg_try_advisory_lock($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	noServers     = `SELECT pg_try_advisory_xact_lock($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	// sharedLock admits other servers that share it, and none that is alone.
	sharedLock = `SELECT pg_try_advisory_lock_shared($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	// lifeLock is held by the member $2 of several servers, once for each of its connections that
	// the database has not yet noticed to be lost.
	lifeLock = `SELECT pg_advisory_lock_shared($1, hashtext($2))`
)

func (*postgresEngine) version(t Tx) (int, error) {
	if err := t.Exec(migrationLock, AdvisoryKey); err != nil {
		return 0, err
	}
	var ours, others bool
	err := t.Row(`SELECT to_regclass('fairlead_schema') IS NOT NULL,
		EXISTS (SELECT 1 FROM unnest($1::text[]) AS item WHERE to_regclass(item) IS NOT NULL)`,
		t.db.opt.Schema.Tables).Scan(&ours, &others)
	switch {
	case err != nil:
		return 0, err
	case !ours && others:
		return 0, errForeignDatabase
	case !ours:
		return 0, t.execNow(`CREATE TABLE fairlead_schema (version BIGINT NOT NULL, server_term BIGINT NOT NULL);
			INSERT INTO fairlead_schema (version, server_term) VALUES (0, 0)`)
	}
	var version int
	err = t.Row(`SELECT version FROM fairlead_schema`).Scan(&version)
	return version, err
}

// postgresTypes replaces SQLite's column types and the one literal that PostgreSQL writes
// otherwise. Identifiers and other columns that are compared or sorted are declared COLLATE BINARY,
// so that both engines order them by bytes.
var postgresTypes = strings.NewReplacer(
	"INTEGER", "BIGINT",
	"BLOB", "BYTEA",
	"COLLATE BINARY", `COLLATE "C"`,
	"x''", "''",
)

// PostgresSchema returns a migration, or another statement in SQLite's words, as PostgreSQL runs
// it.
func PostgresSchema(text string) string { return postgresTypes.Replace(text) }

func (*postgresEngine) schema(text string) string { return PostgresSchema(text) }

// lockServers takes the lock of servers, of either mode, for the transaction.
func (*postgresEngine) lockServers(t Tx) (unlock func() error, err error) {
	var locked bool
	if err = t.Row(noServers, AdvisoryKey).Scan(&locked); err == nil && !locked {
		err = ErrServerLive
	}
	return func() error { return nil }, err
}

func (*postgresEngine) setVersion(t Tx, version int) error {
	return t.Exec(`UPDATE fairlead_schema SET version = $1`, version)
}

// LockWrites is the first statement of a write transaction on PostgreSQL: no other one writes from
// here until the end of this one, and later statements see everything that was committed before. It
// locks the row with the term, which has the alias f; CodeUnavailable when the server's term has
// passed. With it it reads columns of the tables, whose clause says which of their rows are locked,
// into dest. history is the one that the database writes. With SQLite, BEGIN has the lock.
func (t Tx) LockWrites(columns, tables string, args []any, dest ...any) (history string, err error) {
	var term int64
	query := `SELECT f.server_term, ` + t.db.engine.(*postgresEngine).timeline + `, ` + columns +
		` FROM fairlead_schema AS f, ` + tables
	if err = t.Row(query, args...).Scan(append([]any{&term, &history}, dest...)...); err != nil {
		return "", err
	}
	if lock := t.db.opt.Lock; lock.HasTerms() {
		err = lock.postgres.checkTerm(term)
	}
	return history, err
}

// History names the history that the database writes; "" with SQLite, where there is one only.
// Another one, after a failover, may lack what was written last.
func (t Tx) History() (name string, err error) {
	if e, ok := t.db.engine.(*postgresEngine); ok {
		err = t.Row(`SELECT ` + e.timeline).Scan(&name)
	}
	return name, err
}

const (
	// postgresTimeline names the history that the database writes: the cluster's identifier, and
	// the timeline of its write-ahead log, which a standby that is promoted, and a restore to a
	// point in time, begin anew. Writes that only the former primary had are not in it.
	postgresTimeline = `COALESCE(current_setting('fairlead.system', true), '') || '/' ||
		left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)`
	// rememberSystem keeps the cluster's identifier, which is read from a file, for the connection.
	rememberSystem = `SELECT set_config('fairlead.system', CAST(system_identifier AS TEXT), false)
		FROM pg_control_system()`
)

// postgresLacks reports whether a function does not exist, is not supported (some managed databases
// have no write-ahead log of their own), or is not allowed.
func postgresLacks(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains([]string{"42883", "0A000", "42501"}, pgErr.Code)
}

func (*postgresEngine) beginWrite(ctx context.Context, db *DB) (Tx, error) {
	p, err := beginPipeline(ctx, db.writer)
	if err != nil {
		return Tx{}, err
	}
	return Tx{ctx: ctx, db: db, sql: p.conn, pipeline: p}, nil
}

func (*postgresEngine) readTx() *sql.TxOptions {
	return &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
}

// args makes booleans integers, and texts storable. Texts that are written have been checked before;
// an id in a request may hold any bytes, and then no row has it.
func (*postgresEngine) args(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case bool:
			out[i] = int64(0)
			if v {
				out[i] = int64(1)
			}
		case string:
			out[i] = strings.ReplaceAll(strings.ToValidUTF8(v, "\uFFFD"), "\x00", "\uFFFD")
		default:
			out[i] = a
		}
	}
	return out
}

// DatabaseMicros is PostgreSQL's expression of its time in microseconds.
const DatabaseMicros = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`

func (*postgresEngine) clock(t Tx) (time.Time, error) {
	var now int64
	err := t.Row(`SELECT ` + DatabaseMicros).Scan(&now)
	return time.UnixMicro(now), err
}

func (*postgresEngine) retryable(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

func (*postgresEngine) classify(err error) (unavailable, known bool) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return postgresUnavailable(pgErr.Code), true
	}
	if errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) {
		return true, true
	}
	return false, false
}

// postgresUnavailable reports whether an SQLSTATE means that the database cannot be used now, not
// that the statement is wrong.
func postgresUnavailable(state string) bool {
	switch state {
	case "25006", // read only: it has become a standby
		"40001", "40P01", // others were preferred, again and again
		"55P03", "57014": // waited too long
		return true
	}
	// connection, login, database, resources, shutdown, system, damage
	for _, class := range []string{"08", "28", "3D", "53", "57P", "58", "XX"} {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}
