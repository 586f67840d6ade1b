// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
)

// Secrets are what the store seals beside policies and identities, and the key that seals all.
type Secrets struct {
	db        *database
	key       *seal.Key // key is nil for commands that seal and open nothing.
	endpoints *Endpoints
}

// The certificate authority lies in the database with its key sealed for that certificate, so that
// no other certificate can be put beside the key.

// Authority returns the certificate authority, DER, and its private key, PKCS #8; nil when the
// store has none.
func (se *Secrets) Authority(ctx context.Context) (certificate, key []byte, err error) {
	err = se.db.read(ctx, "reading the certificate authority", func(t *tx) (err error) {
		certificate, key, err = se.authority(t)
		return err
	})
	return certificate, key, err
}

// AddAuthority stores a certificate authority unless there is one, and returns the one that is
// stored: that of the first of several callers.
func (se *Secrets) AddAuthority(
	ctx context.Context, certificate, key []byte,
) (storedCertificate, storedKey []byte, err error) {
	err = se.db.write(ctx, "storing the certificate authority", func(t *tx) (err error) {
		if se.key == nil {
			return errNoKey
		}
		storedCertificate, storedKey, err = se.authority(t)
		if err != nil || storedCertificate != nil {
			return err
		}
		storedCertificate, storedKey = certificate, key
		return t.Exec(`INSERT INTO authority (id, certificate, sealed_key) VALUES (1, $1, $2)`, certificate,
			se.key.Seal(string(key), string(certificate)))
	})
	return storedCertificate, storedKey, err
}

func (se *Secrets) authority(t *tx) (certificate, key []byte, err error) {
	certificate, sealed, err := se.sealedAuthority(t)
	switch {
	case err != nil || certificate == nil:
		return nil, nil, err
	case se.key == nil:
		return nil, nil, errNoKey
	}
	text, err := se.key.Unseal(sealed, string(certificate))
	if err != nil {
		return nil, nil, &account.Error{Code: account.CodeInternal, Cause: err,
			Msg: fmt.Sprintf("the key of the certificate authority in %s cannot be opened; put the database back from "+
				"a backup, or run `DELETE FROM authority` there to start a new authority that every client has to "+
				"trust anew", se.db.DisplayName())}
	}
	return certificate, []byte(text), nil
}

// sealedAuthority returns nil when there is no authority.
func (se *Secrets) sealedAuthority(t *tx) (certificate, sealedKey []byte, err error) {
	_, err = t.Row(`SELECT certificate, sealed_key FROM authority`).Find(&certificate, &sealedKey)
	return certificate, sealedKey, err
}

var errNoKey = errors.New("the store was opened without a secret key")

// CheckKey returns an error, a complete sentence, unless Options.Key is the store's key: the one
// that seals its policies and its certificate authority, and finds its users and revocations. A
// store without any of these adopts the key.
func (se *Secrets) CheckKey(ctx context.Context) error {
	return se.db.write(ctx, "checking the secret key", func(t *tx) error {
		var recorded string
		if err := t.Row(`SELECT key_check FROM store`).Scan(&recorded); err != nil {
			return err
		}
		ours := se.key.Digest("key check")
		if recorded == ours {
			return nil
		}
		if err := se.refuseOtherKey(t, recorded != ""); err != nil {
			return err
		}
		return t.Exec(`UPDATE store SET key_check = $1`, ours)
	})
}

// refuseOtherKey returns CodeInvalid if something of the store belongs to another key than ours.
// recorded means that the store's key is another one. Without it, a version that did not record the
// key used the store last, and only opening sealed values shows a difference.
func (se *Secrets) refuseOtherKey(t *tx, recorded bool) error {
	for _, has := range []struct{ what, query string }{
		{"traffic policies are sealed", `SELECT id, traffic_policy FROM endpoints
			WHERE policy_digest <> '' ORDER BY id LIMIT 1`},
		{"certificate authority is sealed", `SELECT certificate, sealed_key FROM authority`},
		{"identities are sealed", `SELECT id, identity FROM app_sessions ORDER BY id LIMIT 1`},
		{"users are found", `SELECT id, '' FROM app_users ORDER BY id LIMIT 1`},
		{"revocations are found", `SELECT account_id, '' FROM login_tombstones ORDER BY 1 LIMIT 1`},
	} {
		err := t.Each(func(from scanner) error {
			var id string // or what else it is sealed for
			var sealed []byte
			if err := from.Scan(&id, &sealed); err != nil {
				return err
			}
			if _, err := se.endpoints.unseal(sealed, id); err == nil && (!recorded || len(sealed) > 0) {
				return nil
			}
			return account.Errorf(account.CodeInvalid, "the secret key is not the one with which this store's %s; "+
				"give that one with --secret-key-file, or put it back into the data directory", has.what)
		}, has.query)
		if err != nil {
			return err
		}
	}
	return nil
}

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
