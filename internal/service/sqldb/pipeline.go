// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// maxWaiting bounds the statements that wait to be sent.
const maxWaiting = 256

// pipeline is a write transaction on PostgreSQL. Statements without rows wait until the next query
// or the commit, and go to the database together: all servers wait for the locks that a write
// holds, and so for each of its round trips. An error of one is that of the query before which it
// was sent, or of the commit.
type pipeline struct {
	conn    *sql.Conn
	waiting *pgx.Batch
}

// beginPipeline begins a transaction of the writer. It passes over connections that were lost while
// they were idle.
func beginPipeline(ctx context.Context, pool *sql.DB) (*pipeline, error) {
	for tries := 0; ; tries++ {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, `begin`); err == nil {
			return &pipeline{conn, new(pgx.Batch)}, nil
		}
		_ = conn.Close()
		if tries > 0 || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// add makes a statement wait. The context is that of sending, where too many wait.
func (p *pipeline) add(ctx context.Context, query string, args []any) error {
	p.waiting.Queue(query, args...)
	if p.waiting.Len() < maxWaiting {
		return nil
	}
	return p.send(ctx)
}

// row sends what waits and a query for one row, which it scans.
func (p *pipeline) row(ctx context.Context, query string, args, dest []any) error {
	p.waiting.Queue(query, args...).QueryRow(func(found pgx.Row) error { return found.Scan(dest...) })
	return p.send(ctx)
}

// send sends what waits, and returns the first error. A nil pipeline has nothing that waits.
func (p *pipeline) send(ctx context.Context) error {
	if p == nil || p.waiting.Len() == 0 {
		return nil
	}
	sent := p.waiting
	p.waiting = new(pgx.Batch)
	return p.raw(func(c *pgx.Conn) error { return c.SendBatch(ctx, sent).Close() })
}

// commit sends what waits, and commits.
func (p *pipeline) commit(ctx context.Context) error {
	p.waiting.Queue(`commit`).Exec(func(done pgconn.CommandTag) error {
		if done.String() == "ROLLBACK" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	return p.send(ctx)
}

// end gives the connection back, and closes it where the transaction cannot be undone. After a
// commit there is nothing to undo, and after an end nothing is done.
func (p *pipeline) end(ctx context.Context) {
	_ = p.raw(func(c *pgx.Conn) error {
		switch {
		case c.IsClosed() || c.PgConn().TxStatus() == 'I':
			return nil
		case ctx.Err() != nil:
			return driver.ErrBadConn
		}
		if _, err := c.Exec(ctx, `rollback`); err != nil {
			return driver.ErrBadConn
		}
		return nil
	})
	_ = p.conn.Close()
}

func (p *pipeline) raw(use func(*pgx.Conn) error) error {
	return p.conn.Raw(func(c any) error { return use(c.(*stdlib.Conn).Conn()) })
}
