// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// history names the history that the database writes; "" where there is one only. Another one,
// after a failover, may lack what was written last.
func (t *tx) history() (name string, err error) {
	e, ok := t.s.engine.(*postgresEngine)
	if !ok {
		return "", nil
	}
	return name, t.row(`SELECT ` + e.timeline).Scan(&name)
}

// OwnLegs implements account.SessionLegs.
func (s *Store) OwnLegs(ctx context.Context) (own account.OwnLegs, err error) {
	if s.opt.Replica == nil {
		return own, nil
	}
	err = s.read(ctx, "reading the connections of tunnel sessions", func(t *tx) (err error) {
		if own.History, err = t.history(); err != nil {
			return err
		}
		return t.each(func(from scanner) error {
			var id string
			err := from.Scan(&id)
			own.SessionIDs = append(own.SessionIDs, id)
			return err
		}, `SELECT session_id FROM legs WHERE replica_id = $1`, s.opt.Replica.ID)
	})
	return own, err
}

// CorrectLegs implements account.SessionLegs.
func (s *Store) CorrectLegs(ctx context.Context, add, remove []string) error {
	if s.opt.Replica == nil {
		return nil
	}
	return s.write(ctx, "correcting the connections of tunnel sessions", func(t *tx) error {
		for batch := range slices.Chunk(add, inListBatch) {
			in, args := inList(batch, s.opt.Replica.ID)
			if err := t.exec(`INSERT INTO legs (session_id, replica_id)
				SELECT id, CAST($1 AS TEXT) FROM tunnel_sessions WHERE id IN `+in+` ON CONFLICT DO NOTHING`,
				args...); err != nil {
				return err
			}
		}
		for batch := range slices.Chunk(remove, inListBatch) {
			in, args := inList(batch, s.opt.Replica.ID)
			if err := t.exec(`DELETE FROM legs WHERE replica_id = $1 AND session_id IN `+in, args...); err != nil {
				return err
			}
		}
		return nil
	})
}
