// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Files of the authorities beside the one in service.
const (
	nextCertFile     = "ca-next.crt"
	nextKeyFile      = "ca-next.key"
	retiringCertFile = "ca-retiring.crt"
)

// Authorities are the certificates of the service's own CA and of those beside it while it is
// replaced; nil = none.
type Authorities struct {
	Current  *x509.Certificate // Current issues the server's certificate.
	Next     *x509.Certificate // Next issues nothing yet; clients are told to trust it.
	Retiring *x509.Certificate // Retiring issued the certificates before; clients still trust it.
}

// All returns the CAs that clients are told to trust, the one in service first.
func (a Authorities) All() (all []*x509.Certificate) {
	for _, c := range []*x509.Certificate{a.Current, a.Next, a.Retiring} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// Equal reports whether both are the same CAs.
func (a Authorities) Equal(b Authorities) bool {
	return a.Current.Equal(b.Current) && a.Next.Equal(b.Next) && a.Retiring.Equal(b.Retiring)
}

// MadeAt returns when a CA was made.
func MadeAt(ca *x509.Certificate) time.Time { return ca.NotBefore.Add(backdate) }

// The reasons why a step of a Rotation is refused.
var (
	ErrHasNext     = errors.New("there is a next authority already")
	ErrHasRetiring = errors.New("the authority before is still trusted")
	ErrNoNext      = errors.New("there is no next authority")
	ErrNoRetiring  = errors.New("no authority is being retired")
)

// CheckNext returns why there can be no further CA now, or nil.
func (a Authorities) CheckNext() error {
	switch {
	case a.Next != nil:
		return ErrHasNext
	case a.Retiring != nil:
		return ErrHasRetiring
	}
	return nil
}

// Rotation replaces the CA by another one, beside running servers: their Sources follow.
type Rotation interface {
	// Read returns the CAs. Its error is fs.ErrNotExist when there is none.
	Read(ctx context.Context) (Authorities, error)
	// AddNext makes the next CA.
	AddNext(ctx context.Context, now time.Time) error
	// Promote puts the next CA into service. The key of the one before is deleted.
	Promote(ctx context.Context) error
	// Retire ends the trust in the CA that was in service before.
	Retire(ctx context.Context) error
}

// NewRotation returns the Rotation of a store, or of a data directory when the store is nil.
func NewRotation(dir string, store AuthorityStore) Rotation {
	if store == nil {
		return fileRotation(dir)
	}
	return storedRotation{store}
}

// fileRotation is the data directory.
type fileRotation string

func (d fileRotation) path(file string) string { return filepath.Join(string(d), file) }

func (d fileRotation) Read(context.Context) (a Authorities, err error) {
	if a.Current, err = LoadCA(string(d)); err != nil {
		return a, err
	}
	for file, cert := range map[string]**x509.Certificate{nextCertFile: &a.Next, retiringCertFile: &a.Retiring} {
		if *cert, err = loadCertificate(d.path(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
	}
	if a.Next.Equal(a.Current) { // read while it was promoted
		a.Next = nil
	}
	return a, nil
}

// newNext makes the next CA of a rotation that may have one.
func newNext(ctx context.Context, r Rotation, now time.Time) (*authority, error) {
	all, err := r.Read(ctx)
	if err == nil {
		err = all.CheckNext()
	}
	if err != nil {
		return nil, err
	}
	return newAuthority(now)
}

func (d fileRotation) AddNext(ctx context.Context, now time.Time) error {
	made, err := newNext(ctx, d, now)
	if err != nil {
		return err
	}
	if err := made.saveAs(string(d), nextCertFile, nextKeyFile); err != nil {
		return err
	}
	return errors.Join(d.giveToServer(nextKeyFile), d.giveToServer(nextCertFile))
}

// giveToServer makes a file that root has written the server's, whose user may be another one.
func (d fileRotation) giveToServer(file string) error {
	info, err := os.Stat(d.path(caKeyFile))
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(d.path(file), int(of.Uid), int(of.Gid))
	}
	return nil
}

// Promote replaces the key before the certificate: finishPromotion does the rest after a crash.
func (d fileRotation) Promote(ctx context.Context) error {
	all, err := d.Read(ctx)
	switch {
	case err != nil:
		return err
	case all.Next == nil:
		return ErrNoNext
	}
	key, err := loadKey(d.path(nextKeyFile))
	if err == nil && !key.PublicKey.Equal(all.Next.PublicKey) {
		err = errors.New("it belongs to another certificate")
	}
	if err != nil {
		return fmt.Errorf("reading %s (remove it and %s, and make another next authority): %w", d.path(nextKeyFile),
			nextCertFile, err)
	}
	if err := writeFile(d.path(retiringCertFile), EncodeCertificate(all.Current), 0o644); err != nil {
		return err
	}
	err = errors.Join(d.giveToServer(retiringCertFile), os.Rename(d.path(nextKeyFile), d.path(caKeyFile)))
	if err != nil {
		return fmt.Errorf("replacing the key of the certificate authority: %w", err)
	}
	_, err = finishPromotion(string(d), key)
	return err
}

// finishPromotion puts the certificate of the next CA beside its key, and returns it. It does
// nothing but return the certificate in service when another process has done so.
func finishPromotion(dir string, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	d := fileRotation(dir)
	next, err := loadCertificate(d.path(nextCertFile))
	if err == nil && key.PublicKey.Equal(next.PublicKey) {
		err = os.Rename(d.path(nextCertFile), d.path(caCertFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	current, err := LoadCA(dir)
	if err == nil && !key.PublicKey.Equal(current.PublicKey) {
		err = errors.New("the key belongs to neither certificate")
	}
	return current, err
}

func (d fileRotation) Retire(ctx context.Context) error {
	all, err := d.Read(ctx)
	switch {
	case err != nil:
		return err
	case all.Retiring == nil:
		return ErrNoRetiring
	}
	return os.Remove(d.path(retiringCertFile))
}

// storedRotation is the store that several servers share.
type storedRotation struct{ store AuthorityStore }

func (r storedRotation) Read(ctx context.Context) (a Authorities, err error) {
	var der [3][]byte
	if der[0], der[1], der[2], err = r.store.AuthorityCertificates(ctx); err != nil {
		return a, err
	}
	if der[0] == nil {
		return a, fs.ErrNotExist
	}
	for i, cert := range []**x509.Certificate{&a.Current, &a.Next, &a.Retiring} {
		if der[i] == nil {
			continue
		}
		if *cert, err = x509.ParseCertificate(der[i]); err != nil {
			return a, fmt.Errorf("reading the certificate authority in %s: %w", r.store.DisplayName(), err)
		}
	}
	return a, nil
}

func (r storedRotation) AddNext(ctx context.Context, now time.Time) error {
	made, err := newNext(ctx, r, now)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.key)
	if err != nil {
		return fmt.Errorf("encoding a private key: %w", err)
	}
	return r.store.AddNextAuthority(ctx, made.cert.Raw, key)
}

func (r storedRotation) Promote(ctx context.Context) error {
	all, err := r.Read(ctx)
	if err == nil && all.Next == nil {
		err = ErrNoNext
	}
	if err != nil {
		return err
	}
	return r.store.PromoteAuthority(ctx, all.Next.Raw)
}

func (r storedRotation) Retire(ctx context.Context) error {
	all, err := r.Read(ctx)
	if err == nil && all.Retiring == nil {
		err = ErrNoRetiring
	}
	if err != nil {
		return err
	}
	return r.store.RetireAuthority(ctx)
}
