// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

const (
	// accessChangeSlack is how much longer AwaitServers waits than until a dead replica is fenced.
	accessChangeSlack = time.Second
	// accessChangeInterval is how often AwaitServers looks who has applied the change.
	accessChangeInterval = 50 * time.Millisecond
	// accessChangeLifetime is when the change of a command that was killed is removed; longer than
	// clocks differ.
	accessChangeLifetime = time.Hour
)

// Applied is which servers have applied a change of an account.
type Applied struct {
	Servers int      // that have; 0 with none missing: no server runs
	Missing []string // replicas that have not, and "" for a server that is alone
}

// AwaitServers waits until all live servers have applied what another process, a command, has
// committed of the account before: servers call PendingAccessChanges for it. It gives up when a dead
// replica would have been removed, and returns the servers that are missing then. Without a server
// it does not wait.
func (m *Members) AwaitServers(ctx context.Context, accountID string) (a Applied, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.opt.Times.FenceAfter+accessChangeSlack)
	defer cancel()
	id := ""
	err = m.writer.Write(ctx, "telling the servers of a change", func(t sqldb.Tx) error {
		id = ""
		unlock, err := t.LockServers()
		if !errors.Is(err, sqldb.ErrServerLive) {
			if err == nil {
				err = unlock()
			}
			return err
		}
		now := m.writer.Now()
		id = account.NewID(account.PrefixEvent, now)
		return t.Exec(`INSERT INTO access_changes (id, account_id, at) VALUES ($1, $2, $3)`, id, accountID,
			sqldb.Micros(now))
	})
	if err != nil || id == "" {
		return a, err
	}
	defer func() {
		err = errors.Join(err, m.writer.Write(context.WithoutCancel(ctx), "ending a change", func(t sqldb.Tx) error {
			return t.Exec(`DELETE FROM access_changes WHERE id = $1`, id)
		}))
	}()
	for more := true; more; more = len(a.Missing) > 0 && timer.Sleep(ctx, accessChangeInterval) {
		now, err := m.appliedBy(ctx, id)
		if err != nil && ctx.Err() == nil {
			return a, err
		}
		if err == nil {
			a = now
		}
	}
	return a, nil
}

// appliedBy returns which servers have applied the change.
func (m *Members) appliedBy(ctx context.Context, id string) (a Applied, err error) {
	err = m.db.Read(ctx, "reading which servers have applied a change", func(t sqldb.Tx) error {
		return t.Each(func(from sqldb.Scanner) error {
			var server string
			var applied bool
			err := from.Scan(&server, &applied)
			if applied {
				a.Servers++
			} else {
				a.Missing = append(a.Missing, server)
			}
			return err
		}, `SELECT s.id, p.server_id IS NOT NULL
			FROM (SELECT id FROM replicas WHERE relay_address <> '' UNION ALL SELECT '' FROM store WHERE mode = '') AS s
			LEFT JOIN access_changes_applied AS p ON p.change_id = $1 AND p.server_id = s.id ORDER BY s.id`, id)
	})
	return a, err
}

// AccessChange is a change of an account by a command.
type AccessChange struct{ ID, AccountID string }

// PendingAccessChanges returns the changes that commands have made and this server has not confirmed
// yet by ConfirmAccessChanges. The store has no others than those for which a command waits.
func (m *Members) PendingAccessChanges(ctx context.Context) (pending []AccessChange, err error) {
	err = m.db.Read(ctx, "reading changes by commands", func(t sqldb.Tx) (err error) {
		pending, err = sqldb.List(t, func(c *AccessChange) []any { return []any{&c.ID, &c.AccountID} },
			`SELECT id, account_id FROM access_changes WHERE id NOT IN
			(SELECT change_id FROM access_changes_applied WHERE server_id = $1) ORDER BY id`, m.ownID())
		return err
	})
	return pending, err
}

// ConfirmAccessChange records that this server has applied a change. It removes others that were
// abandoned.
func (m *Members) ConfirmAccessChange(ctx context.Context, id string) error {
	return m.writer.Write(ctx, "confirming a change", func(t sqldb.Tx) error {
		err := t.Exec(`DELETE FROM access_changes WHERE at < $1 AND id <> $2`,
			sqldb.Micros(m.writer.Now().Add(-accessChangeLifetime)), id)
		if err != nil {
			return err
		}
		return t.Exec(`INSERT INTO access_changes_applied (change_id, server_id)
			SELECT id, $1 FROM access_changes WHERE id = $2 ON CONFLICT DO NOTHING`, m.ownID(), id)
	})
}
