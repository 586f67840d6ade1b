// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"time"
)

// keyring is what a hop of raw TLS needs.
type keyring struct{ server, client *tls.Config }

func makeKeys() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{"bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), nil
}

func loadKeys() (keyring, error) {
	both := []byte(os.Getenv(envKey))
	if len(both) == 0 {
		return keyring{}, nil // our chain needs none
	}
	cert, err := tls.X509KeyPair(both, both)
	if err != nil {
		return keyring{}, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	return keyring{
		server: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
			DynamicRecordSizingDisabled: true},
		client: &tls.Config{RootCAs: pool, ServerName: "bench", MinVersion: tls.VersionTLS13,
			DynamicRecordSizingDisabled: true,
			ClientSessionCache:          tls.NewLRUClientSessionCache(0)},
	}, nil
}
