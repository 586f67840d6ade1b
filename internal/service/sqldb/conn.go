// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Conn is a connection with PostgreSQL of its own: it waits for no other calls, and holds locks as
// long as it lives. It is not safe for concurrent use.
type Conn struct{ pgx *pgx.Conn }

// Connect makes a connection of its own. SQLite has none.
func (db *DB) Connect(ctx context.Context) (*Conn, error) {
	e, ok := db.engine.(*postgresEngine)
	if !ok {
		return nil, errors.New("only PostgreSQL has connections of their own")
	}
	conn, err := pgx.ConnectConfig(ctx, e.config)
	if err != nil {
		return nil, err
	}
	return &Conn{conn}, nil
}

// Each calls scan for every row of the query.
func (c *Conn) Each(ctx context.Context, scan func(Scanner) error, query string, args ...any) error {
	rows, err := c.pgx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Close closes a connection that is lost or no longer needed.
func (c *Conn) Close() { closePostgres(c.pgx) }

func closePostgres(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// ProcessExpression is the expression of the database's process and the history that it writes, for
// statements of a Conn.
func (db *DB) ProcessExpression() string {
	return `CAST(pg_postmaster_start_time() AS TEXT) || ' ' || ` + db.engine.(*postgresEngine).timeline
}

// NextTerm gives the database the next term, which is that of the server once it is committed: no
// earlier server can write from then on. It waits for a write that another server has under way.
func (t Tx) NextTerm() (term int64, err error) {
	err = t.Row(`UPDATE fairlead_schema SET server_term = server_term + 1 RETURNING server_term`).Scan(&term)
	return term, err
}

// OtherServers counts the connections with which other servers hold the lock of servers, as they do
// as long as they live.
func (t Tx) OtherServers() (n int, err error) {
	err = t.Row(`SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND CAST(classid AS BIGINT) = $1
		AND CAST(objid AS BIGINT) =
			CAST(hashtext('server of ' || COALESCE(current_schema(), '')) AS BIGINT) & 4294967295 AND pid <> $2`,
		AdvisoryKey, t.db.opt.Lock.postgres.pid.Load()).Scan(&n)
	return n, err
}

var errPooler = errors.New("a connection pooler in transaction mode lies in between, and locks, notifications and " +
	"prepared statements need connections of their own: name the database itself, or a pooler in session mode")

// poolerTimeout bounds how long the check for a pooler waits for a process of the database.
const poolerTimeout = 5 * time.Second

// refusePooler returns errPooler when connections do not have a process of the database to
// themselves: while one is in a transaction, a pooler that divides processes between transactions
// has given it the one that the other had before, or gives the other another one, or none. It
// prepares no statement: the process may have one of that name.
func refusePooler(ctx context.Context, config *pgx.ConnConfig) error {
	var conns [2]*pgx.Conn
	for i := range conns {
		c, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		defer closePostgres(c)
		conns[i] = c
	}
	idle, busy := conns[0], conns[1]
	ask := func(ctx context.Context, c *pgx.Conn) (pid int64, err error) {
		err = c.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
		return pid, err
	}
	first, err := ask(ctx, idle)
	if err != nil {
		return err
	}
	if _, err := busy.Exec(ctx, `BEGIN`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	other, err := ask(ctx, busy)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	again, err := ask(limited, idle)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil: // it has no second process
		return errPooler
	case err != nil:
		return err
	case first != again || other == first:
		return errPooler
	}
	return nil
}
