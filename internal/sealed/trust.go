// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Prefer  Mode = "Prefer"  // or plain, while no agent seals
	Require Mode = "Require" // or refused
)

// CertificateSource returns the certificate to present, with its chain and key. It is called for
// every connection and must return at once; after a renewal it returns another one. While it fails,
// the one before remains in use.
type CertificateSource func() (*tls.Certificate, error)

// TokenSource returns the token to send, "" without one, as a CertificateSource does.
type TokenSource func() (string, error)

// TrustOptions choose whose certificate may answer for an endpoint: one of the Authorities has signed
// it, or it has one of the Keys: one of the two is needed.
type TrustOptions struct {
	Mode        Mode
	Account     string              // id of the account, never what the service says
	Authorities []*x509.Certificate // roots of the account's owner
	Keys        []trust.Pin         // agents' public keys
	// Proof is the caller's own certificate, for agents that ask for one; nil = none. While it fails,
	// calls go on with the certificate before, or without one.
	Proof CertificateSource
	Token TokenSource // Token is the caller's, for agents that are trusted; nil = none.
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

// Reason is why a Trust does not let a peer answer for an endpoint.
type Reason string

// The reasons.
const (
	KeyUnknown   Reason = "KeyUnknown"   // no authority of the owner has signed its certificate for a server
	KeyChanged   Reason = "KeyChanged"   // its key is none of those that are pinned
	NameMismatch Reason = "NameMismatch" // its certificate names another account or other endpoints
	Expired      Reason = "Expired"      // its certificate has expired, or is not valid yet
	NotSealed    Reason = "NotSealed"    // it does not speak the protocol
)

// UntrustedError means that a Trust does not let the peer answer for the endpoint. The peer has seen
// nothing of the connection.
type UntrustedError struct {
	Reason Reason
	Key    trust.Pin // the peer's public key; the zero value if NotSealed
	Err    error     // more about the reason; may be nil
}

// Error returns reason, key and Err.
func (e *UntrustedError) Error() string {
	text := "the other end of a sealed connection is not trusted: " + string(e.Reason)
	if e.Key != (trust.Pin{}) {
		text += ", key " + FormatKey(e.Key)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *UntrustedError) Unwrap() error { return e.Err }

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
	case len(o.Authorities)+len(o.Keys) == 0:
		return nil, errors.New("sealed endpoints: neither authorities nor keys are trusted: give one of them")
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
func (t *Trust) config(u account.EndpointURL) *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	proof := t.proof
	if t.options.Proof != nil {
		if read, err := t.options.Proof(); err == nil {
			proof = read
		}
	}
	if !sameCertificate(proof, t.proof) || len(t.configs) >= maxConfigs {
		clear(t.configs)
		t.proof = proof
	}
	if cfg := t.configs[u]; cfg != nil {
		return cfg
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
	return cfg
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
	key := keyOf(leaf)
	if t.roots != nil {
		if err := verifyChain(cs.PeerCertificates, t.roots, x509.ExtKeyUsageServerAuth); isExpired(err) {
			return &UntrustedError{Expired, key, err}
		} else if err != nil {
			return &UntrustedError{KeyUnknown, key, err}
		}
	}
	if len(t.options.Keys) > 0 && !slices.Contains(t.options.Keys, key) {
		return &UntrustedError{Reason: KeyChanged, Key: key}
	}
	if !Covers(leaf.URIs, t.options.Account, u) {
		return &UntrustedError{NameMismatch, key, fmt.Errorf("its certificate names %s, not %s", leaf.URIs,
			Name(t.options.Account, u))}
	}
	return nil
}

// Trusts reports whether the other end of a connection may answer for the endpoint now.
func (t *Trust) Trusts(c *Conn, u account.EndpointURL) bool {
	return t.verify(c.tls.ConnectionState(), u) == nil
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
	_, err := leaf.Verify(options)
	for _, skew := range []time.Duration{-clockSkew, clockSkew} {
		if options.CurrentTime = time.Now().Add(skew); isExpired(err) {
			if _, skewed := leaf.Verify(options); skewed == nil {
				return nil
			}
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

const keyPrefix = "sha256/"

// ParseKey reads the fingerprint of a public key: sha256/ and the base64 of the SHA-256 of its
// SubjectPublicKeyInfo, as in RFC 7469.
func ParseKey(text string) (trust.Pin, error) {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, keyPrefix))
	if err != nil || len(sum) != sha256.Size || !strings.HasPrefix(text, keyPrefix) {
		return trust.Pin{}, fmt.Errorf("%q is no key: it is %sBASE64, as the agent and fairlead seal status print it",
			text, keyPrefix)
	}
	return trust.Pin(sum), nil
}

// FormatKey returns the text that ParseKey reads.
func FormatKey(p trust.Pin) string { return keyPrefix + base64.StdEncoding.EncodeToString(p[:]) }

// keyOf returns the fingerprint of a certificate's public key.
func keyOf(c *x509.Certificate) trust.Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }
