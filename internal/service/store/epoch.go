// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// An epoch is a history of version numbers. Another one begins when numbers could be given out
// twice: after a restore, and on another timeline of PostgreSQL. Watchers of an earlier epoch list
// again.

// readIdentity reads the store's id and epoch.
func (s *Store) readIdentity(ctx context.Context, explain func(error) error) error {
	var epoch int64
	err := s.reader.QueryRowContext(ctx, `SELECT store_id, epoch FROM store`).Scan(&s.storeID, &epoch)
	if err != nil {
		return explain(err)
	}
	s.epoch.Store(epoch)
	return nil
}

// beginEpoch begins an epoch above the current and the given one. Its versions go on from the
// current numbers; there are no events of earlier ones.
func (t *tx) beginEpoch(above int64) error {
	t.epoch = max(t.epoch+1, above+1, t.now.Unix())
	for _, statement := range []string{`DELETE FROM events`, `UPDATE accounts SET compacted_seq = seq`} {
		if err := t.exec(statement); err != nil {
			return err
		}
	}
	return t.exec(`UPDATE store SET epoch = $1`, t.epoch)
}

// recordEpoch records the epoch of a transaction that was committed. All watchers wake for another
// one.
func (s *Store) recordEpoch(epoch int64) {
	if s.epoch.Swap(epoch) != epoch {
		s.wakes.wakeAll()
		s.auditWakes.wakeAll()
	}
}
