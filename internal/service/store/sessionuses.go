// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
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
		if all || (inTurn || use.isShort()) && sqldb.Micros(now)-use.written >= use.every() {
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
	due := as.uses.due(as.db.Now(), all)
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

// lastDevices holds the devices that have used sessions since the last sweep, until they are
// written. It is safe for concurrent use.
type lastDevices struct {
	mu      sync.Mutex
	pending map[string]lastDevice // by session
}

type lastDevice struct {
	accountID string
	device    account.Device
	changed   bool
	at        time.Time
}

// add holds the device of a session until it is written, unless one that is a change is held already.
func (d *lastDevices) add(id string, now lastDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending[id].changed {
		return
	}
	if d.pending == nil {
		d.pending = map[string]lastDevice{}
	}
	d.pending[id] = now
}

// byAccount returns the ids of the pending sessions by account, and the devices.
func (d *lastDevices) byAccount() (ids map[string][]string, devices map[string]lastDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids = map[string][]string{}
	for id, one := range d.pending {
		ids[one.accountID] = append(ids[one.accountID], id)
	}
	return ids, maps.Clone(d.pending)
}

// remove drops devices that were written, unless there were others meanwhile.
func (d *lastDevices) remove(ids []string, devices map[string]lastDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.pending[id].at.Equal(devices[id].at) {
			delete(d.pending, id)
		}
	}
}

// RecordDevice implements account.Logins.
func (as *UserSessions) RecordDevice(l *account.LiveSession, d account.Device) {
	if due, changed := l.LastUse.Compare(d, as.db.Now()); due {
		as.devices.add(l.ID, lastDevice{l.AccountID, d, changed, as.db.Now()})
	}
}

// flush writes the devices that are held. What cannot be written stays for the next time.
func (d *lastDevices) flush(ctx context.Context, db *database) error {
	byAccount, devices := d.byAccount()
	for _, ids := range byAccount {
		for some := range slices.Chunk(slices.Sorted(slices.Values(ids)), sweepBatch) {
			err := db.write(ctx, "writing which devices use sessions", func(t *tx) error {
				for _, id := range some {
					if err := devices[id].save(t, id); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			d.remove(some, devices)
		}
	}
	return nil
}

// save writes the device of a session, unless the session has ended or another replica has written
// it.
func (d lastDevice) save(t *tx, id string) error {
	var userID, url, login, last string
	var writtenAt, changedAt int64
	live, err := t.Row(`SELECT user_id, url, device, last_device, last_device_at, device_changed_at FROM app_sessions
		WHERE id = $1 AND expires_at > $2`, id, sqldb.Micros(t.now)).
		Find(&userID, &url, &login, &last, &writtenAt, &changedAt)
	if err != nil || !live {
		return err
	}
	var first account.Device
	if err := json.Unmarshal([]byte(login), &first); err != nil {
		return fmt.Errorf("decoding the device of session %s: %w", id, err)
	}
	before, err := lastUse(last, writtenAt, changedAt)
	if err != nil {
		return fmt.Errorf("decoding the last device of session %s: %w", id, err)
	}
	due, changed := before.Compare(d.device, t.now)
	if !due {
		return nil
	}
	if changed {
		changedAt = sqldb.Micros(t.now)
		d.audit(t, id, userID, url, before.Device)
	}
	text, err := json.Marshal(d.device)
	if err != nil {
		return fmt.Errorf("encoding a device: %w", err)
	}
	return t.Exec(`UPDATE app_sessions SET last_device = $1, last_device_at = $2, device_changed_at = $3, search = $4
		WHERE id = $5`, string(text), sqldb.Micros(t.now), changedAt,
		searchable(url, first.IPAddress, d.device.IPAddress), id)
}

// audit records the change from the device before.
func (d lastDevice) audit(t *tx, id, userID, url string, before account.Device) {
	now := d.device
	details := map[string]string{"user_id": userID, "url": url, "ip": now.IPAddress, "previous_ip": before.IPAddress,
		"browser": now.UserAgent.Summary(), "previous_browser": before.UserAgent.Summary(),
		"country": now.Location.Country(), "previous_country": before.Location.Country()}
	maps.DeleteFunc(details, func(_, value string) bool { return value == "" })
	t.audit(account.Caller{AccountID: d.accountID, PrincipalID: userID}, account.AuditAppDeviceChanged, id, details)
}

// lastUse returns the last use of a session from its columns.
func lastUse(device string, writtenAt, changedAt int64) (l account.LastUse, err error) {
	l.WrittenAt, l.ChangedAt = sqldb.FromMicros(writtenAt), sqldb.FromMicros(changedAt)
	return l, json.Unmarshal([]byte(device), &l.Device)
}
