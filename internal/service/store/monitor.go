// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

const (
	// An operator that was last seen before operatorSilent is silent, and before operatorGone it is
	// gone: its cluster may no longer exist.
	operatorSilent = 3 * time.Minute
	operatorGone   = 24 * time.Hour
	// Credentials count that live for at least credentialLife and were used within credentialUse,
	// from their creation until expiredFor after their expiry.
	credentialLife = 14 * 24 * time.Hour
	credentialUse  = 7 * 24 * time.Hour
	expiredFor     = 24 * time.Hour
)

// Monitored is the state of the rows of all accounts, for monitoring the service.
type Monitored struct {
	// Operators that were seen within 3 minutes, within a day, and before that.
	ActiveOperators, SilentOperators, GoneOperators int
	// When the next API key and the next authtoken expire, of those that are in use; zero if none
	// does. One that has expired counts for another day.
	APIKeyExpiry, AuthtokenExpiry time.Time
	// When the oldest audit event of a class occurred that is still kept; zero if there is none.
	OldestSecurityEvent, OldestActivityEvent time.Time
}

// Monitored reads the rows that metrics show. It reads whole tables: call it once a minute.
func (s *Store) Monitored(ctx context.Context) (m Monitored, err error) {
	err = s.db.read(ctx, "counting operators and credentials", func(t *tx) error {
		if err := m.countOperators(t); err != nil {
			return err
		}
		if err := nextExpiry(t, apiKeys.name, &m.APIKeyExpiry); err != nil {
			return err
		}
		if err := nextExpiry(t, authtokens.name, &m.AuthtokenExpiry); err != nil {
			return err
		}
		for class, oldest := range map[string]*time.Time{securityEvent: &m.OldestSecurityEvent,
			activityEvent: &m.OldestActivityEvent} {
			row := t.Row(`SELECT at FROM audit_events WHERE ` + class + ` ORDER BY at LIMIT 1`)
			if _, err := row.Find(sqldb.TimeField(oldest)); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// countOperators counts the operators of clusters; others, which register only once, are never
// silent.
func (m *Monitored) countOperators(t *tx) error {
	return t.Row(`SELECT COALESCE(SUM(CASE WHEN last_seen_at > $1 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN last_seen_at <= $1 AND last_seen_at > $2 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN last_seen_at <= $2 THEN 1 ELSE 0 END), 0)
		FROM operators WHERE cluster_uid <> ''`,
		sqldb.Micros(t.now.Add(-operatorSilent)), sqldb.Micros(t.now.Add(-operatorGone))).
		Scan(&m.ActiveOperators, &m.SilentOperators, &m.GoneOperators)
}

// nextExpiry reads the earliest expiry in a table of credentials.
func nextExpiry(t *tx, table string, expiry *time.Time) error {
	var at int64
	err := t.Row(`SELECT COALESCE(MIN(expires_at), 0) FROM `+table+` WHERE expires_at > $1 AND last_used_at > $2
		AND expires_at - created_at >= $3`, sqldb.Micros(t.now.Add(-expiredFor)),
		sqldb.Micros(t.now.Add(-credentialUse)), credentialLife.Microseconds()).Scan(&at)
	if at > 0 {
		*expiry = time.UnixMicro(at)
	}
	return err
}

const (
	probeEvery = time.Second
	probeSize  = 16 << 10 // bytes, which need pages of their own
)

// probe is the outcome of the last write that a Ping made.
type probe struct {
	lock *sqldb.ServerLock
	mu   sync.Mutex
	at   time.Time
	err  error
}

// Ping checks that the store reads and writes: nil, or CodeUnavailable with the reason. It writes
// at most once in probeEvery. A write that has not ended when ctx does counts as none: the store is
// busy.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.probe.lock.Check(); err != nil {
		return err
	}
	var one int
	if err := s.db.Row(ctx, `SELECT 1 FROM store`).Scan(&one); err != nil {
		return s.db.MapError("asking the store", err)
	}
	p := &s.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.db.Now()
	if since := now.Sub(p.at); since >= 0 && since < probeEvery {
		return p.err
	}
	err := s.db.write(ctx, "asking the store to write", func(t *tx) error {
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
