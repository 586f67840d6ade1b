// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// refField is stored as the id, nil as "".
func refField(ref **account.Ref) sqldb.Converted[string] {
	return sqldb.Convert(func() string { return idOf(*ref) }, func(id string) { *ref = refTo(id) })
}

// table maps values of T to the rows of a table. Its first column is the id.
type table[T any] struct {
	name, noun string                    // noun is for messages: "API key"
	columns    func(v *T) []sqldb.Column // in the order of the statements
	names      string                    // column names, separated by commas

	// types of the audit events that create, patchRow and deleteRow write
	created, updated, deleted account.AuditType
	details                   func(v *T) map[string]string
	updatedAt                 func(v *T) *time.Time // set by patchRow; nil = there is no such column
}

// newTable returns the table with its column names.
func newTable[T any](tb table[T]) table[T] {
	var names []string
	for _, c := range tb.columns(new(T)) {
		names = append(names, c.Name)
	}
	tb.names = strings.Join(names, ", ")
	return tb
}

func (tb *table[T]) id(v *T) string { return *tb.columns(v)[0].Field.(*string) }

func (tb *table[T]) scan(from scanner) (v T, err error) {
	var fields []any
	for _, c := range tb.columns(&v) {
		fields = append(fields, c.Field)
	}
	err = from.Scan(fields...)
	return v, err
}

// all returns the rows that the clause after WHERE selects; it is not nil.
func (tb *table[T]) all(t *tx, clause string, args ...any) ([]T, error) {
	return sqldb.Collect(t.Tx, tb.scan, `SELECT `+tb.names+` FROM `+tb.name+` WHERE `+clause, args...)
}

// first returns the row that the clause after WHERE selects, nil when there is none.
func (tb *table[T]) first(t *tx, clause string, args ...any) (*T, error) {
	v, err := tb.scan(t.Row(`SELECT `+tb.names+` FROM `+tb.name+` WHERE `+clause, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &v, err
}

// get returns the row of the account with the id; CodeNotFound when there is none.
func (tb *table[T]) get(t *tx, accountID, id string) (*T, error) {
	v, err := tb.first(t, `account_id = $1 AND id = $2`, accountID, id)
	if err == nil && v == nil {
		return nil, notFound(tb.noun, id)
	}
	return v, err
}

// page returns a page of the rows that the condition selects, newest first.
func (tb *table[T]) page(t *tx, p account.Page, condition string, args ...any) (found []T, more bool, err error) {
	limit := pageLimit(p)
	q := query{text: condition, args: args}
	q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
	found, err = tb.all(t, q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1), q.args...)
	found, more = cut(found, limit)
	return found, more, err
}

// cut returns the rows of a page, of which one more than the limit was read if there is one.
func cut[T any](read []T, limit int) (page []T, more bool) {
	return read[:min(limit, len(read))], len(read) > limit
}

// insert writes a new row. extra columns are never read.
func (tb *table[T]) insert(t *tx, v *T, extra ...sqldb.Column) error {
	names, args, err := sqldb.ColumnValues(append(tb.columns(v), extra...))
	if err != nil {
		return err
	}
	return t.InsertRows(tb.name+` (`+strings.Join(names, ", ")+`)`, [][]any{args})
}

// update writes the updatable columns of a row.
func (tb *table[T]) update(t *tx, v *T) error {
	names, args, err := sqldb.ColumnValues(slices.DeleteFunc(tb.columns(v),
		func(c sqldb.Column) bool { return !c.Updatable }))
	if err != nil {
		return err
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s = $%d", name, i+1)
	}
	args = append(args, tb.id(v))
	return t.Exec(`UPDATE `+tb.name+` SET `+strings.Join(names, ", ")+` WHERE id = $`+strconv.Itoa(len(args)), args...)
}

// checkLimit refuses one more row of the account when it has as many as it may.
func (tb *table[T]) checkLimit(t *tx, accountID string, most int, remedy string) error {
	return t.checkLimit(tb.name, tb.noun+"s", accountID, most, remedy)
}

func (tb *table[T]) audit(t *tx, by account.Caller, what account.AuditType, v *T) {
	t.audit(by, what, tb.id(v), tb.details(v))
}

// readRow returns the row of the account with the id; CodeNotFound when there is none.
func readRow[T any](ctx context.Context, db *database, tb *table[T], accountID, id string) (*T, error) {
	return result(ctx, db, "reading "+tb.noun, func(t *tx) (*T, error) { return tb.get(t, accountID, id) })
}

// readPage returns a page of the account's rows, newest first.
func readPage[T any](
	ctx context.Context, db *database, tb *table[T], accountID string, p account.Page,
) (page []T, more bool, err error) {
	err = db.read(ctx, "listing "+tb.noun+"s", func(t *tx) (err error) {
		page, more, err = tb.page(t, p, `account_id = $1`, accountID)
		return err
	})
	return page, more, err
}

// patchRow changes a row of the caller's account by apply, with an audit event. Without a
// difference it writes nothing.
func patchRow[T any](
	ctx context.Context, db *database, tb *table[T], by account.Caller, id string, apply func(*tx, T) (T, error),
) (*T, error) {
	var patched T
	err := db.write(ctx, "changing "+tb.noun, func(t *tx) error {
		existing, err := tb.get(t, by.AccountID, id)
		if err != nil {
			return err
		}
		if patched, err = apply(t, *existing); err != nil || reflect.DeepEqual(patched, *existing) {
			return err
		}
		if tb.updatedAt != nil {
			*tb.updatedAt(&patched) = t.now
		}
		tb.audit(t, by, tb.updated, &patched)
		return tb.update(t, &patched)
	})
	if err != nil {
		return nil, err
	}
	return &patched, nil
}

// deleteRow deletes a row of the caller's account that check, if not nil, does not refuse, with an
// audit event.
func deleteRow[T any](
	ctx context.Context, db *database, tb *table[T], by account.Caller, id string, check func(*tx, *T) error,
) error {
	return db.write(ctx, "deleting "+tb.noun, func(t *tx) error {
		existing, err := tb.get(t, by.AccountID, id)
		if err == nil && check != nil {
			err = check(t, existing)
		}
		if err != nil {
			return err
		}
		tb.audit(t, by, tb.deleted, existing)
		return t.Exec(`DELETE FROM `+tb.name+` WHERE account_id = $1 AND id = $2`, by.AccountID, id)
	})
}
