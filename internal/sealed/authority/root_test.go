// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const accountID = "ac-06f0l2rj1qg4o3b5e6s7t8u9v0"

func newRoot(t *testing.T) *authority.Root {
	t.Helper()
	root, _ := makeRoot(t)
	return root
}

// makeRoot makes a root, and its files root.key and root.crt.
func makeRoot(t *testing.T) (*authority.Root, []authority.File) {
	t.Helper()
	_, files, err := authority.NewRoot(accountID, "root", time.Now())
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Succeed(t, authority.WriteFiles(dir, false, files...))
	root, err := authority.ReadRoot(filepath.Join(dir, "root.crt"), filepath.Join(dir, "root.key"))
	must.Succeed(t, err)
	return root, files
}

func endpoints(t *testing.T, patterns ...string) authority.Names {
	t.Helper()
	n := authority.Names{Account: accountID}
	for _, text := range patterns {
		u, err := sealed.ParsePattern(text)
		must.Succeed(t, err)
		n.URLs = append(n.URLs, u)
	}
	return n
}

// pair is a certificate that a root signed, and its key.
type pair struct {
	cert     *x509.Certificate
	crt, key []byte
}

func (p pair) write(t *testing.T, dir string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tls.crt"), p.crt, 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tls.key"), p.key, 0o600))
}

// sign makes a pair whose certificate was signed at now.
func sign(t *testing.T, root *authority.Root, n authority.Names, now time.Time) pair {
	t.Helper()
	files, err := authority.NewRequest(n, "tls")
	must.Succeed(t, err)
	crt, err := root.Sign(files[1].Data, n, authority.MinLife, now)
	must.Succeed(t, err)
	block, _ := pem.Decode(crt)
	cert, err := x509.ParseCertificate(block.Bytes)
	must.Succeed(t, err)
	return pair{cert, crt, files[0].Data}
}

func verify(cert *x509.Certificate, usage x509.ExtKeyUsage, roots ...*authority.Root) error {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r.Certificate)
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestRoot_SignsForItself(t *testing.T) {
	t.Parallel()
	root, other := newRoot(t), newRoot(t)
	agent := sign(t, root, endpoints(t, "http://*.demo", "tcp://db.demo:5432"), time.Now()).cert
	caller := sign(t, root, authority.Names{Account: accountID, Caller: "c-1"}, time.Now()).cert
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"agent":           {verify(agent, x509.ExtKeyUsageServerAuth, root), ""},
		"both roots":      {verify(agent, x509.ExtKeyUsageServerAuth, other, root), ""},
		"caller":          {verify(caller, x509.ExtKeyUsageClientAuth, root), ""},
		"another root":    {verify(agent, x509.ExtKeyUsageServerAuth, other), "unknown authority"},
		"agent as caller": {verify(agent, x509.ExtKeyUsageClientAuth, root), "incompatible key usage"},
		"caller as agent": {verify(caller, x509.ExtKeyUsageServerAuth, root), "incompatible key usage"},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	u, err := account.ParseEndpointURL("http://api.demo")
	must.Succeed(t, err)
	if !sealed.Covers(agent.URIs, accountID, u) {
		t.Errorf("%v does not cover %s", agent.URIs, u)
	}
	if c := root.Certificate; !c.MaxPathLenZero || c.MaxPathLen != 0 || time.Until(c.NotAfter) < 3652*24*time.Hour {
		t.Errorf("a root with the path length %d ends at %v", c.MaxPathLen, c.NotAfter)
	}
	if life := agent.NotAfter.Sub(agent.NotBefore); life != authority.MinLife+5*time.Minute {
		t.Errorf("the certificate lives for %v", life)
	}
}

// TestRoot_ItsKeySignsForNoOtherAccount signs with a root's key what Sign refuses.
func TestRoot_ItsKeySignsForNoOtherAccount(t *testing.T) {
	t.Parallel()
	root, files := makeRoot(t)
	block, _ := pem.Decode(files[0].Data)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must.Succeed(t, err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	for text, want := range map[string]string{
		"fairlead://" + accountID + "/http/api.demo:80":                "",
		"fairlead://ac-16f0l2rj1qg4o3b5e6s7t8u9v0/http/api.demo:80":    "not permitted",
		"fairlead://ac-16f0l2rj1qg4o3b5e6s7t8u9v0/caller/" + accountID: "not permitted",
	} {
		name, err := url.Parse(text)
		must.Succeed(t, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1),
			URIs: []*url.URL{name}, NotAfter: time.Now().Add(time.Hour)}, root.Certificate, leafKey.Public(), key)
		must.Succeed(t, err)
		cert, err := x509.ParseCertificate(der)
		must.Succeed(t, err)
		err = verify(cert, x509.ExtKeyUsageAny, root)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRoot_RefusesWrongLivesAndEnds(t *testing.T) {
	t.Parallel()
	root, names, now := newRoot(t), endpoints(t, "http://api.demo"), time.Now()
	files, err := authority.NewRequest(names, "tls")
	must.Succeed(t, err)
	for _, c := range []struct {
		life time.Duration
		at   time.Time
		want string
	}{
		{authority.MinLife - 1, now, "lives for 24h to 30d"},
		{authority.MaxLife + 1, now, "lives for 24h to 30d"},
		{authority.MaxLife, now.AddDate(10, 0, 1), "the root has ended"},
	} {
		if _, err := root.Sign(files[1].Data, names, c.life, c.at); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v at %v: %v", c.life, c.at, err)
		}
	}
}

func TestReadRoot_ReadsItsFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "seal")
	root := newRoot(t)
	for _, name := range []string{"root", "other"} {
		_, files, err := authority.NewRoot(accountID, name, time.Now())
		must.Succeed(t, err)
		must.Succeed(t, authority.WriteFiles(dir, false, files...))
	}
	sign(t, root, endpoints(t, "http://api.demo"), time.Now()).write(t, dir)
	for _, c := range []struct{ crt, key, want string }{
		{"root.crt", "root.key", ""},
		{"root.crt", "other.key", "are not a certificate and its private key"},
		{"root.crt", "root.crt", "are not a certificate and its private key"},
		{"root.key", "root.key", "are not a certificate and its private key"},
		{"tls.crt", "tls.key", "is no root of fairlead seal init"},
		{"none", "root.key", "no such file"},
	} {
		read, err := authority.ReadRoot(filepath.Join(dir, c.crt), filepath.Join(dir, c.key))
		switch {
		case c.want == "" && (err != nil || read.Account != accountID):
			t.Errorf("%v: %v", c, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestRoot_OpenSSLVerifies compares with another implementation. It takes what follows the first colon
// in a URI for a port and so finds no host in the names of endpoints, only in those of callers.
func TestRoot_OpenSSLVerifies(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	root, rootFiles := makeRoot(t)
	_, otherFiles := makeRoot(t)
	dir := t.TempDir()
	names := authority.Names{Account: accountID, Caller: "c-1"}
	sign(t, root, names, time.Now()).write(t, dir)
	for file, files := range map[string][]authority.File{"root.crt": rootFiles, "other.crt": otherFiles} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), files[1].Data, 0o600))
	}
	for file, good := range map[string]bool{"root.crt": true, "other.crt": false} {
		out, err := exec.CommandContext(t.Context(), openssl, "verify", "-x509_strict", "-purpose", "sslclient",
			"-CAfile", filepath.Join(dir, file), filepath.Join(dir, "tls.crt")).CombinedOutput()
		if (err == nil) != good {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}
