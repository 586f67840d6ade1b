// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// SetPollInterval is called before Listen.
func (s *Store) SetPollInterval(d time.Duration) { s.pollInterval = d }

// HoldTurn waits for the turn to write and keeps it until release is called, so that calls wait.
func (s *Store) HoldTurn(ctx context.Context) (release func(), err error) {
	held, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.db.write(ctx, "holding the turn", func(*tx) error {
			close(held)
			<-done
			return nil
		})
	}()
	select {
	case <-held:
		return func() { close(done); <-ended }, nil
	case err := <-ended:
		return nil, err
	}
}

// WaitingCalls returns how many calls wait for the turn to write.
func (s *Store) WaitingCalls() int { return s.db.writes.Waiting() }

// MaxBatchEvents bounds a batch.
const MaxBatchEvents = maxBatchEvents

// ClusterIDs returns how many cluster ids are claimed.
func (s *Store) ClusterIDs(ctx context.Context) (n int, err error) {
	err = s.db.read(ctx, "counting cluster ids", func(t *tx) error {
		return t.Row(`SELECT COUNT(*) FROM cluster_ids`).Scan(&n)
	})
	return n, err
}

// Setting returns a setting of PostgreSQL on the connection that writes.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.db.WriterRow(ctx, `SELECT current_setting($1)`, name).Scan(&value)
	return value, err
}
