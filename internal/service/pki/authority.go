// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Files of the authority in the data directory.
const (
	caCertFile = "ca.crt"
	caKeyFile  = "ca.key"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	backdate = time.Hour // for clients whose clock is behind
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority loads the CA of the directory, or makes it when there is none.
func openAuthority(_ context.Context, o Options, now time.Time) (*authority, error) {
	found, err := loadAuthority(o.Dir, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	made, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	return made, made.save(o.Dir)
}

// loadAuthority loads the CA of the directory; fs.ErrNotExist when there is none. A certificate
// without its key is another error: a new CA in its place would silently lock out all clients that
// trust the old one.
func loadAuthority(dir string, now time.Time) (*authority, error) {
	cert, err := LoadCA(dir)
	if err != nil {
		return nil, err
	}
	keyPath := filepath.Join(dir, caKeyFile)
	key, err := loadKey(keyPath)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the certificate authority (restore %s from a backup, "+
			"or remove %s too to start a new authority that every client has to trust anew): %v",
			keyPath, filepath.Join(dir, caCertFile), err) // without %w: the error is not fs.ErrNotExist
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		if cert, err = finishPromotion(dir, key); err != nil {
			return nil, fmt.Errorf("%s does not belong to %s: restore both from one backup", keyPath, caCertFile)
		}
	}
	a := &authority{cert: cert, key: key}
	return a, a.checkExpiry(now, dir, fmt.Sprintf("remove %s and %s", caCertFile, caKeyFile))
}

// checkExpiry returns an error for a CA that has expired. The remedy makes room for a new one.
func (a *authority) checkExpiry(now time.Time, place, remedy string) error {
	if now.After(a.cert.NotAfter) {
		return fmt.Errorf("the certificate authority in %s expired on %s: %s to start a new one, "+
			"and give its certificate to every client", place, a.cert.NotAfter.Format(time.DateOnly), remedy)
	}
	return nil
}

// LoadCA reads the certificate of the service's own CA from its data directory; fs.ErrNotExist when
// it has none yet.
func LoadCA(dir string) (*x509.Certificate, error) {
	return loadCertificate(filepath.Join(dir, caCertFile))
}

func loadCertificate(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("reading the certificate authority: %s holds no PEM certificate", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority %s: %w", path, err)
	}
	return cert, nil
}

// EncodeCertificate returns the PEM form of a certificate.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the certificate authority: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{Organization: []string{"Fairlead"},
			CommonName: "Fairlead CA " + serial.Text(16)[:8]},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// save writes the key first: a crash in between leaves a key that no client trusts yet, and the
// next start makes a new pair.
func (a *authority) save(dir string) error { return a.saveAs(dir, caCertFile, caKeyFile) }

func (a *authority) saveAs(dir, certFile, keyFile string) error {
	keyPEM, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, certFile), EncodeCertificate(a.cert), 0o644)
}

// newSerial returns 126 random bits with a leading one, so that the number is positive and never
// short.
func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return n.SetBit(n, 126, 1), nil
}
