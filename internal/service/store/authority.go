// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
)

// AuthorityCertificates returns the certificates, DER, of the certificate authority and of those
// beside it; nil = none. It needs no Options.Key.
func (se *Secrets) AuthorityCertificates(ctx context.Context) (current, next, retiring []byte, err error) {
	err = se.db.read(ctx, "reading the certificate authorities", func(t *tx) (err error) {
		current, next, retiring = nil, nil, nil
		if current, _, err = se.sealedAuthority(t); err != nil {
			return err
		}
		return t.Each(func(from scanner) error {
			var role string
			var certificate []byte
			err := from.Scan(&role, &certificate)
			if role == "next" {
				next = certificate
			} else {
				retiring = certificate
			}
			return err
		}, `SELECT role, certificate FROM authorities_beside`)
	})
	return current, next, retiring, err
}

// AddNextAuthority stores the authority that PromoteAuthority puts into service.
func (se *Secrets) AddNextAuthority(ctx context.Context, certificate, key []byte) error {
	if se.key == nil {
		return errNoKey
	}
	return se.db.write(ctx, "storing the next certificate authority", func(t *tx) error {
		return t.Exec(`INSERT INTO authorities_beside (role, certificate, sealed_key) VALUES ('next', $1, $2)`,
			certificate, se.key.Seal(string(key), string(certificate)))
	})
}

// PromoteAuthority makes the next authority, which has this certificate, the one in service, and the
// one before the retiring one, without its key.
func (se *Secrets) PromoteAuthority(ctx context.Context, next []byte) error {
	return se.db.write(ctx, "promoting the next certificate authority", func(t *tx) error {
		var sealed []byte
		err := t.Row(`SELECT sealed_key FROM authorities_beside WHERE role = 'next' AND certificate = $1`, next).
			Require(errors.New("another command has changed the authorities"), &sealed)
		if err != nil {
			return err
		}
		if err := t.Exec(`INSERT INTO authorities_beside (role, certificate, sealed_key)
			SELECT 'retiring', certificate, $1 FROM authority`, []byte{}); err != nil {
			return err
		}
		if err := t.Exec(`UPDATE authority SET certificate = $1, sealed_key = $2`, next, sealed); err != nil {
			return err
		}
		return t.Exec(`DELETE FROM authorities_beside WHERE role = 'next'`)
	})
}

// RetireAuthority deletes the retiring authority.
func (se *Secrets) RetireAuthority(ctx context.Context) error {
	return se.db.write(ctx, "retiring a certificate authority", func(t *tx) error {
		return t.Exec(`DELETE FROM authorities_beside WHERE role = 'retiring'`)
	})
}

// AuthorityReport is what a server has told the clients of its sessions of the next authority.
type AuthorityReport struct {
	ServerID string   // ServerID is a replica's, "" for a server that is alone.
	Next     string   // Next is the authority's fingerprint; "" before the server knew of one.
	Untold   int      // Untold counts the sessions whose clients do not know it.
	Sessions []string // Sessions are the ids of some of those.
}

// ReportAuthority records what a server has told its clients.
func (se *Secrets) ReportAuthority(ctx context.Context, r AuthorityReport) error {
	return se.db.write(ctx, "recording who knows the next certificate authority", func(t *tx) error {
		if err := t.Exec(`DELETE FROM authority_reports
			WHERE server_id <> $1 AND server_id NOT IN (SELECT id FROM replicas)`, r.ServerID); err != nil {
			return err
		}
		return t.Exec(`INSERT INTO authority_reports (server_id, next, untold, sessions) VALUES ($1, $2, $3, $4)
			ON CONFLICT (server_id) DO UPDATE SET next = excluded.next, untold = excluded.untold,
			sessions = excluded.sessions`, r.ServerID, r.Next, r.Untold, strings.Join(r.Sessions, " "))
	})
}

// AuthorityReports returns the report of each server; that of one that has made none is empty.
func (se *Secrets) AuthorityReports(ctx context.Context) (all []AuthorityReport, err error) {
	err = se.db.read(ctx, "reading who knows the next certificate authority", func(t *tx) error {
		all = nil
		return t.Each(func(from scanner) error {
			var r AuthorityReport
			var sessions string
			err := from.Scan(&r.ServerID, &r.Next, &r.Untold, &sessions)
			r.Sessions = strings.Fields(sessions)
			all = append(all, r)
			return err
		}, `SELECT s.id, COALESCE(r.next, ''), COALESCE(r.untold, 0), COALESCE(r.sessions, '')
			FROM (SELECT id FROM replicas WHERE relay_address <> '' UNION ALL SELECT '' FROM store WHERE mode = '') AS s
			LEFT JOIN authority_reports AS r ON r.server_id = s.id ORDER BY s.id`)
	})
	return all, err
}
