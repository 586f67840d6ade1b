// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/subtle"
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
)

// addLeg records that a session has connections with this replica.
func (ss *TunnelSessions) addLeg(t *tx, sessionID string) error {
	return t.Exec(`INSERT INTO legs (session_id, replica_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, sessionID,
		ss.db.replicaID)
}

// JoinSession implements account.SessionLegs. A session without a leg is over: its endpoints may
// have gone offline in part.
func (ss *TunnelSessions) JoinSession(
	ctx context.Context, id string, joinHash []byte,
) (joined *account.TunnelSession, err error) {
	if ss.db.replicaID == "" || len(joinHash) == 0 {
		return nil, errSessionOver(id)
	}
	err = ss.db.writeShared(ctx, "joining a tunnel session", func(t *tx) (err error) {
		joined, err = tunnelSessions.first(t, `id = $1 AND id IN (SELECT session_id FROM legs)`, id)
		switch {
		case err != nil:
			return err
		case joined == nil || subtle.ConstantTimeCompare(joined.JoinHash, joinHash) != 1:
			return errSessionOver(id)
		}
		return ss.addLeg(t, id)
	})
	if err != nil {
		return nil, err
	}
	return joined, nil
}

// LeaveSession implements account.SessionLegs. A fenced server has left all sessions.
func (ss *TunnelSessions) LeaveSession(ctx context.Context, accountID, id string, end account.SessionEnd) error {
	if ss.db.replicaID == "" {
		return ss.EndSession(ctx, accountID, id, end)
	}
	err := ss.db.writeShared(ctx, "leaving a tunnel session", func(t *tx) error {
		err := t.Exec(`DELETE FROM legs WHERE session_id = $1 AND replica_id = $2
			AND session_id IN (SELECT id FROM tunnel_sessions WHERE account_id = $3)`, id, ss.db.replicaID, accountID)
		if err != nil {
			return err
		}
		if others, err := t.Exists(`SELECT 1 FROM legs WHERE session_id = $1`, id); err != nil || others {
			return err
		}
		return ss.endSession(t, accountID, id, end)
	})
	if errors.Is(err, membership.ErrFenced) {
		return nil
	}
	return err
}

// SessionHoldings implements account.SessionLegs.
func (ss *TunnelSessions) SessionHoldings(ctx context.Context, accountID, id string) (*account.SessionHoldings, error) {
	return result(ctx, ss.db, "reading what a tunnel session holds", func(t *tx) (*account.SessionHoldings, error) {
		if _, err := ss.live(t, accountID, id); err != nil {
			return nil, err
		}
		policies, err := ss.endpoints.policiesHeldBy(t, accountID, id)
		if err != nil {
			return nil, err
		}
		rows, err := ss.endpoints.all(t, heldBy, id, accountID)
		if err != nil {
			return nil, err
		}
		held := &account.SessionHoldings{Endpoints: []account.Endpoint{}}
		for _, row := range rows {
			row.e.TrafficPolicy = policies[row.e.ID]
			held.Endpoints = append(held.Endpoints, row.e)
		}
		if held.History, err = t.History(); err != nil {
			return nil, err
		}
		held.Tunnels, err = tunnels.all(t, `session_id = $1 AND account_id = $2 ORDER BY id`, id, accountID)
		return held, err
	})
}

// HoldingsVersions implements account.SessionLegs.
func (ss *TunnelSessions) HoldingsVersions(
	ctx context.Context, ids []string,
) (map[string]account.HoldingsVersion, error) {
	const doing = "comparing what tunnel sessions hold"
	return result(ctx, ss.db, doing, func(t *tx) (map[string]account.HoldingsVersion, error) {
		versions := make(map[string]account.HoldingsVersion, len(ids))
		return versions, t.EachIn(ids, 1, func(from scanner) error {
			var id string
			var v account.HoldingsVersion
			err := from.Scan(&id, &v.Endpoints, &v.EndpointSeq, &v.Tunnels, &v.TunnelID)
			versions[id] = v
			return err
		}, `SELECT t.id,
			(SELECT COUNT(*) FROM endpoints AS e WHERE e.session_id = t.id AND e.online = $1),
			(SELECT COALESCE(MAX(e.seq), 0) FROM endpoints AS e WHERE e.session_id = t.id AND e.online = $1),
			(SELECT COUNT(*) FROM tunnels AS n WHERE n.session_id = t.id),
			(SELECT COALESCE(MAX(n.id), '') FROM tunnels AS n WHERE n.session_id = t.id)
			FROM tunnel_sessions AS t WHERE t.id IN IDS`)
	})
}

// OwnLegs implements account.SessionLegs.
func (ss *TunnelSessions) OwnLegs(ctx context.Context) (account.OwnLegs, error) {
	if ss.db.replicaID == "" {
		return account.OwnLegs{}, nil
	}
	const doing = "reading the connections of tunnel sessions"
	return result(ctx, ss.db, doing, func(t *tx) (own account.OwnLegs, err error) {
		if own.History, err = t.History(); err != nil {
			return own, err
		}
		own.SessionIDs, err = sqldb.Values[string](t.Tx, `SELECT session_id FROM legs WHERE replica_id = $1`,
			ss.db.replicaID)
		return own, err
	})
}

// CorrectLegs implements account.SessionLegs.
func (ss *TunnelSessions) CorrectLegs(ctx context.Context, add, remove []string) error {
	if ss.db.replicaID == "" {
		return nil
	}
	return ss.db.write(ctx, "correcting the connections of tunnel sessions", func(t *tx) error {
		if err := t.EachIn(add, ss.db.replicaID, nil, `INSERT INTO legs (session_id, replica_id)
			SELECT id, CAST($1 AS TEXT) FROM tunnel_sessions WHERE id IN IDS ON CONFLICT DO NOTHING`); err != nil {
			return err
		}
		return t.EachIn(remove, ss.db.replicaID, nil, `DELETE FROM legs WHERE replica_id = $1 AND session_id IN IDS`)
	})
}
