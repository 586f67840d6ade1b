// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

var tunnels = newTable(table[account.LabelledTunnel]{
	name: "tunnels", noun: "labelled tunnel",
	columns: func(t *account.LabelledTunnel) []sqldb.Column {
		return []sqldb.Column{
			sqldb.Fixed("id", &t.ID),
			sqldb.Fixed("account_id", &t.AccountID),
			sqldb.Fixed("session_id", &t.TunnelSession.ID),
			sqldb.Fixed("labels", sqldb.JSONField(&t.Labels)),
			sqldb.Fixed("metadata", &t.Metadata),
			sqldb.Fixed("forwards_to", &t.ForwardsTo),
			sqldb.Fixed("upstream_protocol", &t.UpstreamProtocol),
			sqldb.Fixed("region", &t.Region),
			sqldb.Fixed("started_at", sqldb.TimeField(&t.StartedAt)),
		}
	},
})

// StartTunnel implements account.TunnelStarter.
func (ss *TunnelSessions) StartTunnel(
	ctx context.Context, started account.LabelledTunnel, resume account.TunnelResume,
) (_ *account.LabelledTunnel, replacedSessionID string, err error) {
	if err := started.Validate(); err != nil {
		return nil, "", err
	}
	err = ss.db.writeShared(ctx, "starting a labelled tunnel", func(t *tx) error {
		region, err := ss.live(t, started.AccountID, started.TunnelSession.ID)
		if err != nil {
			return err
		}
		switch found, err := ss.byHash(t, started.AccountID, started.TunnelSession.ID, resume.NewHash); {
		case err != nil:
			return err
		case found != nil:
			started = *found
			return nil
		}
		if replacedSessionID, err = ss.endResumed(t, &started, resume.Secret); err != nil {
			return err
		}
		if err := tunnels.checkLimit(t, started.AccountID, ss.maxTunnels, "end some of them first"); err != nil {
			return err
		}
		started.ID, started.Region, started.StartedAt = account.NewID(account.PrefixTunnel, t.now), region, t.now
		return tunnels.insert(t, &started, sqldb.Fixed("resume_hash", &resume.NewHash))
	})
	if err != nil {
		return nil, "", err
	}
	return &started, replacedSessionID, nil
}

// byHash returns the session's tunnel whose secret has the hash, or nil.
func (ss *TunnelSessions) byHash(t *tx, accountID, sessionID string, hash []byte) (*account.LabelledTunnel, error) {
	if len(hash) == 0 {
		return nil, nil
	}
	return tunnels.first(t, `account_id = $1 AND resume_hash = $2 AND session_id = $3`, accountID, hash, sessionID)
}

// endResumed ends the tunnel that another replaces, and returns the other session that held it.
func (ss *TunnelSessions) endResumed(t *tx, by *account.LabelledTunnel, secret string) (sessionID string, err error) {
	if secret == "" {
		return "", nil
	}
	_, err = t.Row(`DELETE FROM tunnels WHERE account_id = $1 AND resume_hash = $2 RETURNING session_id`, by.AccountID,
		account.HashSecret(secret)).Find(&sessionID)
	if sessionID == by.TunnelSession.ID {
		sessionID = ""
	}
	return sessionID, err
}

// EndTunnel implements account.TunnelStarter.
func (ss *TunnelSessions) EndTunnel(ctx context.Context, accountID, id, sessionID string) error {
	return ss.db.writeShared(ctx, "ending a labelled tunnel", func(t *tx) error {
		return t.Exec(`DELETE FROM tunnels WHERE id = $1 AND account_id = $2 AND session_id = $3`, id, accountID,
			sessionID)
	})
}

// LabelledTunnel implements account.LabelledTunnels.
func (ss *TunnelSessions) LabelledTunnel(ctx context.Context, accountID, id string) (*account.LabelledTunnel, error) {
	return readRow(ctx, ss.db, &tunnels, accountID, id)
}

// ListLabelledTunnels implements account.LabelledTunnels. Labels are compared here, not in SQL:
// they are one JSON text in the row.
func (ss *TunnelSessions) ListLabelledTunnels(
	ctx context.Context, accountID string, labels map[string]string, p account.Page,
) (page []account.LabelledTunnel, more bool, err error) {
	limit, found := pageLimit(p), []account.LabelledTunnel{}
	err = ss.db.read(ctx, "listing labelled tunnels", func(t *tx) error {
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		text := `SELECT ` + tunnels.names + ` FROM tunnels WHERE ` + q.text + ` ORDER BY id DESC`
		if len(labels) == 0 {
			text += fmt.Sprintf(` LIMIT %d`, limit+1)
		}
		found = found[:0] // a try before may have left some
		return t.Each(func(from scanner) error {
			one, err := tunnels.scan(from)
			if err == nil && len(found) <= limit && account.HasLabels(one.Labels, labels) {
				found = append(found, one)
			}
			return err
		}, text, q.args...)
	})
	page, more = cut(found, limit)
	return page, more, err
}
