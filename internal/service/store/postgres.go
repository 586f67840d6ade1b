// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Connections of one process: one writes, so many read, and of a server the lock, the notifications
// and a replica's beats have one each.
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
	timeline string // the expression of the timeline; "''" where it cannot be read
}

func (e *postgresEngine) open(ctx context.Context, s *Store) error {
	config, name, err := parseDatabaseURL(s.opt.DatabaseURL)
	if err != nil {
		return err
	}
	s.place = name
	if s.opt.Lock == nil { // LockServer has asked
		if err := refusePooler(ctx, config); err != nil {
			return explainPostgresError(name, err)
		}
	}
	s.writer = openPostgres(config, 1, 1, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, rememberSystem); err != nil && !postgresLacks(err) {
			return err
		}
		return nil
	}))
	if err := s.migrate(ctx); err != nil {
		return explainPostgresError(name, err)
	}
	s.reader = openPostgres(config, postgresReaders, postgresIdleReaders)
	if err := s.checkConnections(ctx, name); err != nil {
		return err
	}
	e.timeline = postgresTimeline
	var now string
	if err := s.writer.QueryRowContext(ctx, `SELECT `+e.timeline).Scan(&now); postgresLacks(err) {
		e.timeline = `''`
	}
	return s.readIdentity(ctx, func(err error) error { return explainPostgresError(name, err) })
}

// checkConnections refuses a database that admits fewer connections than a server needs.
func (s *Store) checkConnections(ctx context.Context, name string) error {
	if s.opt.Lock == nil {
		return nil
	}
	var admitted int
	err := s.writer.QueryRowContext(ctx,
		`SELECT LEAST(NULLIF(rolconnlimit, -1),
			(SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),
			CAST(current_setting('max_connections') AS INT)
				- CAST(current_setting('superuser_reserved_connections') AS INT))
		FROM pg_roles WHERE rolname = current_user`).Scan(&admitted)
	if err != nil {
		return explainPostgresError(name, err)
	}
	if admitted < postgresServerConns {
		return fmt.Errorf(
			"database %s cannot be used: it admits %d connections of this user, and a server takes up to %d; "+
				"raise max_connections, or the connection limit of the database or the user", name, admitted,
			postgresServerConns)
	}
	return nil
}

func openPostgres(config *pgx.ConnConfig, most, idle int, options ...stdlib.OptionOpenDB) *sql.DB {
	db := stdlib.OpenDB(*config, options...)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(idle)
	db.SetConnMaxIdleTime(postgresIdleTime)
	db.SetConnMaxLifetime(postgresLifetime)
	return db
}

// CheckDatabaseURL returns what is wrong with the URL of a PostgreSQL database, as CodeInvalid; its
// error does not hold the URL.
func CheckDatabaseURL(raw string) error {
	_, _, err := parseDatabaseURL(raw)
	return err
}

// parseDatabaseURL reads the URL and returns a name for the database that holds no password.
func parseDatabaseURL(raw string) (config *pgx.ConnConfig, name string, err error) {
	const field, form = "--database-url", "postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full"
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return nil, "", account.Invalid(field, "(not shown)", "must begin with postgres://, for example "+form+
			"; leave it out for SQLite in --data-dir")
	}
	if !strings.Contains(raw, "target_session_attrs") { // connect to the primary of several hosts
		separator := "?"
		if strings.Contains(raw, "?") {
			separator = "&"
		}
		raw += separator + "target_session_attrs=read-write"
	}
	config, err = pgx.ParseConfig(raw)
	if err != nil { // its text may hold the password
		return nil, "", account.Invalid(field, "(not shown)", "cannot be read: it must look like "+form+
			", with special characters of user and password percent-encoded, a known sslmode, and certificate files "+
			"that can "+
			"be read")
	}
	parameters := config.RuntimeParams
	config.RuntimeParams = map[string]string{"application_name": "fairlead-server"}
	for _, first := range []string{"application_name", "client_encoding", "options"} { // only a start takes these
		if value, given := parameters[first]; given {
			config.RuntimeParams[first] = value
			delete(parameters, first)
		}
	}
	for parameter, value := range map[string]string{
		"statement_timeout": "25s", "lock_timeout": "10s",
		"idle_in_transaction_session_timeout": "3s", // a paused server must not hold up the others' writes
		// A server that is cut off gives its lock up after half a minute.
		"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		if _, given := parameters[parameter]; !given {
			parameters[parameter] = value
		}
	}
	config.AfterConnect = setParameters(parameters)
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	where := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	if strings.HasPrefix(config.Host, "/") {
		where = config.Host
	}
	return config, fmt.Sprintf("postgres://%s@%s/%s", config.User, where, config.Database), nil
}

// setParameters returns what sets the parameters of a new connection. Poolers refuse most of them at
// the start of a connection.
func setParameters(parameters map[string]string) pgconn.AfterConnectFunc {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	calls := []string{"set_config('standard_conforming_strings', 'on', false)"}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		calls = append(calls, fmt.Sprintf("set_config(%s, %s, false)", quote(name), quote(parameters[name])))
	}
	statement := "SELECT " + strings.Join(calls, ", ")
	return func(ctx context.Context, c *pgconn.PgConn) error {
		_, err := c.Exec(ctx, statement).ReadAll()
		return err
	}
}

// advisoryKey is the first half of the keys of advisory locks; the second is the schema's name, so
// that schemas of one database are stores of their own.
const advisoryKey = 0x464c4431

const (
	migrationLock = `SELECT pg_advisory_xact_lock($1, hashtext('migration of ' || COALESCE(current_schema(), '')))`
	serverLock    = `SELECT pg_try_advisory_lock($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	noServers     = `SELECT pg_try_advisory_xact_lock($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	// replicaLock admits other replicas, and no server that is alone.
	replicaLock = `SELECT pg_try_advisory_lock_shared($1, hashtext('server of ' || COALESCE(current_schema(), '')))`
	// lifeLock is held by the replica with the id $2, once for each of its connections that the
	// database has not yet noticed to be lost.
	lifeLock = `SELECT pg_advisory_lock_shared($1, hashtext('replica ' || $2))`
)

func (postgresEngine) version(t *tx) (int, error) {
	if err := t.exec(migrationLock, advisoryKey); err != nil {
		return 0, err
	}
	var ours, others bool
	err := t.row(
		`SELECT to_regclass('fairlead_schema') IS NOT NULL,
			to_regclass('store') IS NOT NULL OR to_regclass('accounts') IS NOT NULL`).Scan(&ours, &others)
	switch {
	case err != nil:
		return 0, err
	case !ours && others:
		return 0, errForeignDatabase
	case !ours:
		return 0, t.exec(`CREATE TABLE fairlead_schema (version BIGINT NOT NULL, server_term BIGINT NOT NULL);
			INSERT INTO fairlead_schema (version, server_term) VALUES (0, 0)`)
	}
	var version int
	err = t.row(`SELECT version FROM fairlead_schema`).Scan(&version)
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

func (postgresEngine) schema(text string) string { return postgresTypes.Replace(text) }

// lockServers takes the lock of servers, of either mode, for the transaction.
func (postgresEngine) lockServers(t *tx) (unlock func() error, err error) {
	var locked bool
	if err = t.row(noServers, advisoryKey).Scan(&locked); err == nil && !locked {
		err = errServerLive
	}
	return func() error { return nil }, err
}

func (postgresEngine) setVersion(t *tx, version int) error {
	return t.exec(`UPDATE fairlead_schema SET version = $1`, version)
}

// lockWrites locks the one row until the end of the transaction. Later statements see everything
// that was committed before. On another timeline than the last write's an epoch begins. A replica
// locks its own row, too, which is gone once it is fenced.
func (e *postgresEngine) lockWrites(t *tx) error {
	query, args := `SELECT f.server_term, s.epoch, s.timeline, `+e.timeline+` FROM fairlead_schema AS f, store AS s`,
		[]any(nil)
	if t.s.joined.Load() && !t.joining {
		query += `, replicas AS r WHERE r.id = $1 FOR UPDATE OF f, s FOR SHARE OF r`
		args = []any{t.s.opt.Replica.ID}
	} else {
		query += ` FOR UPDATE`
	}
	var term int64
	var recorded, now string
	err := t.row(query, args...).Scan(&term, &t.epoch, &recorded, &now)
	if errors.Is(err, sql.ErrNoRows) {
		return &account.Error{Code: account.CodeUnavailable, Cause: ErrFenced,
			Msg: "the store is not available: other servers took this one for dead"}
	}
	if err != nil {
		return err
	}
	if err := t.s.opt.Lock.checkTerm(term); err != nil || now == recorded || now == "" {
		return err
	}
	if recorded != "" {
		if err := t.beginEpoch(0); err != nil {
			return err
		}
	}
	return t.exec(`UPDATE store SET timeline = $1`, now)
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

// beginTerm takes the next term, or joins the replicas: the first of them takes a term, too, so
// that a server that was alone cannot write. It waits for a write that another server has under
// way.
func (postgresEngine) beginTerm(ctx context.Context, s *Store) error {
	if s.opt.Lock == nil || s.opt.Lock.postgres == nil {
		return nil
	}
	var term int64
	err := s.write(ctx, "taking the store over", func(t *tx) error {
		if err := t.checkMode(); err != nil {
			return err
		}
		if s.opt.Replica != nil {
			if err := t.checkClock(); err != nil {
				return err
			}
			if err := t.markPredecessors(s.opt.Replica.RelayAddress); err != nil {
				return err
			}
			if err := t.checkBaseURL(s.opt.Replica.BaseURL); err != nil {
				return err
			}
			if err := t.join(s.opt.Replica); err != nil {
				return err
			}
		}
		return t.row(`UPDATE fairlead_schema SET server_term = server_term + 1 RETURNING server_term`).Scan(&term)
	})
	if err != nil {
		return err
	}
	if s.joined.Store(s.opt.Replica != nil); s.opt.Replica == nil {
		s.opt.Lock.postgres.term.Store(term)
	}
	return nil
}

func (postgresEngine) readTx() *sql.TxOptions {
	return &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
}

// args makes booleans integers, and texts storable. Texts that are kept have been checked; an id
// of a request may hold anything, and is unknown.
func (postgresEngine) args(args []any) []any {
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

// clock returns the database's time, or that of Options.Clock.
func (postgresEngine) clock(t *tx) (time.Time, error) {
	if t.s.opt.Clock != nil {
		return t.s.now(), nil
	}
	var now int64
	err := t.row(`SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`).Scan(&now)
	return fromMicros(now), err
}

func (postgresEngine) retryable(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

func (postgresEngine) classify(err error) (unavailable, known bool) {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return postgresUnavailable(pgErr.Code), true
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connecting) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) {
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
