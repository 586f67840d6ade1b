// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var tunnelSessions = newTable(table[account.TunnelSession]{
	name: "tunnel_sessions", noun: "tunnel session",
	columns: func(s *account.TunnelSession) []column {
		return []column{
			{"id", &s.ID, insertOnly},
			{"account_id", &s.AccountID, insertOnly},
			{"credential_id", &s.Credential.ID, insertOnly},
			{"agent_version", &s.AgentVersion, insertOnly},
			{"ip", &s.IP, insertOnly},
			{"metadata", &s.Metadata, insertOnly},
			{"os", &s.OS, insertOnly},
			{"region", &s.Region, insertOnly},
			{"transport", &s.Transport, insertOnly},
			{"instance_id", &s.InstanceID, insertOnly},
			{"server_id", &s.ServerID, insertOnly},
			{"started_at", timeField(&s.StartedAt), insertOnly},
			{"join_hash", optionalBytes(&s.JoinHash), insertOnly},
		}
	},
	created: account.AuditSessionStarted, deleted: account.AuditSessionEnded,
	details: func(s *account.TunnelSession) map[string]string {
		return map[string]string{"ip": s.IP, "agent_version": s.AgentVersion, "os": s.OS}
	},
})

// StartSession implements account.SessionStarter. A zero StartedAt means now.
func (s *Store) StartSession(ctx context.Context, session account.TunnelSession) error {
	if err := session.Validate(); err != nil {
		return err
	}
	return s.writeShared(ctx, "starting a tunnel session", func(t *tx) error {
		if session.StartedAt.IsZero() {
			session.StartedAt = t.now
		}
		by := account.Caller{AccountID: session.AccountID, PrincipalID: session.Credential.ID}
		tunnelSessions.audit(t, by, tunnelSessions.created, &session)
		if err := tunnelSessions.insert(t, &session); err != nil || s.opt.Replica == nil {
			return err
		}
		return t.addLeg(session.ID)
	})
}

// endSessions deletes the sessions that the condition selects.
func (t *tx) endSessions(end account.SessionEnd, condition string, args ...any) error {
	ended, err := sqldb.Collect(t.Tx, tunnelSessions.scan,
		`DELETE FROM tunnel_sessions WHERE `+condition+` RETURNING `+tunnelSessions.names, args...)
	if err != nil {
		return err
	}
	for _, session := range ended {
		details, by := tunnelSessions.details(&session), session.Credential.ID
		details["reason"] = cmp.Or(end.Reason, "the connection ended")
		if end.Reason != "" {
			if by, err = t.endedBy(session.AccountID, end); err != nil {
				return err
			}
		}
		if end.CausedByID != "" {
			details["because"] = end.CausedByID
		}
		t.audit(account.Caller{AccountID: session.AccountID, PrincipalID: by}, account.AuditSessionEnded, session.ID,
			details)
	}
	return nil
}

// endedBy returns the principal that ended a session: "" for the service and its administration.
func (t *tx) endedBy(accountID string, end account.SessionEnd) (principalID string, err error) {
	if end.PrincipalID != "" || end.CausedByID == "" {
		return end.PrincipalID, nil
	}
	_, err = t.Row(`SELECT principal_id FROM audit_events WHERE account_id = $1 AND object_id = $2
		AND (type LIKE '%.deleted' OR type LIKE '%.updated') ORDER BY seq DESC LIMIT 1`, accountID, end.CausedByID).
		Find(&principalID)
	return principalID, err
}

// TunnelSession implements account.TunnelSessions.
func (s *Store) TunnelSession(ctx context.Context, accountID, id string) (*account.TunnelSession, error) {
	return readRow(ctx, s, &tunnelSessions, accountID, id)
}

// ListTunnelSessions implements account.TunnelSessions.
func (s *Store) ListTunnelSessions(
	ctx context.Context, accountID string, p account.Page,
) (*account.TunnelSessionPage, error) {
	found, more, err := readPage(ctx, s, &tunnelSessions, accountID, p)
	if err != nil {
		return nil, err
	}
	return &account.TunnelSessionPage{Sessions: found, More: more}, nil
}
