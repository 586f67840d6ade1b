// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leafFile holds chain and key in one file, so that one rename replaces both.
const leafFile = "server.pem"

const leafLife = 90 * 24 * time.Hour

// leafStore issues the leaf and stores it in the data directory, or in memory.
type leafStore struct {
	dir       string // dir is "" for a leaf in memory only.
	authority *authority
	names     []string
}

// next returns current while it is usable, else the stored leaf when that is, else a new one,
// saved before it is used.
func (l *leafStore) next(now time.Time, current *tls.Certificate) (*tls.Certificate, error) {
	if current != nil && l.usable(current.Leaf, now) {
		return current, nil
	}
	if current == nil && l.dir != "" {
		file, err := os.ReadFile(filepath.Join(l.dir, leafFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the server's certificate: %w", err)
		}
		// A damaged file counts as absent: the leaf can always be issued again.
		if stored, err := tls.X509KeyPair(file, file); err == nil && l.usable(stored.Leaf, now) {
			return &stored, nil
		}
	}
	return l.issue(now)
}

// usable reports whether a leaf is of this authority, carries exactly the names, and has not
// reached two thirds of its life.
func (l *leafStore) usable(leaf *x509.Certificate, now time.Time) bool {
	renewAt := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
	return now.Before(renewAt) && now.After(leaf.NotBefore) &&
		slices.Equal(certificateNames(leaf), l.names) &&
		leaf.CheckSignatureFrom(l.authority.cert) == nil
}

// issue makes a leaf with a fresh key. The chain it presents includes the CA, so that clients can
// pin the CA by its key.
func (l *leafStore) issue(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the server's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"Fairlead"}, CommonName: "fairlead-server"},
		NotBefore:    now.Add(-backdate),
		NotAfter:     earlier(now.Add(leafLife), l.authority.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range l.names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.authority.cert, key.Public(), l.authority.key)
	if err != nil {
		return nil, fmt.Errorf("issuing the server's certificate for %s: %w", strings.Join(l.names, ", "), err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issuing the server's certificate: %w", err)
	}
	if err := l.save(leaf, key); err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, l.authority.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// save writes the leaf, its chain and its key.
func (l *leafStore) save(leaf *x509.Certificate, key *ecdsa.PrivateKey) error {
	if l.dir == "" {
		return nil
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	file := bytes.Join([][]byte{EncodeCertificate(leaf), EncodeCertificate(l.authority.cert), keyPEM}, nil)
	return writeFile(filepath.Join(l.dir, leafFile), file, 0o600)
}

// normalise lower-cases, sorts and removes duplicates; IP addresses get their usual spelling.
func normalise(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			n = ip.String()
		}
		if n != "" {
			out = append(out, strings.ToLower(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func certificateNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return normalise(names)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
