// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The certificate authority lies in the database with its key sealed for that certificate, so that
// no other certificate can be put beside the key.

// Authority returns the certificate authority, DER, and its private key, PKCS #8; nil when the
// store has none.
func (s *Store) Authority(ctx context.Context) (certificate, key []byte, err error) {
	err = s.read(ctx, "reading the certificate authority", func(t *tx) (err error) {
		certificate, key, err = t.authority()
		return err
	})
	return certificate, key, err
}

// AuthorityCertificate returns the certificate of the certificate authority, DER; nil when the
// store has none. It needs no Options.Key.
func (s *Store) AuthorityCertificate(ctx context.Context) ([]byte, error) {
	return result(ctx, s, "reading the certificate authority", func(t *tx) ([]byte, error) {
		certificate, _, err := t.sealedAuthority()
		return certificate, err
	})
}

// AddAuthority stores a certificate authority unless there is one, and returns the one that is
// stored: that of the first of several callers.
func (s *Store) AddAuthority(
	ctx context.Context, certificate, key []byte,
) (storedCertificate, storedKey []byte, err error) {
	err = s.write(ctx, "storing the certificate authority", func(t *tx) (err error) {
		if s.opt.Key == nil {
			return errNoKey
		}
		storedCertificate, storedKey, err = t.authority()
		if err != nil || storedCertificate != nil {
			return err
		}
		storedCertificate, storedKey = certificate, key
		return t.Exec(`INSERT INTO authority (id, certificate, sealed_key) VALUES (1, $1, $2)`, certificate,
			s.opt.Key.Seal(string(key), string(certificate)))
	})
	return storedCertificate, storedKey, err
}

func (t *tx) authority() (certificate, key []byte, err error) {
	certificate, sealed, err := t.sealedAuthority()
	switch {
	case err != nil || certificate == nil:
		return nil, nil, err
	case t.s.opt.Key == nil:
		return nil, nil, errNoKey
	}
	text, err := t.s.opt.Key.Unseal(sealed, string(certificate))
	if err != nil {
		return nil, nil, &account.Error{Code: account.CodeInternal, Cause: err,
			Msg: fmt.Sprintf("the key of the certificate authority in %s cannot be opened; put the database back from "+
				"a backup, or run `DELETE FROM authority` there to start a new authority that every client has to "+
				"trust anew", t.s.DisplayName())}
	}
	return certificate, []byte(text), nil
}

// sealedAuthority returns nil when there is no authority.
func (t *tx) sealedAuthority() (certificate, sealedKey []byte, err error) {
	_, err = t.Row(`SELECT certificate, sealed_key FROM authority`).Find(&certificate, &sealedKey)
	return certificate, sealedKey, err
}
