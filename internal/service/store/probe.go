// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"
	"time"
)

const (
	probeEvery = time.Second
	probeSize  = 16 << 10 // bytes, which need pages of their own
)

// probe is the outcome of the last write that a Ping made.
type probe struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// Ping checks that the store reads and writes: nil, or CodeUnavailable with the reason. It writes
// at most once in probeEvery. A write that has not ended when ctx does counts as none: the store is
// busy.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.opt.Lock.Check(); err != nil {
		return err
	}
	var one int
	if err := s.db.Row(ctx, `SELECT 1 FROM store`).Scan(&one); err != nil {
		return s.db.MapError("asking the store", err)
	}
	p := &s.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.now()
	if since := now.Sub(p.at); since >= 0 && since < probeEvery {
		return p.err
	}
	err := s.write(ctx, "asking the store to write", func(t *tx) error {
		if err := t.Exec(`INSERT INTO write_probes (data) VALUES ($1)`, make([]byte, probeSize)); err != nil {
			return err
		}
		return t.Exec(`DELETE FROM write_probes`)
	})
	if ctx.Err() != nil {
		return nil
	}
	p.at, p.err = now, err
	return err
}
