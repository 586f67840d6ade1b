// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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
	if due, changed := l.LastUse.Compare(d, as.db.now()); due {
		as.devices.add(l.ID, lastDevice{l.AccountID, d, changed, as.db.now()})
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
		WHERE id = $1 AND expires_at > $2`, id, micros(t.now)).
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
		changedAt = micros(t.now)
		d.audit(t, id, userID, url, before.Device)
	}
	text, err := json.Marshal(d.device)
	if err != nil {
		return fmt.Errorf("encoding a device: %w", err)
	}
	return t.Exec(`UPDATE app_sessions SET last_device = $1, last_device_at = $2, device_changed_at = $3, search = $4
		WHERE id = $5`, string(text), micros(t.now), changedAt,
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
	l.WrittenAt, l.ChangedAt = fromMicros(writtenAt), fromMicros(changedAt)
	return l, json.Unmarshal([]byte(device), &l.Device)
}
