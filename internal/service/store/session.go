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
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var tunnelSessions = newTable(table[account.TunnelSession]{
	name: "tunnel_sessions", noun: "tunnel session",
	columns: func(s *account.TunnelSession) []sqldb.Column {
		return []sqldb.Column{
			sqldb.Fixed("id", &s.ID),
			sqldb.Fixed("account_id", &s.AccountID),
			sqldb.Fixed("credential_id", &s.Credential.ID),
			sqldb.Fixed("agent_version", &s.AgentVersion),
			sqldb.Fixed("ip", &s.IP),
			sqldb.Fixed("metadata", &s.Metadata),
			sqldb.Fixed("os", &s.OS),
			sqldb.Fixed("region", &s.Region),
			sqldb.Fixed("transport", &s.Transport),
			sqldb.Fixed("instance_id", &s.InstanceID),
			sqldb.Fixed("server_id", &s.ServerID),
			sqldb.Fixed("started_at", sqldb.TimeField(&s.StartedAt)),
			sqldb.Fixed("join_hash", sqldb.OptionalBytes(&s.JoinHash)),
		}
	},
	created: account.AuditSessionStarted, deleted: account.AuditSessionEnded,
	details: func(s *account.TunnelSession) map[string]string {
		return map[string]string{"ip": s.IP, "agent_version": s.AgentVersion, "os": s.OS}
	},
})

// TunnelSessions are the tunnel sessions with their connections to replicas and labelled tunnels.
type TunnelSessions struct {
	db         *database
	endpoints  *Endpoints
	maxTunnels int // maxTunnels bounds the labelled tunnels of an account.
}

// StartSession implements account.SessionStarter. A zero StartedAt means now.
func (ss *TunnelSessions) StartSession(ctx context.Context, session account.TunnelSession) error {
	if err := session.Validate(); err != nil {
		return err
	}
	return ss.db.writeShared(ctx, "starting a tunnel session", func(t *tx) error {
		if session.StartedAt.IsZero() {
			session.StartedAt = t.now
		}
		by := account.Caller{AccountID: session.AccountID, PrincipalID: session.Credential.ID}
		tunnelSessions.audit(t, by, tunnelSessions.created, &session)
		if err := tunnelSessions.insert(t, &session); err != nil || ss.db.replicaID == "" {
			return err
		}
		return ss.addLeg(t, session.ID)
	})
}

// end deletes the sessions that the condition selects.
func (ss *TunnelSessions) end(t *tx, end account.SessionEnd, condition string, args ...any) error {
	ended, err := sqldb.Collect(t.Tx, tunnelSessions.scan,
		`DELETE FROM tunnel_sessions WHERE `+condition+` RETURNING `+tunnelSessions.names, args...)
	if err != nil {
		return err
	}
	for _, session := range ended {
		details, by := tunnelSessions.details(&session), session.Credential.ID
		details["reason"] = cmp.Or(end.Reason, "the connection ended")
		if end.Reason != "" {
			if by, err = ss.endedBy(t, session.AccountID, end); err != nil {
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
func (ss *TunnelSessions) endedBy(t *tx, accountID string, end account.SessionEnd) (principalID string, err error) {
	if end.PrincipalID != "" || end.CausedByID == "" {
		return end.PrincipalID, nil
	}
	_, err = t.Row(`SELECT principal_id FROM audit_events WHERE account_id = $1 AND object_id = $2
		AND (type LIKE '%.deleted' OR type LIKE '%.updated') ORDER BY seq DESC LIMIT 1`, accountID, end.CausedByID).
		Find(&principalID)
	return principalID, err
}

// TunnelSession implements account.TunnelSessions.
func (ss *TunnelSessions) TunnelSession(ctx context.Context, accountID, id string) (*account.TunnelSession, error) {
	return readRow(ctx, ss.db, &tunnelSessions, accountID, id)
}

// ListTunnelSessions implements account.TunnelSessions.
func (ss *TunnelSessions) ListTunnelSessions(
	ctx context.Context, accountID string, p account.Page,
) (page []account.TunnelSession, more bool, err error) {
	return readPage(ctx, ss.db, &tunnelSessions, accountID, p)
}

// EndSession implements account.Binder.
func (ss *TunnelSessions) EndSession(ctx context.Context, accountID, sessionID string, end account.SessionEnd) error {
	return ss.db.writeShared(ctx, "ending a tunnel session", func(t *tx) error {
		return ss.endSession(t, accountID, sessionID, end)
	})
}

// endSession ends a session, its endpoints and its tunnels.
func (ss *TunnelSessions) endSession(t *tx, accountID, sessionID string, end account.SessionEnd) error {
	if err := ss.end(t, end, `id = $1 AND account_id = $2`, sessionID, accountID); err != nil {
		return err
	}
	if err := t.Exec(`DELETE FROM tunnels WHERE session_id = $1 AND account_id = $2`, sessionID,
		accountID); err != nil {
		return err
	}
	rows, err := ss.endpoints.all(t, heldBy, sessionID, accountID)
	for _, row := range rows {
		row.setOffline(t.now)
		t.changed(account.Modified, row)
	}
	return err
}

// live returns the region of a live session. An ended session may not bind: its rows would
// never be deleted.
func (ss *TunnelSessions) live(t *tx, accountID, sessionID string) (region string, err error) {
	err = t.Row(`SELECT region FROM tunnel_sessions WHERE id = $1 AND account_id = $2`, sessionID, accountID).
		Scan(&region)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errSessionOver(sessionID)
	}
	return region, err
}

func errSessionOver(id string) error {
	return account.Errorf(account.CodeNotFound, "tunnel session %s has ended", account.Shorten(id))
}

// heldBy selects the endpoints that session $1 of account $2 holds.
const heldBy = `session_id = $1 AND account_id = $2 AND online = 1 ORDER BY id`

// Conditions of what has no leg: its servers are no longer there. A server without replicas has no
// legs, and none of its own sessions when it starts.
const (
	sessionLost = `NOT EXISTS (SELECT 1 FROM legs WHERE legs.session_id = tunnel_sessions.id)`
	holderLost  = `session_id NOT IN (SELECT session_id FROM legs)`
)

// EndLost ends the sessions of servers that are no longer there; their endpoints go offline.
func (ss *TunnelSessions) EndLost(ctx context.Context, reason string) error {
	for more := true; more; {
		err := ss.db.write(ctx, "ending sessions of a lost server", func(t *tx) error {
			rows, err := ss.endpoints.all(t, `online = 1 AND type = $1 AND `+holderLost+` ORDER BY id LIMIT $2`,
				account.TypeAgent, 5*sweepBatch)
			for _, row := range rows {
				row.setOffline(t.now)
				t.changed(account.Modified, row)
			}
			if more = len(rows) > 0; more || err != nil {
				return err
			}
			if err := t.Exec(`DELETE FROM tunnels WHERE ` + holderLost); err != nil {
				return err
			}
			return ss.end(t, account.SessionEnd{Reason: reason}, sessionLost)
		})
		if err != nil {
			return fmt.Errorf("ending the sessions of lost servers: %w", err)
		}
	}
	return nil
}

// sweepLost ends the sessions of replicas that have left, or were fenced by one that has ended
// since.
func (ss *TunnelSessions) sweepLost(ctx context.Context) error {
	if ss.db.replicaID == "" {
		return nil
	}
	some, err := ss.db.exists(ctx, `SELECT 1 FROM tunnel_sessions WHERE `+sessionLost+` LIMIT 1`)
	if err != nil || !some {
		return err
	}
	return ss.EndLost(ctx, "its server was lost")
}
