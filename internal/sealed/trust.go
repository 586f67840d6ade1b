// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Mode is which connections to an endpoint are sealed.
type Mode string

// The modes, from the loosest to the strictest.
const (
	Off     Mode = "Off"
	Prefer  Mode = "Prefer"  // unless the agent has no key, and as long as the endpoint never was sealed
	Require Mode = "Require" // or refused
)

// CertificateSource returns the certificate to present, with its chain and key. It is called for
// every connection and must return at once; after a renewal it returns another one. While it fails,
// the one before remains in use.
type CertificateSource func() (*tls.Certificate, error)

// TrustOptions choose whose certificate may answer for an endpoint: one of the Authorities has signed
// it, or it has one of the Keys. Without both, any key may: the caller compares Conn.Peer.
type TrustOptions struct {
	Mode        Mode
	Account     string              // id of the account, never what the service says
	Authorities []*x509.Certificate // roots of the account's owner
	Keys        []trust.Pin         // agents' public keys
	Proof       CertificateSource   // the caller's own certificate, for agents that ask for one; nil = none
}

// Trust is one setting of trust: its TLS sessions are resumed under no other. It is safe for
// concurrent use.
type Trust struct {
	options TrustOptions
	roots   *x509.CertPool // nil without authorities

	mu      sync.Mutex
	proof   *tls.Certificate                    // the proof in configs
	configs map[account.EndpointURL]*tls.Config // one for each endpoint, with a ticket of its own
}

const (
	alpn = "fairlead-seal/1"

	// serverName is the same for all endpoints: a URL is only sent inside the seal.
	serverName = "sealed.fairlead"

	maxConfigs = 4096
	clockSkew  = 5 * time.Minute
)

// NewTrust returns a Trust.
func NewTrust(o TrustOptions) (*Trust, error) {
	switch {
	case o.Account == "":
		return nil, errors.New("sealed endpoints: the account's id is missing")
	case len(o.Authorities) > 0 && len(o.Keys) > 0:
		return nil, errors.New("sealed endpoints: authorities and keys exclude each other: give one of them")
	}
	t := &Trust{options: o, configs: map[account.EndpointURL]*tls.Config{}}
	if len(o.Authorities) > 0 {
		t.roots = x509.NewCertPool()
		for _, c := range o.Authorities {
			t.roots.AddCert(c)
		}
	}
	return t, nil
}

// Mode returns the mode of the options.
func (t *Trust) Mode() Mode { return t.options.Mode }

// config returns the TLS configuration for connections to an endpoint. A session is resumed for the
// same endpoint, and with the proof with which it began.
func (t *Trust) config(u account.EndpointURL) (*tls.Config, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	proof := t.proof
	if t.options.Proof != nil {
		if read, err := t.options.Proof(); err == nil {
			proof = read
		} else if proof == nil {
			return nil, fmt.Errorf("reading the caller's certificate: %w", err)
		}
	}
	if !sameCertificate(proof, t.proof) || len(t.configs) >= maxConfigs {
		clear(t.configs)
		t.proof = proof
	}
	if cfg := t.configs[u]; cfg != nil {
		return cfg, nil
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}, ServerName: serverName,
		InsecureSkipVerify:          true, // VerifyConnection verifies instead, also when a session is resumed
		VerifyConnection:            func(cs tls.ConnectionState) error { return t.verify(cs, u) },
		ClientSessionCache:          tls.NewLRUClientSessionCache(1),
		DynamicRecordSizingDisabled: true,
	}
	if proof != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return proof, nil }
	}
	t.configs[u] = cfg
	return cfg, nil
}

// verify returns an *UntrustedError unless the peer may answer for the endpoint. Whatever is trusted,
// the certificate must name the endpoint, or the service could lead calls of one endpoint to the
// agent of another. Its dates count if an authority has signed it, for that long; a pinned key is
// trusted until its owner removes the pin.
func (t *Trust) verify(cs tls.ConnectionState, u account.EndpointURL) error {
	if cs.Version != tls.VersionTLS13 || cs.NegotiatedProtocol != alpn || len(cs.PeerCertificates) == 0 {
		return &UntrustedError{Reason: NotSealed}
	}
	leaf := cs.PeerCertificates[0]
	refuse := &UntrustedError{Key: keyOf(leaf)}
	switch {
	case t.roots != nil:
		refuse.Err = verifyChain(cs.PeerCertificates, t.roots, x509.ExtKeyUsageServerAuth)
		if isExpired(refuse.Err) {
			refuse.Reason = Expired
		} else if refuse.Err != nil {
			refuse.Reason = KeyUnknown
		}
	case len(t.options.Keys) > 0 && !slices.Contains(t.options.Keys, refuse.Key):
		refuse.Reason = KeyChanged
	}
	if refuse.Reason == "" && !Covers(leaf.URIs, t.options.Account, u) {
		refuse.Reason = NameMismatch
	}
	if refuse.Reason == "" {
		return nil
	}
	return refuse
}

// verifyChain verifies that one of roots has signed the first certificate for the usage. Clocks may
// differ by clockSkew.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) error {
	leaf := chain[0]
	switch {
	case leaf.IsCA:
		return errors.New("it is the certificate of an authority")
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("its key usage does not have digital signature")
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	now := time.Now()
	_, err := leaf.Verify(options)
	for _, skew := range []time.Duration{-clockSkew, clockSkew} {
		if !isExpired(err) {
			break
		}
		options.CurrentTime = now.Add(skew)
		if _, skewed := leaf.Verify(options); skewed == nil {
			err = nil
		}
	}
	return err
}

func isExpired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// sameCertificate reports whether two certificates, each of which may be nil, are the same.
func sameCertificate(a, b *tls.Certificate) bool {
	return a == b || a != nil && b != nil && slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}
