// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust owns how a client of the service decides that a server is the right one: the system's roots, a CA file, or the
// fingerprint of a CA's key. Flags and configuration come in; a *tls.Config goes out to internal/apiclient and internal/tunnel.
// Chain and host name are verified in every case; there is no way to skip that.
package trust

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Options say whom to trust. At most one of CAFile, CAPEM and CASHA256; none of them means the system's roots.
type Options struct {
	CAFile   string // path of a PEM file
	CAPEM    []byte // the same as bytes
	CASHA256 string // hex SHA-256 of the SubjectPublicKeyInfo of the CA; colons and case do not matter
}

// ClientConfig returns a TLS 1.3 client configuration that verifies chain and host name. Callers set ServerName and NextProtos.
func (o Options) ClientConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ClientSessionCache: tls.NewLRUClientSessionCache(64)}
	pem := o.CAPEM
	if o.CAFile != "" {
		b, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
		pem = b
	}
	switch {
	case len(pem) > 0 && o.CASHA256 != "":
		return nil, errors.New("ca-file and ca-sha256 exclude each other: give one of them")
	case len(pem) > 0:
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %q holds no PEM certificate", o.CAFile)
		}
	case o.CASHA256 != "":
		want, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(o.CASHA256), ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, fmt.Errorf("ca-sha256 %q: want the 64 hex digits that fairlead-server prints at its start", o.CASHA256)
		}
		cfg.InsecureSkipVerify = true // replaced by VerifyConnection below, which verifies the chain to the pinned CA and the host name
		cfg.VerifyConnection = func(cs tls.ConnectionState) error { return verifyPinned(cs, want) }
	}
	return cfg, nil
}

// verifyPinned verifies the presented chain up to the one presented certificate whose key has the pinned fingerprint, and the host name.
func verifyPinned(cs tls.ConnectionState, want []byte) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range cs.PeerCertificates[1:] {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		if c.IsCA && subtle.ConstantTimeCompare(sum[:], want) == 1 {
			roots.AddCert(c)
			found = true
			continue
		}
		intermediates.AddCert(c)
	}
	if !found {
		return errors.New("verifying server: no certificate authority in its chain has the fingerprint given as ca-sha256; compare it with what fairlead-server printed at its start")
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: cs.ServerName, Roots: roots, Intermediates: intermediates})
	if err != nil {
		return fmt.Errorf("verifying server: %w", err)
	}
	return nil
}

// Fingerprint returns the hex SHA-256 of the certificate's SubjectPublicKeyInfo, the value of ca-sha256.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}
