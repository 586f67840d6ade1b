// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "time"

// SetBeatTimes is called before Beat.
func (s *Store) SetBeatTimes(interval, timeout, fenceAfter time.Duration) {
	s.opt.BeatTimes = BeatTimes{interval, timeout, fenceAfter}
}

// SetPollInterval is called before Listen.
func (s *Store) SetPollInterval(d time.Duration) { s.pollInterval = d }

// PostgresSchema returns a migration as PostgreSQL runs it.
func PostgresSchema(text string) string { return postgresEngine{}.schema(text) }
