// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tx is a transaction. It ends with the call that it was given to.
type Tx struct {
	ctx      context.Context
	db       *DB
	sql      session
	pipeline *pipeline // pipeline is nil where each statement is sent at once.
}

// session is a *sql.Tx, or the *sql.Conn of a pipeline.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Scanner is a Row or *sql.Rows.
type Scanner interface{ Scan(dest ...any) error }

// Exec runs a statement that returns no rows. In a write it may wait until the next query or the
// commit, whose error is then that of the statement.
func (t Tx) Exec(query string, args ...any) error {
	if args = t.db.engine.args(args); t.pipeline != nil {
		return t.pipeline.add(t.ctx, query, args)
	}
	_, err := t.sql.ExecContext(t.ctx, query, args...)
	return err
}

// Savepoint begins a part of the transaction that can be undone alone. There is one at a time.
func (t Tx) Savepoint() error { return t.execNow(`SAVEPOINT one_part`) }

// Release ends the part. An error is that of its statements that waited.
func (t Tx) Release() error { return t.execNow(`RELEASE SAVEPOINT one_part`) }

// Undo undoes the part and ends it.
func (t Tx) Undo() error {
	if t.pipeline != nil {
		t.pipeline.waiting = new(pgx.Batch)
	}
	return t.execNow(`ROLLBACK TO SAVEPOINT one_part; RELEASE SAVEPOINT one_part`)
}

// execNow runs statements that have no arguments at once.
func (t Tx) execNow(statements string) error {
	if err := t.pipeline.send(t.ctx); err != nil {
		return err
	}
	_, err := t.sql.ExecContext(t.ctx, statements)
	return err
}

// Row is the result of a query for one row.
type Row struct {
	row *sql.Row
	err error // err is set where a statement before the query has failed.
}

// Scan scans the row; sql.ErrNoRows when there is none.
func (r Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.row.Scan(dest...)
}

// Find scans the row, and reports whether there is one.
func (r Row) Find(dest ...any) (found bool, err error) {
	if err = r.Scan(dest...); errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Require scans the row; missing is the error when there is none.
func (r Row) Require(missing error, dest ...any) error {
	found, err := r.Find(dest...)
	if err == nil && !found {
		return missing
	}
	return err
}

// Row runs a query for one row.
func (t Tx) Row(query string, args ...any) Row {
	if err := t.pipeline.send(t.ctx); err != nil {
		return Row{err: err}
	}
	return Row{row: t.sql.QueryRowContext(t.ctx, query, t.db.engine.args(args)...)}
}

// Numbers runs a statement that returns one row of integers, which it scans, together with the
// statements that wait: they cost no round trip of their own. sql.ErrNoRows when there is no row.
func (t Tx) Numbers(query string, args []any, dest ...*int64) error {
	fields := make([]any, len(dest))
	for i, n := range dest {
		fields[i] = n
	}
	if t.pipeline == nil {
		return t.Row(query, args...).Scan(fields...)
	}
	return t.pipeline.row(t.ctx, query, t.db.engine.args(args), fields)
}

// Each calls scan for every row of the query.
func (t Tx) Each(scan func(Scanner) error, query string, args ...any) error {
	if err := t.pipeline.send(t.ctx); err != nil {
		return err
	}
	rows, err := t.sql.QueryContext(t.ctx, query, t.db.engine.args(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Exists reports whether the query has a row.
func (t Tx) Exists(query string, args ...any) (found bool, err error) {
	err = t.Each(func(Scanner) error { found = true; return nil }, query, args...)
	return found, err
}

// Collect returns what scan makes of the query's rows; it is not nil.
func Collect[V any](t Tx, scan func(Scanner) (V, error), query string, args ...any) ([]V, error) {
	all := []V{}
	err := t.Each(func(from Scanner) error {
		v, err := scan(from)
		all = append(all, v)
		return err
	}, query, args...)
	return all, err
}

// List returns the rows of the query, each scanned into the fields of a value; nil without any.
func List[V any](t Tx, fields func(*V) []any, query string, args ...any) (all []V, err error) {
	err = t.Each(func(from Scanner) error {
		var v V
		err := from.Scan(fields(&v)...)
		all = append(all, v)
		return err
	}, query, args...)
	return all, err
}

// Values returns the one column of the query's rows; nil without any.
func Values[V any](t Tx, query string, args ...any) ([]V, error) {
	return List(t, func(v *V) []any { return []any{v} }, query, args...)
}

// maxInList bounds the length of an IN list.
const maxInList = 500

// EachIn is Each for a statement about the rows with the ids, which has IN IDS; first is $1. It
// runs the statement for up to 500 ids at a time. scan is nil where the statement returns no rows.
func (t Tx) EachIn(ids []string, first any, scan func(Scanner) error, query string) error {
	for some := range slices.Chunk(ids, maxInList) {
		text, args := withIDs(query, first, some)
		if err := t.Each(scan, text, args...); err != nil {
			return err
		}
	}
	return nil
}

// withIDs returns the statement with "($2, $3)" and so on for IDS, and all arguments.
func withIDs(statement string, first any, ids []string) (text string, args []any) {
	args = append(args, first)
	places := make([]string, len(ids))
	for i, id := range ids {
		args = append(args, id)
		places[i] = fmt.Sprintf("$%d", i+2)
	}
	return strings.ReplaceAll(statement, "IN IDS", "IN ("+strings.Join(places, ", ")+")"), args
}

// maxInsertRows bounds the rows of one statement.
const maxInsertRows = 32

// InsertRows inserts rows into "table (columns)". Statements have 1, 2, 4, … rows, so that there are
// few of them for the driver to remember.
func (t Tx) InsertRows(into string, rows [][]any) error {
	for len(rows) > 0 {
		n := min(1<<(bits.Len(uint(len(rows)))-1), maxInsertRows)
		var text strings.Builder
		text.WriteString(`INSERT INTO ` + into + ` VALUES `)
		var args []any
		next := `(`
		for _, row := range rows[:n] {
			for _, value := range row {
				args = append(args, value)
				text.WriteString(next)
				text.WriteByte('$')
				text.WriteString(strconv.Itoa(len(args)))
				next = `,`
			}
			next = `),(`
		}
		text.WriteByte(')')
		if err := t.Exec(text.String(), args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// LockServers keeps servers of the database away until unlock is called and the transaction has
// ended; ErrServerLive while there is one.
func (t Tx) LockServers() (unlock func() error, err error) { return t.db.engine.lockServers(t) }

// Time returns the time of the clock that all servers on the database share.
func (t Tx) Time() (time.Time, error) { return t.db.engine.clock(t) }

func (t Tx) commit() error {
	if t.pipeline != nil {
		return t.pipeline.commit(t.ctx)
	}
	return t.sql.(*sql.Tx).Commit()
}

// end undoes the transaction unless it has ended, and gives its connection back.
func (t Tx) end() {
	if t.pipeline != nil {
		t.pipeline.end(t.ctx)
		return
	}
	_ = t.sql.(*sql.Tx).Rollback()
}
