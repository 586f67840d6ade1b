// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
)

// rejoin adds the replica's row again, which a standby that was promoted may lack if the replica
// had just joined. The row was lost, and not deleted by another replica, if the database has
// another history than at the last beat that was counted, and less than fenceAfter has passed
// since: so long a beat must be missing before a replica is fenced. ErrFenced otherwise.
func (b *beater) rejoin(ctx context.Context) error {
	if !b.counted || b.clock()-b.last >= b.s.opt.BeatTimes.FenceAfter {
		return ErrFenced
	}
	var database string
	if err := b.conn.QueryRow(ctx, `SELECT `+b.s.engine.(*postgresEngine).databaseProcess()).
		Scan(&database); err != nil {
		b.disconnect()
		return err
	}
	if database == b.observer.database {
		return ErrFenced
	}
	return b.s.rejoin(ctx)
}

// rejoin adds the replica's row. ErrFenced when the store has come to be used otherwise.
func (s *Store) rejoin(ctx context.Context) error {
	own := *s.opt.Replica
	own.Draining = s.draining.Load()
	err := s.transact(ctx, func(t *tx) error {
		t.joining = true
		if err := s.engine.lockWrites(t); err != nil {
			return err
		}
		var mode string
		var otherURLs int
		err := t.row(`SELECT mode, (SELECT COUNT(*) FROM replicas WHERE base_url <> $1) FROM store`, own.BaseURL).
			Scan(&mode, &otherURLs)
		switch {
		case err != nil:
			return err
		case mode != modeReplicas || otherURLs > 0:
			return ErrFenced
		}
		return t.join(&own)
	})
	if errors.Is(err, ErrFenced) {
		return ErrFenced
	}
	return s.mapError("joining the other servers again", err)
}
