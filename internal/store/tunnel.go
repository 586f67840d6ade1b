// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const tunnelColumns = `id, account_id, session_id, labels, metadata, forwards_to, upstream_protocol, region, started_at`

func scanTunnel(from scanner) (account.LabelledTunnel, error) {
	var t account.LabelledTunnel
	var labels string
	var started int64
	err := from.Scan(&t.ID, &t.AccountID, &t.TunnelSession.ID, &labels, &t.Metadata, &t.ForwardsTo, &t.UpstreamProtocol,
		&t.Region, &started)
	if err != nil {
		return t, err
	}
	t.StartedAt = fromMicros(started)
	if err := json.Unmarshal([]byte(labels), &t.Labels); err != nil {
		return t, fmt.Errorf("reading the labels of tunnel %s: %w", t.ID, err)
	}
	return t, nil
}

// StartTunnel implements account.TunnelStarter.
func (s *Store) StartTunnel(ctx context.Context, started account.LabelledTunnel) (*account.LabelledTunnel, error) {
	if err := started.Validate(); err != nil {
		return nil, err
	}
	labels, err := json.Marshal(started.Labels)
	if err != nil {
		return nil, fmt.Errorf("encoding labels: %w", err)
	}
	err = s.write(ctx, "starting a labelled tunnel", func(t *tx) error {
		region, _, err := t.liveSession(started.AccountID, started.TunnelSession.ID)
		if err != nil {
			return err
		}
		var count int
		if err := t.row(`SELECT COUNT(*) FROM tunnels WHERE account_id = $1`, started.AccountID).Scan(&count); err != nil {
			return err
		}
		if count >= t.s.opt.MaxEndpoints {
			return account.Errorf(account.CodeLimit,
				"the account has %d labelled tunnels, which is its limit; end some of them first", count)
		}
		started.ID, started.Region, started.StartedAt = account.NewID(account.PrefixTunnel, t.now), region, t.now
		return t.exec(`INSERT INTO tunnels (`+tunnelColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			started.ID, started.AccountID, started.TunnelSession.ID, string(labels), started.Metadata, started.ForwardsTo,
			started.UpstreamProtocol,
			started.Region, micros(started.StartedAt))
	})
	if err != nil {
		return nil, err
	}
	return &started, nil
}

// EndTunnel implements account.TunnelStarter.
func (s *Store) EndTunnel(ctx context.Context, accountID, id, sessionID string) error {
	return s.write(ctx, "ending a labelled tunnel", func(t *tx) error {
		return t.exec(`DELETE FROM tunnels WHERE id = $1 AND account_id = $2 AND session_id = $3`, id, accountID, sessionID)
	})
}

// LabelledTunnel implements account.LabelledTunnels.
func (s *Store) LabelledTunnel(ctx context.Context, accountID, id string) (*account.LabelledTunnel, error) {
	var found account.LabelledTunnel
	err := s.read(ctx, "reading a labelled tunnel", func(t *tx) (err error) {
		found, err = scanTunnel(t.row(`SELECT `+tunnelColumns+` FROM tunnels WHERE account_id = $1 AND id = $2`, accountID,
			id))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound("labelled tunnel", id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// ListLabelledTunnels implements account.LabelledTunnels. Labels are compared here, not in SQL:
// they are one JSON text in the row.
func (s *Store) ListLabelledTunnels(
	ctx context.Context, accountID string, labels map[string]string, p account.Page,
) (*account.LabelledTunnelPage, error) {
	limit := pageLimit(p)
	page := &account.LabelledTunnelPage{Tunnels: []account.LabelledTunnel{}}
	err := s.read(ctx, "listing labelled tunnels", func(t *tx) error {
		q := query{args: []any{accountID}, text: `account_id = $1`}
		q.andIf(p.BeforeID != "", `id < `, p.BeforeID)
		text := `SELECT ` + tunnelColumns + ` FROM tunnels WHERE ` + q.text + ` ORDER BY id DESC`
		if len(labels) == 0 {
			text += fmt.Sprintf(` LIMIT %d`, limit+1)
		}
		return t.each(func(from scanner) error {
			found, err := scanTunnel(from)
			if err == nil && len(page.Tunnels) <= limit && account.HasLabels(found.Labels, labels) {
				page.Tunnels = append(page.Tunnels, found)
			}
			return err
		}, text, q.args...)
	})
	if err != nil {
		return nil, err
	}
	if page.More = len(page.Tunnels) > limit; page.More {
		page.Tunnels = page.Tunnels[:limit]
	}
	return page, nil
}
