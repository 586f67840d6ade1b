// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

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
