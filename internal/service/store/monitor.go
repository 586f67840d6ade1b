// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
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
	err = s.read(ctx, "counting operators and credentials", func(t *tx) error {
		if err := t.countOperators(&m); err != nil {
			return err
		}
		for table, expiry := range map[string]*time.Time{"api_keys": &m.APIKeyExpiry,
			"authtokens": &m.AuthtokenExpiry} {
			if err := t.nextExpiry(table, expiry); err != nil {
				return err
			}
		}
		if err := t.oldestAudit(securityEvent, &m.OldestSecurityEvent); err != nil {
			return err
		}
		return t.oldestAudit(activityEvent, &m.OldestActivityEvent)
	})
	return m, err
}

// countOperators counts the operators of clusters; others, which register only once, are never
// silent.
func (t *tx) countOperators(m *Monitored) error {
	return t.Row(`SELECT COALESCE(SUM(CASE WHEN last_seen_at > $1 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN last_seen_at <= $1 AND last_seen_at > $2 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN last_seen_at <= $2 THEN 1 ELSE 0 END), 0)
		FROM operators WHERE cluster_uid <> ''`,
		micros(t.now.Add(-operatorSilent)), micros(t.now.Add(-operatorGone))).
		Scan(&m.ActiveOperators, &m.SilentOperators, &m.GoneOperators)
}

// nextExpiry reads the earliest expiry in a table of credentials.
func (t *tx) nextExpiry(table string, expiry *time.Time) error {
	var at int64
	err := t.Row(`SELECT COALESCE(MIN(expires_at), 0) FROM `+table+` WHERE expires_at > $1 AND last_used_at > $2
		AND expires_at - created_at >= $3`, micros(t.now.Add(-expiredFor)), micros(t.now.Add(-credentialUse)),
		credentialLife.Microseconds()).Scan(&at)
	if at > 0 {
		*expiry = time.UnixMicro(at)
	}
	return err
}

// oldestAudit reads when the oldest audit event of a class occurred.
func (t *tx) oldestAudit(class string, oldest *time.Time) error {
	_, err := t.Row(`SELECT at FROM audit_events WHERE ` + class + ` ORDER BY at LIMIT 1`).Find(timeField(oldest))
	return err
}
