// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// SetBeatTimes is called before Beat.
func (s *Store) SetBeatTimes(interval, timeout, fenceAfter time.Duration) {
	s.opt.BeatTimes = BeatTimes{interval, timeout, fenceAfter}
}

// SetPollInterval is called before Listen.
func (s *Store) SetPollInterval(d time.Duration) { s.pollInterval = d }

// PostgresSchema returns a migration as PostgreSQL runs it.
func PostgresSchema(text string) string { return postgresEngine{}.schema(text) }

// HoldTurn waits for the turn to write and keeps it until release is called, so that calls wait.
func (s *Store) HoldTurn(ctx context.Context) (release func(), err error) {
	hasTurn, err := s.writes.wait(&writeCall{ctx: ctx, turn: make(chan bool, 1)})
	if !hasTurn {
		return nil, err
	}
	return s.writes.pass, nil
}

// WaitingCalls returns how many calls wait for the turn to write.
func (s *Store) WaitingCalls() int {
	s.writes.mu.Lock()
	defer s.writes.mu.Unlock()
	return len(s.writes.waiting)
}

// Bounds of a batch.
const (
	MaxBatchCalls  = maxBatchCalls
	MaxBatchEvents = maxBatchEvents
)

// ClusterIDs returns how many cluster ids are claimed.
func (s *Store) ClusterIDs(ctx context.Context) (n int, err error) {
	err = s.read(ctx, "counting cluster ids", func(t *tx) error {
		return t.row(`SELECT COUNT(*) FROM cluster_ids`).Scan(&n)
	})
	return n, err
}

// Setting returns a setting of PostgreSQL on the connection that writes.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.writer.QueryRowContext(ctx, `SELECT current_setting($1)`, name).Scan(&value)
	return value, err
}
