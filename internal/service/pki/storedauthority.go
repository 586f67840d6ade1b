// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
)

// AuthorityStore is the store of the CA that all servers of the service share. Certificates are
// DER, keys PKCS #8.
type AuthorityStore interface {
	// DisplayName returns the place of the store, for messages.
	DisplayName() string
	// Authority returns the CA; nil when there is none.
	Authority(ctx context.Context) (certificate, key []byte, err error)
	// AddAuthority stores a CA unless there is one, and returns the one that is stored.
	AddAuthority(ctx context.Context, certificate, key []byte) (storedCertificate, storedKey []byte, err error)
}

// removeStored is the remedy that makes room for a new CA in a store.
const removeStored = "run `DELETE FROM authority` there"

// openStoredAuthority returns the CA of the store. A store without one gets that of the directory,
// which clients trust already, or a new one. When both have one and they differ, it refuses: each
// may be the one that clients trust, and presenting the other would lock them out.
func openStoredAuthority(ctx context.Context, o Options, now time.Time) (*authority, error) {
	local, err := LoadCA(o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	certificate, key, err := o.Store.Authority(ctx)
	if err != nil {
		return nil, err
	}
	added := certificate == nil
	if added {
		if certificate, key, err = addAuthority(ctx, o, now); err != nil {
			return nil, err
		}
	}
	a, err := parseAuthority(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s: %w", o.Store.DisplayName(), err)
	}
	if local != nil && !local.Equal(a.cert) {
		return nil, differentAuthorities(o, local, a.cert)
	}
	if added {
		o.Logger.Info("the database keeps the certificate authority from now on", "ca_sha256",
			trust.Fingerprint(a.cert), "imported", local != nil)
	}
	return a, a.checkExpiry(now, o.Store.DisplayName(), removeStored)
}

// addAuthority stores the CA of the directory, or a new one, and returns the one that is stored,
// which may be another server's.
func addAuthority(ctx context.Context, o Options, now time.Time) (certificate, key []byte, err error) {
	a, err := loadAuthority(o.Dir, now)
	if errors.Is(err, fs.ErrNotExist) {
		a, err = newAuthority(now)
	}
	if err != nil {
		return nil, nil, err
	}
	if key, err = x509.MarshalPKCS8PrivateKey(a.key); err != nil {
		return nil, nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return o.Store.AddAuthority(ctx, a.cert.Raw, key)
}

func parseAuthority(certificate, key []byte) (*authority, error) {
	cert, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, err
	}
	ec, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	if !ec.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key does not belong to its certificate")
	}
	return &authority{cert: cert, key: ec}, nil
}

func differentAuthorities(o Options, local, stored *x509.Certificate) error {
	path := filepath.Join(o.Dir, caCertFile)
	return fmt.Errorf("%s is the certificate authority %s, and %s has another one, %s; clients trust the one that "+
		"they were given: to present the database's, remove %s and %s; to present the data directory's, stop every "+
		"server of the database and %s, and start again", path, trust.Fingerprint(local), o.Store.DisplayName(),
		trust.Fingerprint(stored), path, caKeyFile, removeStored)
}
