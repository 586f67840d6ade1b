// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// lastUsedInterval is how often last-used and last-seen times are written, in one transaction.
const lastUsedInterval = 10 * time.Second

// lastUsedTimes collects when credentials were used and operators seen, until they are written in a
// batch, without events.
type lastUsedTimes struct {
	mu      sync.Mutex
	pending map[lastUsedKey]time.Time
	flushed time.Time
}

type lastUsedKey struct {
	statement string
	id        string
}

func compareLastUsed(a, b lastUsedKey) int {
	return cmp.Or(cmp.Compare(a.statement, b.statement), cmp.Compare(a.id, b.id))
}

// Each statement sets a time that only moves forward.
const (
	apiKeyUsed    = `UPDATE api_keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`
	authtokenUsed = `UPDATE authtokens SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`
	clusterUsed   = `UPDATE clusters SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`
	operatorSeen  = `UPDATE operators SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1`
)

// recordUse notes that the object with the id was used now; statement is one of the above.
func (s *Store) recordUse(statement, id string) {
	now := s.now()
	s.lastUsed.mu.Lock()
	defer s.lastUsed.mu.Unlock()
	if s.lastUsed.pending == nil {
		s.lastUsed.pending = map[lastUsedKey]time.Time{}
	}
	s.lastUsed.pending[lastUsedKey{statement, id}] = now
}

func (s *Store) flushLastUsedIfDue(ctx context.Context) error {
	s.lastUsed.mu.Lock()
	due := len(s.lastUsed.pending) > 0 && s.now().Sub(s.lastUsed.flushed) >= lastUsedInterval
	s.lastUsed.mu.Unlock()
	if !due {
		return nil
	}
	return s.flushLastUsed(ctx)
}

// flushLastUsed writes the pending times. After an error they are lost.
func (s *Store) flushLastUsed(ctx context.Context) error {
	s.lastUsed.mu.Lock()
	pending := s.lastUsed.pending
	s.lastUsed.pending, s.lastUsed.flushed = nil, s.now()
	s.lastUsed.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	return s.write(ctx, "writing last-used times", func(t *tx) error {
		for _, key := range slices.SortedFunc(maps.Keys(pending), compareLastUsed) {
			if err := t.Exec(key.statement, micros(pending[key]), key.id); err != nil {
				return err
			}
		}
		return nil
	})
}
