// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
)

const (
	leafValidity  = 24 * time.Hour
	clockSlack    = time.Minute // by which a peer's clock may be behind
	authorityName = "Fairlead replicas"
)

// authority signs the certificates of the replicas. All replicas with the same secret key have the
// same one.
type authority struct {
	key         ed25519.PrivateKey
	certificate *x509.Certificate
	pool        *x509.CertPool
}

func newAuthority(secret *seal.Key) (*authority, error) {
	seed := secret.Derive("authority of the links between replicas")
	key := ed25519.NewKeyFromSeed(seed[:])
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: authorityName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the replicas' authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the replicas' authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &authority{key: key, certificate: certificate, pool: pool}, nil
}

// issue makes a certificate for a replica, which is valid from now on.
func (a *authority) issue(id string, now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id}, DNSNames: []string{id},
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(leafValidity + clockSlack),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of replica %q: %w", id, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of replica %q: %w", id, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, nil
}

// identity is this replica's certificate, which is renewed at half its life.
type identity struct {
	authority *authority
	id        string

	mu      sync.Mutex
	current *tls.Certificate
	renewAt time.Time
}

func (i *identity) certificate() (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.current == nil || !now.Before(i.renewAt) {
		issued, err := i.authority.issue(i.id, now)
		if err != nil {
			return nil, err
		}
		i.current, i.renewAt = issued, now.Add(leafValidity/2)
	}
	return i.current, nil
}

// serverTLS returns the configuration of the listener. verify gets the caller's id once its
// certificate has been verified. Sessions are not resumed: each handshake verifies anew.
func (i *identity) serverTLS(verify func(id string) error) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate() },
		ClientAuth:     tls.RequireAndVerifyClientCert,
		ClientCAs:      i.authority.pool,
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := replicaID(state)
			if err != nil {
				return err
			}
			return verify(id)
		},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true, // the tunnel writes records in groups of its own
	}
}

// clientTLS returns the configuration for dialing the replica with the id.
func (i *identity) clientTLS(id string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: id, RootCAs: i.authority.pool, DynamicRecordSizingDisabled: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate() },
	}
}

// replicaID returns the id in the peer's certificate.
func replicaID(state tls.ConnectionState) (string, error) {
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].DNSNames) != 1 {
		return "", errors.New("the certificate names no replica")
	}
	return state.PeerCertificates[0].DNSNames[0], nil
}

// describeDialError explains the errors of dialing the replica with the id that an operator of the
// service can mend.
func describeDialError(err error, address, id string) error {
	var name x509.HostnameError
	switch {
	case errors.As(err, &name) && len(name.Certificate.DNSNames) == 1:
		return fmt.Errorf("relay address %s leads to replica %s, not to %s: give each replica an address of its own",
			address, name.Certificate.DNSNames[0], id)
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("the server at relay address %s of replica %s has another secret key, or is none of this "+
			"service: give all replicas the same secret key: %w", address, id, err)
	}
	return err
}
