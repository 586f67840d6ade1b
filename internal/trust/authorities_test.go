// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// newCAAt makes an authority, hours after the others.
func newCAAt(t *testing.T, name string, hours time.Duration) *authority {
	t.Helper()
	return sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48*time.Hour + hours*time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign}, nil)
}

// announce returns authorities as a server announces them.
func announce(all ...*authority) (der [][]byte) {
	for _, one := range all {
		der = append(der, one.cert.Raw)
	}
	return der
}

func TestAuthorities_LearnAndForget(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	a, b, c := newCAAt(t, "a", 0), newCAAt(t, "b", 1), newCAAt(t, "c", 2)
	trusts := func(when string, cfg *tls.Config, want ...*authority) {
		t.Helper()
		for _, by := range []*authority{a, b, c} {
			server := &tls.Config{Certificates: []tls.Certificate{by.leaf(t, host, -time.Hour, day)},
				MinVersion: tls.VersionTLS13}
			if _, err := once(t, cfg, server); (err == nil) != slices.Contains(want, by) {
				t.Errorf("%s, server of %s: %v", when, by.cert.Subject.CommonName, err)
			}
		}
	}
	for name, given := range map[string]trust.Options{
		"file": {CAFile: pemFile(t, a)}, "bundle": {CAPEM: pemOf(a)}, "pin": {CASHA256: trust.Fingerprint(a.cert)},
	} {
		given.Host, given.Keep = host, filepath.Join(t.TempDir(), "state")
		open := func() (*tls.Config, *trust.Authorities) {
			t.Helper()
			cfg, learner, err := given.Open()
			must.Succeed(t, err)
			cfg.ServerName = host
			return cfg, learner
		}
		cfg, learner := open()
		trusts(name+", at first", cfg, a)
		must.Succeed(t, learner.Learn(announce(a)))
		if files, _ := os.ReadDir(given.Keep); len(files) != 0 {
			t.Errorf("%s: what was given was learnt: %v", name, files)
		}
		must.Succeed(t, learner.Learn(announce(a, b)))
		trusts(name+", with a next one", cfg, a, b)
		again, _ := open()
		trusts(name+", after a restart", again, a, b)
		must.Succeed(t, learner.Learn(announce(b, c)))
		trusts(name+", after the second one", cfg, a, b, c)
		must.Succeed(t, learner.Learn(announce(a, b))) // as a server that knows older ones only does
		trusts(name+", after an old announcement", cfg, a, b, c)
		must.Succeed(t, learner.Learn(announce(c)))
		trusts(name+", after b was retired", cfg, a, c)
		again, _ = open()
		trusts(name+", after that and a restart", again, a, c)
		files, err := filepath.Glob(filepath.Join(given.Keep, "*"))
		must.Succeed(t, err)
		if info, err := os.Stat(files[0]); len(files) != 1 || err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: files %v, %v", name, files, err)
		}
		must.Succeed(t, os.Chtimes(files[0], time.Time{}, time.Now().Add(-time.Hour)))
		again, learner = open()
		must.Succeed(t, learner.Learn(announce(a, b))) // c was a thief's
		trusts(name+", an hour later", again, a, b)
		given.Host = "another.test"
		again, _ = open()
		trusts(name+", at another service", again, a)
	}
}

// TestAuthorities_FollowKept holds that a client trusts what another process keeps, as it changes, until
// the service has told the client itself, and that it writes nothing.
func TestAuthorities_FollowKept(t *testing.T) {
	t.Parallel()
	a, b, c := newCAAt(t, "a", 0), newCAAt(t, "b", 1), newCAAt(t, "c", 2)
	dir := t.TempDir()
	open := func(o trust.Options) (*tls.Config, *trust.Authorities) {
		t.Helper()
		o.CAPEM, o.Host = pemOf(a), host
		cfg, learner, err := o.Open()
		must.Succeed(t, err)
		cfg.ServerName = host
		return cfg, learner
	}
	_, keeper := open(trust.Options{Keep: dir})
	cfg, reader := open(trust.Options{Kept: dir})
	trusts := func(when string, want ...*authority) {
		t.Helper()
		for _, by := range []*authority{a, b, c} {
			server := &tls.Config{Certificates: []tls.Certificate{by.leaf(t, host, -time.Hour, time.Hour)},
				MinVersion: tls.VersionTLS13}
			if _, err := once(t, cfg, server); (err == nil) != slices.Contains(want, by) {
				t.Errorf("%s, server of %s: %v", when, by.cert.Subject.CommonName, err)
			}
		}
	}
	trusts("at first", a)
	must.Succeed(t, keeper.Learn(announce(a, b)))
	trusts("with a next one", a, b)
	must.Succeed(t, keeper.Learn(announce(b, c)))
	trusts("with the one after that", a, b, c)
	must.Succeed(t, keeper.Learn(announce(c)))
	trusts("after b was retired", a, c)
	must.Succeed(t, reader.Learn(announce(a, b))) // a server that is behind
	if _, text, told := reader.Told(); told || text != string(pemOf(c)) {
		t.Errorf("an old announcement was taken: told %v, %s", told, text)
	}
	trusts("after an old announcement", a, c)
	must.Succeed(t, reader.Learn(announce(b, c)))
	trusts("once it was told", a, b, c)
	file, text, told := reader.Told()
	kept, err := os.ReadFile(filepath.Join(dir, file))
	if want := string(pemOf(b)) + string(pemOf(c)); err != nil || !told || text != want ||
		!bytes.Equal(kept, pemOf(c)) {
		t.Errorf("told %v: %s; the file has %s, %v", told, text, kept, err)
	}
	must.Succeed(t, os.Remove(filepath.Join(dir, file)))
	trusts("without the file", a, b, c)
	cfg, reader = open(trust.Options{Kept: dir})
	must.Succeed(t, reader.Learn(announce(a, b)))
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("the reader wrote %v, %v", files, err)
	}
}

func TestAuthorities_SystemRootsLearnNothing(t *testing.T) {
	t.Parallel()
	cfg, learner, err := trust.Options{Host: host, Keep: t.TempDir()}.Open()
	if err != nil || learner.Learns() || cfg.InsecureSkipVerify {
		t.Errorf("%v, learns: %t", err, learner.Learns())
	}
}

// TestAuthorities_VerifyAddress holds that the name of a service without a host name is verified.
func TestAuthorities_VerifyAddress(t *testing.T) {
	t.Parallel()
	a := newCAAt(t, "a", 0)
	both := bytes.Join([][]byte{pemOf(newCAAt(t, "b", 0)), pemOf(a)}, nil) // a file with several
	for _, given := range []trust.Options{{CAPEM: both}, {CASHA256: trust.Fingerprint(a.cert)}} {
		given.Host = "127.0.0.1"
		cfg, _, err := given.Open()
		must.Succeed(t, err)
		cfg.ServerName = given.Host
		for name, wanted := range map[string]trust.Problem{host: trust.WrongHost, "127.0.0.1": trust.NoProblem} {
			leaf := a.leaf(t, name, -time.Hour, time.Hour)
			_, err := once(t, cfg, &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS13})
			if got := trust.ProblemOf(err); got != wanted || (wanted == trust.NoProblem) != (err == nil) {
				t.Errorf("certificate for %s: %v", name, err)
			}
		}
	}
}
