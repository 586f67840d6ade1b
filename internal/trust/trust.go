// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust configures how a client verifies the service's certificate: by the system's roots,
// a CA file, or the fingerprint of a CA's key. Flags and configuration come in; a *tls.Config goes
// out to internal/apiclient and internal/tunnel. Chain and host name are verified in every case;
// verification cannot be disabled.
package trust

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Options select the trusted authorities: at most one of CAFile, CAPEM and CASHA256; none means the
// system's roots.
type Options struct {
	CAFile   string // path of a PEM file
	CAPEM    []byte // content of a PEM file
	CASHA256 string // hex SHA-256 of the SubjectPublicKeyInfo of the CA; colons and case do not matter

	Host string // Host is the service's name or IP address; without it, an IP address is not verified with CASHA256.
	Keep string // Keep is the directory that keeps what Open's client learns; "" = it is not kept.
	Kept string // Kept is such a directory which another process writes; it is read when Keep is "".
}

func (o Options) isSystem() bool { return o.CAFile == "" && len(o.CAPEM) == 0 && o.CASHA256 == "" }

// ClientConfig returns a TLS 1.3 client configuration that verifies chain and host name. Callers
// set ServerName and NextProtos.
func (o Options) ClientConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ClientSessionCache: newTicketCache()}
	switch byFile, byPEM := o.CAFile != "", len(o.CAPEM) > 0; {
	case byFile && byPEM, (byFile || byPEM) && o.CASHA256 != "":
		return nil, errors.New("ca-file and ca-sha256 exclude each other: give one of them")
	case byFile || byPEM:
		roots, err := o.readRoots()
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = roots
	case o.CASHA256 != "":
		want, err := o.fingerprint()
		if err != nil {
			return nil, err
		}
		// VerifyConnection below verifies the chain to the pinned CA and the host name instead
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			return verify(cs, o.Host, x509.NewCertPool(), want)
		}
	}
	return cfg, nil
}

// maxCAFileSize bounds the size of a CA file; the bundles of operating systems have about 250 kB.
const maxCAFileSize = 4 << 20

// fingerprint returns the pinned one.
func (o Options) fingerprint() ([]byte, error) {
	pin, ok := ParsePin(o.CASHA256)
	if !ok {
		return nil, fmt.Errorf("ca-sha256 %q: want the 64 hex digits that fairlead-server prints at its start",
			o.CASHA256)
	}
	return pin[:], nil
}

// readPEM reads the authorities given as a file or as bytes, and returns their name for messages.
func (o Options) readPEM() (pem []byte, name string, err error) {
	if o.CAFile == "" {
		return o.CAPEM, "the given CA bundle", nil
	}
	name = fmt.Sprintf("CA file %q", o.CAFile)
	f, err := os.Open(o.CAFile)
	if err != nil {
		return nil, name, fmt.Errorf("reading CA file: %w", err)
	}
	defer func() { _ = f.Close() }()
	if pem, err = io.ReadAll(io.LimitReader(f, maxCAFileSize+1)); err != nil {
		return nil, name, fmt.Errorf("reading CA file: %w", err)
	}
	if len(pem) > maxCAFileSize {
		return nil, name, fmt.Errorf("%s is larger than %d MiB; give a file of PEM certificates", name,
			maxCAFileSize>>20)
	}
	return pem, name, nil
}

// readRoots reads the authorities given as a file or as bytes. A file without a certificate is an
// error and does not mean the system's roots.
func (o Options) readRoots() (*x509.CertPool, error) {
	pem, name, err := o.readPEM()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate; it should begin with -----BEGIN CERTIFICATE-----", name)
	}
	return pool, nil
}

// ErrPin means that no authority in the server's chain has the pinned fingerprint.
var ErrPin = errors.New("no certificate authority in its chain has the fingerprint given as ca-sha256")

// verify verifies the host name, and the presented chain up to one of roots or, with a pin, to the one
// presented certificate whose key has that fingerprint. host is for a state that names none: the
// host is an IP address then.
func verify(cs tls.ConnectionState, host string, roots *x509.CertPool, pin []byte) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("verifying server: it presented no certificate")
	}
	intermediates, found := x509.NewCertPool(), false
	for _, c := range cs.PeerCertificates[1:] {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		if c.IsCA && subtle.ConstantTimeCompare(sum[:], pin) == 1 {
			roots = roots.Clone()
			roots.AddCert(c)
			found = true
			continue
		}
		intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: cmp.Or(cs.ServerName, host), Roots: roots,
		Intermediates: intermediates})
	switch {
	case err == nil:
		return nil
	case pin == nil:
		return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
	case !found && (errors.As(err, new(x509.UnknownAuthorityError)) || roots.Equal(x509.NewCertPool())):
		return fmt.Errorf("verifying server: %w", ErrPin)
	}
	return fmt.Errorf("verifying server: %w", err)
}

// Fingerprint returns the hex SHA-256 of the certificate's SubjectPublicKeyInfo, the value of
// ca-sha256.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// Problem is the reason why a server's identity could not be verified. Retrying does not help: a
// setting here or the certificate there must be changed.
type Problem string

// The problems. NoProblem means that an error has another reason, such as the network.
const (
	NoProblem        Problem = ""
	UnknownAuthority Problem = "UnknownAuthority" // signed by an authority that is not trusted
	WrongPin         Problem = "WrongPin"         // no authority with the pinned fingerprint
	WrongHost        Problem = "WrongHost"        // the certificate is for other names
	OutOfDate        Problem = "OutOfDate"        // expired, or not valid yet according to this machine's clock
	BadCertificate   Problem = "BadCertificate"   // any other error in the chain
)

// ProblemOf returns the Problem that a TLS handshake error means, or NoProblem.
func ProblemOf(err error) Problem {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, ErrPin):
		return WrongPin
	case errors.As(err, new(x509.HostnameError)):
		return WrongHost
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return OutOfDate
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return UnknownAuthority
	case errors.As(err, &invalid), errors.As(err, new(*tls.CertificateVerificationError)):
		return BadCertificate
	}
	return NoProblem
}

// Pin is the SHA-256 of a certificate's SubjectPublicKeyInfo. The zero value is none.
type Pin [sha256.Size]byte

// ParsePin reads a fingerprint of 64 hex digits; colons and case do not matter. ok is false for
// anything else.
func ParsePin(text string) (pin Pin, ok bool) {
	sum, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(text), ":", ""))
	if err != nil || len(sum) != sha256.Size {
		return Pin{}, false
	}
	return Pin(sum), true
}

// VerifyServer verifies a server whose own key is pinned, or that of an authority in its chain: by
// its dates and by its name, which is host for a state that names none: an IP address. A pinned
// certificate without any name is accepted for every name, as there is none to compare.
func (p Pin) VerifyServer(cs tls.ConnectionState, host string) error {
	if len(cs.PeerCertificates) == 0 || sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo) != p {
		return verify(cs, host, x509.NewCertPool(), p[:])
	}
	leaf, roots := cs.PeerCertificates[0], x509.NewCertPool()
	roots.AddCert(leaf)
	options := x509.VerifyOptions{Roots: roots}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) > 0 {
		options.DNSName = cmp.Or(cs.ServerName, host)
	}
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Errorf("verifying server: %w", err)
	}
	return nil
}

const (
	ticketsPerServer = 4
	maxServers       = 64
)

// ticketCache is a tls.ClientSessionCache that keeps a few tickets of each server. crypto/tls
// discards a ticket when the handshake that used it fails, even when the connection was cut or the
// dial was cancelled: that happens to all clients at once when a server restarts, and should not
// cost full handshakes. A ticket that the server rejects is used up after a few failures.
type ticketCache struct {
	mu       sync.Mutex
	byServer map[string][]*tls.ClientSessionState // oldest first
}

func newTicketCache() *ticketCache {
	return &ticketCache{byServer: map[string][]*tls.ClientSessionState{}}
}

// Get returns the newest ticket.
func (t *ticketCache) Get(server string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.byServer[server]
	if len(kept) == 0 {
		return nil, false
	}
	return kept[len(kept)-1], true
}

// Put adds a ticket; nil removes the newest.
func (t *ticketCache) Put(server string, s *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.byServer[server]
	switch {
	case s == nil && len(kept) > 1:
		t.byServer[server] = kept[:len(kept)-1]
		return
	case s == nil:
		delete(t.byServer, server)
		return
	case kept == nil && len(t.byServer) >= maxServers:
		clear(t.byServer)
	}
	if len(kept) >= ticketsPerServer {
		kept = kept[1:]
	}
	t.byServer[server] = append(kept, s)
}

// clear removes all tickets.
func (t *ticketCache) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byServer)
}
