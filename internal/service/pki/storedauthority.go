// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	// AuthorityCertificates returns the certificates of the CA and of those beside it; nil = none.
	AuthorityCertificates(ctx context.Context) (current, next, retiring []byte, err error)
	// AddNextAuthority stores the next CA.
	AddNextAuthority(ctx context.Context, certificate, key []byte) error
	// PromoteAuthority makes the next CA, which has this certificate, the CA, and the CA the one that
	// is being retired.
	PromoteAuthority(ctx context.Context, next []byte) error
	// RetireAuthority deletes the CA that is being retired.
	RetireAuthority(ctx context.Context) error
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
	a, err := readStoredAuthority(ctx, o, now)
	added := errors.Is(err, fs.ErrNotExist)
	if added {
		a, err = addAuthority(ctx, o, now)
	}
	if err != nil {
		return nil, err
	}
	if local != nil && !local.Equal(a.cert) {
		all, err := storedRotation{o.Store}.Read(ctx)
		if err == nil && !local.Equal(all.Retiring) {
			err = differentAuthorities(o, local, a.cert)
		}
		return a, err
	}
	if added {
		o.Logger.Info("the database keeps the certificate authority from now on", "ca_sha256",
			trust.Fingerprint(a.cert), "imported", local != nil)
	}
	return a, nil
}

// readStoredAuthority returns the CA of the store; fs.ErrNotExist when it has none.
func readStoredAuthority(ctx context.Context, o Options, now time.Time) (*authority, error) {
	certificate, key, err := o.Store.Authority(ctx)
	if err == nil && certificate == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return parseStoredAuthority(o, certificate, key, now)
}

func parseStoredAuthority(o Options, certificate, key []byte, now time.Time) (*authority, error) {
	a, err := parseAuthority(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s: %w", o.Store.DisplayName(), err)
	}
	return a, a.checkExpiry(now, o.Store.DisplayName(), removeStored)
}

// removeImported removes the files of a CA that was imported into the store and is being retired
// there: no server presents it any more.
func removeImported(dir string, retiring *x509.Certificate) error {
	if local, err := LoadCA(dir); err != nil || !local.Equal(retiring) {
		return nil //nolint:nilerr // there is no file to remove, or another one, which openStoredAuthority refuses
	}
	return errors.Join(os.Remove(filepath.Join(dir, caCertFile)), os.Remove(filepath.Join(dir, caKeyFile)))
}

// addAuthority stores the CA of the directory, or a new one, and returns the one that is stored,
// which may be another server's.
func addAuthority(ctx context.Context, o Options, now time.Time) (*authority, error) {
	a, err := loadAuthority(o.Dir, now)
	if errors.Is(err, fs.ErrNotExist) {
		a, err = newAuthority(now)
	}
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	certificate, key, err := o.Store.AddAuthority(ctx, a.cert.Raw, key)
	if err != nil {
		return nil, err
	}
	return parseStoredAuthority(o, certificate, key, now)
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
