// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var names = []string{"fairlead.example.net", "localhost", "127.0.0.1", "::1"}

func open(t *testing.T, o Options) *Source {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Open(t.Context(), o)
	must.Succeed(t, err)
	return s
}

// handshake reports whether a client of these trust options accepts the source's certificate under
// a server name.
func handshake(t *testing.T, s *Source, o trust.Options, serverName string) error {
	t.Helper()
	cfg, err := o.ClientConfig()
	must.Succeed(t, err)
	cfg.ServerName = serverName
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		_ = tls.Server(far, &tls.Config{GetCertificate: s.GetCertificate, MinVersion: tls.VersionTLS13}).Handshake()
	}()
	return tls.Client(near, cfg).Handshake()
}

func TestAuthority_TrustedByFileAndFingerprint(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir(), Names: names})
	ca := EncodeCertificate(s.CA())
	pin := trust.Fingerprint(s.CA())
	for _, c := range []struct {
		what, name string
		o          trust.Options
		ok         bool
	}{
		{"CA file", "fairlead.example.net", trust.Options{CAPEM: ca}, true},
		{"CA file, address", "127.0.0.1", trust.Options{CAPEM: ca}, true},
		{"CA file, IPv6", "::1", trust.Options{CAPEM: ca}, true},
		{"fingerprint", "localhost", trust.Options{CASHA256: pin}, true},
		{"CA file, other name", "other.example.net", trust.Options{CAPEM: ca}, false},
		{"fingerprint, other name", "other.example.net", trust.Options{CASHA256: pin}, false},
		{"other fingerprint", "localhost", trust.Options{CASHA256: strings.Repeat("0", 64)}, false},
		{"system roots", "localhost", trust.Options{}, false},
	} {
		if err := handshake(t, s, c.o, c.name); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestOpen_CreatesFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Options{Dir: dir, Names: names})
	for file, mode := range map[string]os.FileMode{caKeyFile: 0o600, leafFile: 0o600, caCertFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, file))
		must.Succeed(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", file, info.Mode(), mode)
		}
	}
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	if len(entries) != 3 {
		t.Errorf("the directory holds %v, want the three files only", entries)
	}
}

func TestOpen_KeepsAuthorityAndLeafUnlessNamesChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, Options{Dir: dir, Names: names})
	same := open(t,
		Options{Dir: dir, Names: []string{"LOCALHOST", "::1", "0:0:0:0:0:0:0:1", "127.0.0.1", "fairlead.example.net"}})
	if !same.Leaf().Equal(first.Leaf()) {
		t.Error("the same names in another spelling made a new leaf")
	}
	more := open(t, Options{Dir: dir, Names: append([]string{"new.example.net"}, names...)})
	if more.Leaf().Equal(first.Leaf()) || more.Leaf().VerifyHostname("new.example.net") != nil {
		t.Error("a new name did not make a new leaf")
	}
	if !more.CA().Equal(first.CA()) {
		t.Error("a new name made a new authority")
	}
}

func TestOpen_ReissuesDamagedLeaf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Options{Dir: dir, Names: names})
	must.Succeed(t, os.WriteFile(filepath.Join(dir, leafFile), []byte("half a fi"), 0o600))
	if err := open(t, Options{Dir: dir, Names: names}).Leaf().VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
}

func TestOpen_RefusesAuthorityWithoutKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := open(t, Options{Dir: dir, Names: names}).CA()
	must.Succeed(t, os.Remove(filepath.Join(dir, caKeyFile)))
	_, err := Open(t.Context(), Options{Dir: dir, Names: names})
	if err == nil || !strings.Contains(err.Error(), "backup") {
		t.Errorf("error %v, want one with a remedy", err)
	}
	after, err := LoadCA(dir)
	if err != nil || !after.Equal(before) {
		t.Errorf("the authority changed: %v", err)
	}
}

func TestSource_RenewsLeafAtTwoThirdsOfItsLife(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: dir, Names: names})
		s.every = 10 * time.Minute
		first := s.Leaf()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(59 * 24 * time.Hour)
		if !s.Leaf().Equal(first) {
			t.Error("renewed too early")
		}
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait() // the renewal may be due at this very instant
		if s.Leaf().Equal(first) {
			t.Error("not renewed after two thirds of its life")
		}
		stored := open(t, Options{Dir: dir, Names: names})
		if !stored.Leaf().Equal(s.Leaf()) {
			t.Error("the leaf in service is not the one on disk")
		}
		cancel()
		synctest.Wait()
	})
}

func TestSource_KeepsLeafWhileRenewalFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	must.Succeed(t, os.Mkdir(dir, 0o700))
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: dir, Names: names, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.every = 10 * time.Minute
		first := s.Leaf()
		must.Succeed(t, os.Rename(dir, dir+".gone"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(61 * 24 * time.Hour)
		synctest.Wait()
		if !s.Leaf().Equal(first) {
			t.Error("the leaf changed although it could not be written")
		}
		must.Succeed(t, os.Rename(dir+".gone", dir))
		time.Sleep(s.every)
		synctest.Wait() // the check wakes at the instant this sleep ends
		if s.Leaf().Equal(first) {
			t.Error("renewal did not come back")
		}
		cancel()
		synctest.Wait()
	})
	for _, failed := range []string{"authority could not be read", "certificate could not be renewed"} {
		if n := strings.Count(log.String(), failed); n != 1 {
			t.Errorf("%q was logged %d times, want once: before it is due, and then", failed, n)
		}
	}
}

func TestSource_ReloadsCompleteFilePairs(t *testing.T) {
	t.Parallel()
	from := [2]string{t.TempDir(), t.TempDir()}
	var pairs [2]tls.Certificate
	for i, dir := range from {
		open(t, Options{Dir: dir, Names: names})
		pem, err := os.ReadFile(filepath.Join(dir, leafFile))
		must.Succeed(t, err)
		pairs[i], err = tls.X509KeyPair(pem, pem)
		must.Succeed(t, err)
	}
	cert, key := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	writePair := func(to string, i int) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(from[i], leafFile))
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(to, b, 0o600))
	}
	inService := func(s *Source, i int) bool { return bytes.Equal(s.Leaf().Raw, pairs[i].Certificate[0]) }

	writePair(cert, 0)
	writePair(key, 0)
	s := open(t, Options{CertFile: cert, KeyFile: key})
	if !inService(s, 0) || s.CA() != nil {
		t.Fatal("the files are not in service")
	}
	writePair(cert, 1)
	if s.refresh(t.Context(), time.Now(), "") == "" || !inService(s, 0) {
		t.Error("half a new pair is in service")
	}
	writePair(key, 1)
	if s.refresh(t.Context(), time.Now(), "the certificate could not be renewed") != "" || !inService(s, 1) {
		t.Error("the new pair is not in service")
	}
}

func TestOpen_NamesMismatchedFiles(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Options{CertFile: "/nowhere/tls.crt", KeyFile: "/nowhere/tls.key"})
	if err == nil || !strings.Contains(err.Error(), "--tls-cert") ||
		!strings.Contains(err.Error(), "/nowhere/tls.crt") {
		t.Errorf("error %v, want the flag and the file", err)
	}
}

func TestAuthority_SignsOnlyLeavesForTenYears(t *testing.T) {
	t.Parallel()
	ca := open(t, Options{Dir: t.TempDir(), Names: names}).CA()
	if life := ca.NotAfter.Sub(ca.NotBefore); life < caLife || life > caLife+2*backdate {
		t.Errorf("life %v", life)
	}
	if !ca.IsCA || !ca.MaxPathLenZero || ca.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("not an authority for leaves: %+v", ca)
	}
}

// TestRotation_FinishesPromotionAfterCrash stops a promotion between its two files.
func TestRotation_FinishesPromotionAfterCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, Names: names})
	rotation := NewRotation(dir, nil)
	must.Succeed(t, rotation.AddNext(t.Context(), time.Now()))
	next, err := rotation.Read(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, os.Rename(filepath.Join(dir, nextKeyFile), filepath.Join(dir, caKeyFile)))
	for name, now := range map[string]*Source{"running": s, "started": open(t, Options{Dir: dir, Names: names})} {
		now.refresh(t.Context(), time.Now(), "")
		if !now.CA().Equal(next.Next) || now.Leaf().CheckSignatureFrom(next.Next) != nil {
			t.Errorf("%s: another authority is in service", name)
		}
	}
}

// TestRotation_GivesFilesToServer holds that a server whose user is not root can read what root's
// command has made.
func TestRotation_GivesFilesToServer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	open(t, Options{Dir: dir, Names: names})
	must.Succeed(t, os.Chown(filepath.Join(dir, caKeyFile), 4711, 4712))
	rotation := NewRotation(dir, nil)
	must.Succeed(t, rotation.AddNext(t.Context(), time.Now()))
	must.Succeed(t, rotation.Promote(t.Context()))
	for _, file := range []string{caKeyFile, caCertFile, retiringCertFile} {
		info, err := os.Stat(filepath.Join(dir, file))
		must.Succeed(t, err)
		if of := info.Sys().(*syscall.Stat_t); of.Uid != 4711 || of.Gid != 4712 {
			t.Errorf("%s is of %d:%d", file, of.Uid, of.Gid)
		}
	}
}
