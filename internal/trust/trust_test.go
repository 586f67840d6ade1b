// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const host = "fairlead.test"

// authority is a certificate authority, or an intermediate one.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	chain [][]byte // from this one up to the root
}

func sign(t *testing.T, tmpl *x509.Certificate, by *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must.Succeed(t, err)
	tmpl.SerialNumber = serial
	parent, signer := tmpl, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	a := &authority{cert: cert, key: key, chain: [][]byte{der}}
	if by != nil {
		a.chain = append(a.chain, by.chain...)
	}
	return a
}

func newCA(t *testing.T, name string, by *authority, until time.Duration) *authority {
	t.Helper()
	return sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(until), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, by)
}

// leaf makes a server certificate; its validity begins at from and ends at until, both relative to
// now.
func (a *authority) leaf(t *testing.T, name string, from, until time.Duration) tls.Certificate {
	t.Helper()
	names, addresses := []string{name}, []net.IP(nil)
	if ip := net.ParseIP(name); ip != nil {
		names, addresses = nil, []net.IP{ip}
	}
	l := sign(t, &x509.Certificate{DNSNames: names, IPAddresses: addresses, NotBefore: time.Now().Add(from),
		NotAfter: time.Now().Add(until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a)
	return tls.Certificate{Certificate: l.chain, PrivateKey: l.key}
}

// handshake connects a client with these options to a server that shows cert, n times, and returns
// the last state.
func handshake(t *testing.T, o trust.Options, cert tls.Certificate, n int) (tls.ConnectionState, error) {
	t.Helper()
	cfg, err := o.ClientConfig()
	must.Succeed(t, err)
	cfg.ServerName = host
	server := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	var state tls.ConnectionState
	for range n {
		if state, err = once(t, cfg, server); err != nil {
			return state, err
		}
	}
	return state, nil
}

func once(t *testing.T, client, server *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := ln.Accept()
		if err != nil {
			return
		}
		c := tls.Server(raw, server)
		_, _ = c.Write([]byte("x")) // carries the session ticket; fails when the client refuses us
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	defer func() { _ = ln.Close(); <-served }()
	raw, err := net.Dial("tcp", ln.Addr().String())
	must.Succeed(t, err)
	defer func() { _ = raw.Close() }()
	c := tls.Client(raw, client)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), nil
}

func pemFile(t *testing.T, a *authority) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	must.Succeed(t, os.WriteFile(path, pemOf(a), 0o600))
	return path
}

func pemOf(a *authority) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func TestClientConfig_AcceptsTrustedServerOnly(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	root := newCA(t, "root", nil, day)
	middle := newCA(t, "middle", root, day)
	other := newCA(t, "other", nil, day)
	expiredCA := newCA(t, "expired", nil, -day)
	pin := func(a *authority) trust.Options { return trust.Options{CASHA256: trust.Fingerprint(a.cert)} }
	good := root.leaf(t, host, -day, day)
	// An impostor shows a leaf of its own authority and appends the pinned certificate, which is
	// public.
	impostor := other.leaf(t, host, -day, day)
	impostor.Certificate = append(impostor.Certificate, root.cert.Raw)
	withoutCA := tls.Certificate{Certificate: good.Certificate[:1], PrivateKey: good.PrivateKey}

	for name, c := range map[string]struct {
		opts trust.Options
		cert tls.Certificate
		want trust.Problem
	}{
		"pinned root":                       {pin(root), good, trust.NoProblem},
		"pinned root above an intermediate": {pin(root), middle.leaf(t, host, -day, day), trust.NoProblem},
		"pinned intermediate":               {pin(middle), middle.leaf(t, host, -day, day), trust.NoProblem},
		"CA file":                           {trust.Options{CAFile: pemFile(t, root)}, good, trust.NoProblem},
		"CA bytes":                          {trust.Options{CAPEM: pemOf(root)}, good, trust.NoProblem},
		"CA file, chain without the CA":     {trust.Options{CAFile: pemFile(t, root)}, withoutCA, trust.NoProblem},
		"other pin":                         {pin(other), good, trust.WrongPin},
		"pin, chain without the CA":         {pin(root), withoutCA, trust.WrongPin},
		"pin of the leaf is not a CA's":     {trust.Options{CASHA256: fingerprintOf(t, good)}, good, trust.WrongPin},
		"impostor that shows the pinned CA": {pin(root), impostor, trust.UnknownAuthority},
		"CA file of another authority":      {trust.Options{CAFile: pemFile(t, other)}, good, trust.UnknownAuthority},
		"system roots":                      {trust.Options{}, good, trust.UnknownAuthority},
		"pin, wrong host":                   {pin(root), root.leaf(t, "other.test", -day, day), trust.WrongHost},
		"CA file, wrong host": {trust.Options{CAFile: pemFile(t, root)}, root.leaf(t, "other.test", -day, day),
			trust.WrongHost},
		"pin, expired": {pin(root), root.leaf(t, host, -2*day, -day), trust.OutOfDate},
		"CA file, expired": {trust.Options{CAFile: pemFile(t, root)}, root.leaf(t, host, -2*day, -day),
			trust.OutOfDate},
		"pin, not valid yet":   {pin(root), root.leaf(t, host, day, 2*day), trust.OutOfDate},
		"pin of an expired CA": {pin(expiredCA), expiredCA.leaf(t, host, -day, day), trust.OutOfDate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := handshake(t, c.opts, c.cert, 1)
			if (err == nil) != (c.want == trust.NoProblem) || trust.ProblemOf(err) != c.want {
				t.Errorf("got %v (%q), want %q", err, trust.ProblemOf(err), c.want)
			}
		})
	}
}

func fingerprintOf(t *testing.T, c tls.Certificate) string {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	must.Succeed(t, err)
	return trust.Fingerprint(leaf)
}

func TestTicketCache_ReconnectResumesTLS(t *testing.T) {
	t.Parallel()
	root := newCA(t, "root", nil, time.Hour)
	for name, o := range map[string]trust.Options{"pin": {CASHA256: trust.Fingerprint(root.cert)},
		"file": {CAFile: pemFile(t, root)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, err := handshake(t, o, root.leaf(t, host, -time.Hour, time.Hour), 2)
			if err != nil || !state.DidResume {
				t.Errorf("resumed %v, %v", state.DidResume, err)
			}
		})
	}
}

func TestTicketCache_KeepsTicketAfterBrokenHandshake(t *testing.T) {
	t.Parallel()
	root := newCA(t, "root", nil, time.Hour)
	client, err := trust.Options{CAPEM: pemOf(root)}.ClientConfig()
	must.Succeed(t, err)
	client.ServerName = host
	server := &tls.Config{Certificates: []tls.Certificate{root.leaf(t, host, -time.Hour, time.Hour)},
		MinVersion: tls.VersionTLS13}
	for range 2 {
		if _, err := once(t, client, server); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	if err := tls.Client(ours, client).Handshake(); err == nil {
		t.Fatal("a handshake without a server succeeded")
	}
	if state, err := once(t, client, server); err != nil || !state.DidResume {
		t.Errorf("after the cut: resumed %v, %v", state.DidResume, err)
	}
}

func TestTicketCache_RejectedTicketsRunOut(t *testing.T) {
	t.Parallel()
	client, err := trust.Options{}.ClientConfig()
	must.Succeed(t, err)
	cache := client.ClientSessionCache
	for range 10 {
		cache.Put("a", &tls.ClientSessionState{})
	}
	n := 0
	for {
		if _, ok := cache.Get("a"); !ok {
			break
		}
		cache.Put("a", nil)
		n++
	}
	cache.Put("a", nil)
	if n != 4 {
		t.Errorf("%d tickets were kept, want 4", n)
	}
}

func TestClientConfig_ParsesFingerprintSpellings(t *testing.T) {
	t.Parallel()
	root := newCA(t, "root", nil, time.Hour)
	fp := trust.Fingerprint(root.cert)
	var pairs []string
	for i := 0; i < len(fp); i += 2 {
		pairs = append(pairs, fp[i:i+2])
	}
	for _, spelling := range []string{fp, strings.ToUpper(fp), strings.ToUpper(strings.Join(pairs, ":"))} {
		if _, err := handshake(t, trust.Options{CASHA256: spelling}, root.leaf(t, host, -time.Hour, time.Hour),
			1); err != nil {
			t.Errorf("%s: %v", spelling, err)
		}
	}
}

func TestClientConfig_RefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	root := newCA(t, "root", nil, time.Hour)
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		o    trust.Options
		want string
	}{
		"file and pin": {trust.Options{CAFile: pemFile(t, root), CASHA256: trust.Fingerprint(root.cert)},
			"exclude each other"},
		"empty file and pin": {trust.Options{CAFile: write(""), CASHA256: trust.Fingerprint(root.cert)},
			"exclude each other"},
		"no such file":        {trust.Options{CAFile: "/does/not/exist.pem"}, "reading CA file"},
		"empty file":          {trust.Options{CAFile: write("")}, "holds no PEM certificate"},
		"not PEM":             {trust.Options{CAFile: write("hello")}, "holds no PEM certificate"},
		"bytes not PEM":       {trust.Options{CAPEM: []byte("hello")}, "holds no PEM certificate"},
		"huge file":           {trust.Options{CAFile: write(strings.Repeat("x", 5<<20))}, "larger than 4 MiB"},
		"fingerprint short":   {trust.Options{CASHA256: "abcd"}, `ca-sha256 "abcd": want the 64 hex digits`},
		"fingerprint not hex": {trust.Options{CASHA256: strings.Repeat("g", 64)}, "want the 64 hex digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := c.o.ClientConfig()
			if err == nil || cfg != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestProblemOf_OtherErrorsAreNoProblem(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, io.EOF, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
		tls.AlertError(40)} {
		if p := trust.ProblemOf(err); p != trust.NoProblem {
			t.Errorf("%v is %q", err, p)
		}
	}
}
