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

	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// lastUsedInterval is how often last-used and last-seen times are written, in one transaction.
const lastUsedInterval = 10 * time.Second

// lastUsedTimes collects when credentials were used and operators seen, until they are written in a
// batch, without events.
type lastUsedTimes struct {
	db      *database
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

// record notes that the object with the id was used now; statement is one of the above.
func (u *lastUsedTimes) record(statement, id string) {
	now := u.db.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending == nil {
		u.pending = map[lastUsedKey]time.Time{}
	}
	u.pending[lastUsedKey{statement, id}] = now
}

// flush writes the pending times when lastUsedInterval has passed since the last time, or now. After
// an error they are lost.
func (u *lastUsedTimes) flush(ctx context.Context, now bool) error {
	at := u.db.Now()
	u.mu.Lock()
	pending := u.pending
	if !now && at.Sub(u.flushed) < lastUsedInterval {
		pending = nil
	}
	if len(pending) > 0 {
		u.pending, u.flushed = nil, at
	}
	u.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	return u.db.write(ctx, "writing last-used times", func(t *tx) error {
		for _, key := range slices.SortedFunc(maps.Keys(pending), compareLastUsed) {
			if err := t.Exec(key.statement, sqldb.Micros(pending[key]), key.id); err != nil {
				return err
			}
		}
		return nil
	})
}
