// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"
	"time"
)

// touchEvery is how often last-used and last-seen times are written, in one transaction.
const touchEvery = 10 * time.Second

// touched collects when credentials were used and operators seen, until they are written in a
// batch, without events.
type touched struct {
	mu      sync.Mutex
	pending map[touchKey]time.Time
	flushed time.Time
}

type touchKey struct {
	statement string
	id        string
}

// Each statement sets a time that only moves forward.
const (
	touchAPIKey    = `UPDATE api_keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`
	touchAuthtoken = `UPDATE authtokens SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`
	touchOperator  = `UPDATE operators SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1`
)

func (s *Store) touch(statement, id string) {
	now := s.now()
	s.touched.mu.Lock()
	defer s.touched.mu.Unlock()
	if s.touched.pending == nil {
		s.touched.pending = map[touchKey]time.Time{}
	}
	s.touched.pending[touchKey{statement, id}] = now
}

func (s *Store) flushTouchedIfDue(ctx context.Context) error {
	s.touched.mu.Lock()
	due := len(s.touched.pending) > 0 && s.now().Sub(s.touched.flushed) >= touchEvery
	s.touched.mu.Unlock()
	if !due {
		return nil
	}
	return s.flushTouched(ctx)
}

// flushTouched writes what is pending. After an error it is lost, which costs nothing but the
// freshness of a time.
func (s *Store) flushTouched(ctx context.Context) error {
	s.touched.mu.Lock()
	pending := s.touched.pending
	s.touched.pending, s.touched.flushed = nil, s.now()
	s.touched.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	return s.write(ctx, "writing last-used times", func(t *tx) error {
		for key, at := range pending {
			if err := t.exec(key.statement, micros(at), key.id); err != nil {
				return err
			}
		}
		return nil
	})
}
