// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// activeEvery is how often the row of a session that is used is written, at the most; more often
// with a short idle time.
const activeEvery = time.Minute

// sessionUses holds when sessions were used, until that is written. A session's idle time counts
// from the last use, written or not, so that it is exact; the uses of the last minute are lost with
// a server that is killed, and with them a minute of idle time, never more.
type sessionUses struct {
	mu      sync.Mutex
	pending map[string]use // by session
	flushed time.Time
}

// use is the last use of a session; times are in microseconds.
type use struct {
	userID, url       string
	at, written, idle int64 // written is the time in the row
}

// every is how often the row is to be written.
func (u use) every() int64 {
	if u.idle > 0 {
		return min(activeEvery.Microseconds(), u.idle/4)
	}
	return activeEvery.Microseconds()
}

// isShort reports whether the idle time is less than two minutes: uses do not wait for a batch then.
func (u use) isShort() bool { return u.every() < activeEvery.Microseconds()/2 }

// writeSlack is how long the write of a use may take.
const writeSlack = 5 * time.Second

// useSlack returns how long a use of a session with this idle time, in microseconds, may be known
// only to the replica that noted it.
func useSlack(idle int64) int64 {
	u := use{idle: idle}
	slack := u.every() + writeSlack.Microseconds()
	if !u.isShort() {
		slack += lastUsedInterval.Microseconds()
	}
	return slack
}

// isOver reports whether a session has ended. Of several replicas none refuses one that another may
// have seen used within its idle time.
func (as *UserSessions) isOver(l lifetime, now int64) bool {
	if as.db.replicaID != "" && l.idle > 0 {
		l.lastActive += useSlack(l.idle)
	}
	return l.expires() <= now
}

// retention returns how long the row of an ended session is kept, for uses that are not written
// yet: with several replicas also for uses within the slack.
func (as *UserSessions) retention() int64 {
	if as.db.replicaID != "" {
		return 2 * activeEvery.Microseconds()
	}
	return activeEvery.Microseconds()
}

func (u *sessionUses) record(id string, now use) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.at <= max(now.written, u.pending[id].at) {
		return
	}
	if u.pending == nil {
		u.pending = map[string]use{}
	}
	u.pending[id] = now
}

// last returns the last use of a session that is not written; 0 = none.
func (u *sessionUses) last(id string) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pending[id].at
}

func (u *sessionUses) lastOf(ids []string) map[string]int64 {
	found := map[string]int64{}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		if use, ok := u.pending[id]; ok {
			found[id] = use.at
		}
	}
	return found
}

// due returns what is to be written now: what has waited for long enough, in batches unless an idle
// time is short.
func (u *sessionUses) due(now time.Time, all bool) map[string]use {
	u.mu.Lock()
	defer u.mu.Unlock()
	inTurn := all || now.Sub(u.flushed) >= lastUsedInterval
	found := map[string]use{}
	for id, use := range u.pending {
		if all || (inTurn || use.isShort()) && micros(now)-use.written >= use.every() {
			found[id] = use
		}
	}
	if len(found) > 0 && inTurn {
		u.flushed = now
	}
	return found
}

// written forgets the uses that are in the rows now, unless there were more meanwhile.
func (u *sessionUses) written(ids []string, uses map[string]use) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		if u.pending[id].at == uses[id].at {
			delete(u.pending, id)
		}
	}
}

// The statements only update: deleted rows stay deleted. Times only move forward.
const (
	useSession = `UPDATE app_sessions SET last_active = $1,
		expires_at = CASE WHEN idle > 0 AND $1 + idle < ends_at THEN $1 + idle ELSE ends_at END
		WHERE id = $2 AND last_active < $1`
	useUser   = `UPDATE app_users SET last_active = $1 WHERE id = $2 AND last_active < $1`
	useAccess = `UPDATE app_accesses SET last_at = $1 WHERE user_id = $2 AND url = $3 AND last_at < $1`
)

// flush writes the uses that are due, or all, and the devices that were noted. What cannot be
// written stays for the next time.
func (as *UserSessions) flush(ctx context.Context, all bool) error {
	failed := as.devices.flush(ctx, as.db)
	due := as.uses.due(as.db.now(), all)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(due)), 5*sweepBatch) {
		err := as.db.write(ctx, "writing when sessions were used", func(t *tx) error {
			for _, id := range ids {
				if err := due[id].write(t, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return errors.Join(failed, err)
		}
		as.uses.written(ids, due)
	}
	return failed
}

// write writes the use of the session to its row and those of its user.
func (u use) write(t *tx, id string) error {
	if err := t.Exec(useSession, u.at, id); err != nil {
		return err
	}
	if err := t.Exec(useUser, u.at, u.userID); err != nil {
		return err
	}
	return t.Exec(useAccess, u.at, u.userID, u.url)
}
