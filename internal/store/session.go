// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const sessionColumns = `id, account_id, credential_id, agent_version, ip, metadata, os, region, transport, instance_id, server_id, started_at`

func scanSession(from scanner) (account.TunnelSession, error) {
	var s account.TunnelSession
	var started int64
	err := from.Scan(&s.ID, &s.AccountID, &s.Credential.ID, &s.AgentVersion, &s.IP, &s.Metadata, &s.OS, &s.Region,
		&s.Transport,
		&s.InstanceID, &s.ServerID, &started)
	s.StartedAt = fromMicros(started)
	return s, err
}

// StartSession implements account.SessionStarter. A zero StartedAt means now.
func (s *Store) StartSession(ctx context.Context, session account.TunnelSession) error {
	if err := session.Validate(); err != nil {
		return err
	}
	return s.write(ctx, "starting a tunnel session", func(t *tx) error {
		started := session.StartedAt
		if started.IsZero() {
			started = t.now
		}
		t.audit(account.Caller{AccountID: session.AccountID, PrincipalID: session.Credential.ID}, account.AuditSessionStarted,
			session.ID, sessionDetails(session))
		return t.exec(`INSERT INTO tunnel_sessions (`+sessionColumns+
			`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			session.ID, session.AccountID, session.Credential.ID, session.AgentVersion, session.IP, session.Metadata, session.OS,
			session.Region, session.Transport, session.InstanceID, session.ServerID, micros(started))
	})
}

// endSessions deletes the sessions that the condition selects.
func (t *tx) endSessions(end account.SessionEnd, condition string, args ...any) error {
	var ended []account.TunnelSession
	err := t.each(func(from scanner) error {
		session, err := scanSession(from)
		ended = append(ended, session)
		return err
	}, `DELETE FROM tunnel_sessions WHERE `+condition+` RETURNING `+sessionColumns, args...)
	if err != nil {
		return err
	}
	for _, session := range ended {
		details, by := sessionDetails(session), session.Credential.ID
		details["reason"] = cmp.Or(end.Reason, "the connection ended")
		if end.Reason != "" {
			if by, err = t.endedBy(session.AccountID, end); err != nil {
				return err
			}
		}
		if end.CausedByID != "" {
			details["because"] = end.CausedByID
		}
		t.audit(account.Caller{AccountID: session.AccountID, PrincipalID: by}, account.AuditSessionEnded, session.ID, details)
	}
	return nil
}

// endedBy says who ended a session: "" for the service itself, and for who administers it.
func (t *tx) endedBy(accountID string, end account.SessionEnd) (principalID string, err error) {
	if end.PrincipalID != "" || end.CausedByID == "" {
		return end.PrincipalID, nil
	}
	err = t.row(`SELECT principal_id FROM audit_events WHERE account_id = $1 AND object_id = $2
		AND (type LIKE '%.deleted' OR type LIKE '%.updated') ORDER BY seq DESC LIMIT 1`, accountID, end.CausedByID).
		Scan(&principalID)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return principalID, err
}

func sessionDetails(s account.TunnelSession) map[string]string {
	return map[string]string{"ip": s.IP, "agent_version": s.AgentVersion, "os": s.OS}
}

// TunnelSession implements account.TunnelSessions.
func (s *Store) TunnelSession(ctx context.Context, accountID, id string) (*account.TunnelSession, error) {
	var found account.TunnelSession
	err := s.read(ctx, "reading a tunnel session", func(t *tx) (err error) {
		found, err = scanSession(t.row(`SELECT `+sessionColumns+` FROM tunnel_sessions WHERE account_id = $1 AND id = $2`,
			accountID, id))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound("tunnel session", id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// ListTunnelSessions implements account.TunnelSessions.
func (s *Store) ListTunnelSessions(
	ctx context.Context, accountID string, p account.Page,
) (*account.TunnelSessionPage, error) {
	limit := pageLimit(p)
	page := &account.TunnelSessionPage{Sessions: []account.TunnelSession{}}
	err := s.read(ctx, "listing tunnel sessions", func(t *tx) error {
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		return t.each(func(from scanner) error {
			found, err := scanSession(from)
			page.Sessions = append(page.Sessions, found)
			return err
		}, `SELECT `+sessionColumns+` FROM tunnel_sessions WHERE `+q.text+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit+1),
			q.args...)
	})
	if err != nil {
		return nil, err
	}
	if page.More = len(page.Sessions) > limit; page.More {
		page.Sessions = page.Sessions[:limit]
	}
	return page, nil
}
