// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Names of the settings that SetTrust reads, in the config file and in its errors.
const (
	FieldCAFile     = "upstream_ca_file"
	FieldCASHA256   = "upstream_ca_sha256"
	FieldServerName = "upstream_server_name"
)

// SetTrust sets by what the certificate of an https upstream is verified: by authorities, or by the
// fingerprint of an authority or of the certificate itself, and for which name; "" = the
// upstream's host. Errors are CodeInvalid, with the fields above.
func (u *Upstream) SetTrust(o trust.Options, serverName string) error {
	var broken []account.FieldError
	given := func(field, value string) bool {
		if value != "" && u.Scheme != "https" {
			broken = append(broken, account.FieldError{Field: field, Value: account.Shorten(value),
				Rule: "is for an upstream with TLS: give the upstream as https://HOST[:PORT]"})
		}
		return value != "" && u.Scheme == "https"
	}
	bad := func(field, value, rule string) {
		broken = append(broken, account.FieldError{Field: field, Value: account.Shorten(value), Rule: rule})
	}
	ca := o.CAFile
	if len(o.CAPEM) > 0 {
		ca = string(o.CAPEM)
	}
	if given(FieldCAFile, ca) {
		config, err := trust.Options{CAFile: o.CAFile, CAPEM: o.CAPEM}.ClientConfig()
		if err != nil {
			bad(FieldCAFile, ca, err.Error())
		} else {
			u.Roots = config.RootCAs
		}
	}
	if given(FieldCASHA256, o.CASHA256) {
		pin, ok := trust.ParsePin(o.CASHA256)
		switch u.Pin = pin; {
		case ca != "":
			bad(FieldCASHA256, o.CASHA256, "excludes a file of authorities: give one of them")
		case !ok:
			bad(FieldCASHA256, o.CASHA256, "must be the 64 hex digits of a SHA-256 fingerprint; without it, the agent "+
				"prints the one that the upstream shows")
		}
	}
	if given(FieldServerName, serverName) {
		if u.ServerName = serverName; !validHost(serverName) {
			bad(FieldServerName, serverName, "must be a name or an IP address that the certificate has, without a port")
		}
	}
	if len(broken) > 0 {
		return account.InvalidAll(broken)
	}
	return nil
}

// untrustedError is a handshake that failed because of the certificates that the upstream showed.
type untrustedError struct {
	error

	shown []*x509.Certificate // at least one
}

func (e *untrustedError) Unwrap() error { return e.error }

// fingerprint returns what pins the upstream: the last authority that it showed, or its certificate.
func (e *untrustedError) fingerprint() string {
	if last := e.shown[len(e.shown)-1]; last.IsCA {
		return trust.Fingerprint(last)
	}
	return trust.Fingerprint(e.shown[0])
}

func (u Upstream) handshake(ctx context.Context, raw net.Conn, config *tls.Config) (relay.HalfCloser, error) {
	cfg := &tls.Config{}
	if config != nil {
		cfg = config.Clone()
	}
	cfg.MinVersion, cfg.ServerName, cfg.NextProtos = tls.VersionTLS12, u.Host, []string{"http/1.1"}
	if u.ServerName != "" {
		cfg.ServerName = u.ServerName
	}
	switch {
	case u.Pin != trust.Pin{}:
		cfg.InsecureSkipVerify = true // VerifyConnection verifies instead
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			if err := u.Pin.VerifyServer(cs, cfg.ServerName); err != nil {
				return &untrustedError{error: err, shown: cs.PeerCertificates}
			}
			return nil
		}
	case u.Roots != nil:
		cfg.RootCAs = u.Roots
	}
	if u.Protocol == ProtocolHTTP2 {
		cfg.NextProtos = []string{"h2"}
	}
	conn := tls.Client(raw, cfg)
	err := conn.HandshakeContext(ctx)
	if err == nil && u.Protocol == ProtocolHTTP2 && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("it does not speak HTTP/2; leave out --upstream-protocol http2")
	}
	if err != nil {
		_ = raw.Close()
		if v := (*tls.CertificateVerificationError)(nil); errors.As(err, &v) && len(v.UnverifiedCertificates) > 0 {
			err = &untrustedError{error: err, shown: v.UnverifiedCertificates}
		}
		return nil, fmt.Errorf("TLS handshake with %s: %w", u, err)
	}
	return conn, nil
}

// untrustedCause describes why the certificate of an upstream was not accepted, with the option that
// helps: a flag, or a field of the object that the endpoint is for.
func (s *spec) untrustedCause(problem trust.Problem, err error) string {
	file, sha256, name := "--upstream-ca-file", "--upstream-ca-sha256", "--upstream-server-name"
	if s.Owner != nil {
		file, sha256, name = "upstream.tls.ca", "upstream.tls.caSHA256", "upstream.tls.serverName"
	}
	text := identityText(problem)
	var untrusted *untrustedError
	shown := errors.As(err, &untrusted)
	switch {
	case problem == trust.UnknownAuthority && shown:
		return fmt.Sprintf("%s; give its authority with %s, or, if it is the upstream's, the fingerprint that it "+
			"shows: %s %s", text, file, sha256, untrusted.fingerprint())
	case problem == trust.WrongPin && shown:
		return fmt.Sprintf("neither it nor an authority that it shows has the fingerprint that was given; it shows "+
			"%s: if that is the upstream's, give it with %s", untrusted.fingerprint(), sha256)
	case problem == trust.WrongHost && shown:
		leaf := untrusted.shown[0]
		switch names := leaf.DNSNames; {
		case len(names) > 0:
			return fmt.Sprintf("%s; it names %q: give the upstream's with %s", text, names[:min(3, len(names))], name)
		case len(leaf.IPAddresses) == 0:
			return fmt.Sprintf("its certificate names no host; if it is the upstream's, give its fingerprint: %s %s",
				sha256, trust.Fingerprint(leaf))
		}
		return text + "; give one that it has with " + name
	}
	return text
}
