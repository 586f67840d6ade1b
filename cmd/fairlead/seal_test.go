// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	sealAccount  = "ac-06f0l2rj1qg4o3b5e6s7t8u9v0"
	otherAccount = "ac-16f0l2rj1qg4o3b5e6s7t8u9v0"

	own   = "fairlead://" + sealAccount + "/"
	other = "fairlead://" + otherAccount + "/"
)

// owner is a home directory with the roots of an account.
type owner struct {
	t    *testing.T
	home string
}

func newOwner(t *testing.T) owner {
	t.Helper()
	o := owner{t, t.TempDir()}
	o.run(0, "init", "--account", sealAccount)
	return o
}

// run executes a command of `fairlead seal`, and checks its exit code.
func (o owner) run(code int, args ...string) result {
	o.t.Helper()
	r := fairlead(o.t, map[string]string{"HOME": o.home}, "", append([]string{"seal"}, args...)...)
	if r.code != code {
		o.t.Fatalf("%q: %+v, want code %d", args, r, code)
	}
	return r
}

// file returns the path of a file of the roots' folder.
func (o owner) file(name string) string {
	return filepath.Join(o.home, ".config", "fairlead", "seal", name)
}

// write writes a file into the home directory.
func (o owner) write(name string, data []byte) string {
	o.t.Helper()
	file := filepath.Join(o.home, name)
	must.Succeed(o.t, os.WriteFile(file, data, 0o600))
	return file
}

// request returns a request with the names of the template.
func (o owner) request(template x509.CertificateRequest, key crypto.Signer) []byte {
	o.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	must.Succeed(o.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must.Succeed(t, err)
	return key
}

func uris(t *testing.T, texts ...string) (all []*url.URL) {
	t.Helper()
	for _, text := range texts {
		u, err := url.Parse(text)
		must.Succeed(t, err)
		all = append(all, u)
	}
	return all
}

func TestSeal_FromRootsToCertificate(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	agent := filepath.Join(o.home, "agent")
	o.run(0, "request", "--out", agent)
	csr, crt := filepath.Join(agent, "tls.csr"), filepath.Join(agent, "tls.crt")
	r := o.run(0, "sign", "--url", "http://*.demo", "--url", "tcp://db.demo:5432", csr)
	if !strings.Contains(r.out, "http://*.demo,tcp://db.demo:5432   7.0 days   sha256/") {
		t.Errorf("sign: %s", r.out)
	}
	pair, err := authority.LoadLeaf(crt, filepath.Join(agent, "tls.key"))
	must.Succeed(t, err)
	if got := pair.Leaf.URIs; len(got) != 2 || got[0].String() != own+"http/*.demo:80" {
		t.Errorf("names: %v", got)
	}
	o.run(0, "sign", "--url", "http://api.demo", "--for", "24h", csr) // a renewal replaces the certificate
	status := o.run(0, "status", "-o", "wide", crt)
	for _, want := range []string{"certificate   http://api.demo   1.0 days", sealAccount, authority.KeyOf(pair.Leaf),
		"Seal root "} {
		if !strings.Contains(status.out, want) {
			t.Errorf("status lacks %q:\n%s", want, status.out)
		}
	}
	var all []struct {
		Kind, Key string
		OK        bool
	}
	must.Succeed(t, json.Unmarshal([]byte(o.run(0, "status", "-o", "json").out), &all))
	kinds := map[string]int{}
	for _, one := range all {
		kinds[one.Kind]++
		if !one.OK || !strings.HasPrefix(one.Key, "sha256/") {
			t.Errorf("status of the roots: %+v", one)
		}
	}
	if kinds["authority"] != 4 || kinds["private key"] != 2 {
		t.Errorf("the roots' folder has %v", kinds)
	}
}

func TestSealSign_CertificateHasWhatIsAskedAndAllowed(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	out := filepath.Join(o.home, "new.crt")
	for name, c := range map[string]struct{ request, allow, want []string }{
		"nothing is asked": {nil, []string{"--url", "http://*.demo"}, []string{"http/*.demo:80"}},
		"less is asked": {[]string{"--url", "http://api.demo"},
			[]string{"--url", "http://*.demo", "--url", "tcp://a.b:1"}, []string{"http/api.demo:80"}},
		"a wildcard": {[]string{"--url", "http://*.demo"}, []string{"--url", "http://*.demo"},
			[]string{"http/*.demo:80"}},
		"a caller": {[]string{"--caller", "c-1"}, []string{"--caller", "c-1"}, []string{"caller/c-1"}},
	} {
		folder := filepath.Join(o.home, name)
		if len(c.request) > 0 {
			c.request = append(c.request, "--account", sealAccount)
		}
		o.run(0, append([]string{"request", "--out", folder}, c.request...)...)
		o.run(0, append(append([]string{"sign", "--out", out}, c.allow...), filepath.Join(folder, "tls.csr"))...)
		text, err := os.ReadFile(out)
		must.Succeed(t, err)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		must.Succeed(t, err)
		usage := x509.ExtKeyUsageServerAuth
		if c.allow[0] == "--caller" {
			usage = x509.ExtKeyUsageClientAuth
		}
		if len(cert.URIs) != len(c.want) || cert.URIs[0].String() != own+c.want[0] || cert.IsCA ||
			len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != usage || len(cert.DNSNames) > 0 {
			t.Errorf("%s: %v, usages %v", name, cert.URIs, cert.ExtKeyUsage)
		}
	}
}

func TestSealSign_RefusesHostileRequests(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	key := newKey(t, elliptic.P256())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	good := o.request(x509.CertificateRequest{URIs: uris(t, own+"http/api.demo:80")}, key)
	named := func(names ...string) []byte { return o.request(x509.CertificateRequest{URIs: uris(t, names...)}, key) }
	der, _ := pem.Decode(good)
	der.Bytes[len(der.Bytes)-1] ^= 1
	broken := pem.EncodeToMemory(der)
	ca, err := asn1.Marshal(struct{ CA bool }{true})
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		request []byte
		want    string
	}{
		"another account": {named(other + "http/api.demo:80"),
			"it is for the account " + otherAccount + ", and the root for " + sealAccount},
		"two accounts": {named(own+"http/api.demo:80", other+"http/api.demo:80"),
			"it has names of two accounts"},
		"another host": {named(own + "http/api.other:80"),
			"it asks for http://api.other, and allowed is http://*.demo"},
		"another port":     {named(own + "http/api.demo:81"), "it asks for http://api.demo:81,"},
		"another scheme":   {named(own + "tcp/api.demo:80"), "it asks for tcp://api.demo:80,"},
		"a wider wildcard": {named(own + "http/*:80"), "is no name of a sealed endpoint"},
		"a caller":         {named(own + "caller/c-1"), "it asks for caller c-1, and allowed is http"},
		"both": {named(own+"caller/c-1", own+"http/api.demo:80"),
			"or of endpoints and a caller"},
		"an encoded name": {named(own + "http/%61pi.demo:80"), "is no name of a sealed endpoint"},
		"user":            {named("fairlead://x@" + sealAccount + "/http/a.b:80"), "is no name of a sealed endpoint"},
		"query":           {named(own + "http/api.demo:80?x"), "is no name of a sealed endpoint"},
		"DNS names": {o.request(x509.CertificateRequest{DNSNames: []string{"example.com"}}, key),
			"it asks for names that are no sealed endpoints'"},
		"CA": {o.request(x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: ca}}}, key),
			"it asks for extension 2.5.29.19"},
		"short curve":      {o.request(x509.CertificateRequest{}, newKey(t, elliptic.P224())), "its key is no ECDSA"},
		"RSA":              {o.request(x509.CertificateRequest{}, rsaKey), "its key is no ECDSA key"},
		"broken signature": {broken, "it is damaged"},
		"trailing garbage": {append(bytes.Clone(good), "x"...), "it is not one request"},
		"two requests":     {append(bytes.Clone(good), good...), "it is not one request"},
		"leading garbage":  {append([]byte("x\n"), good...), "it is not one request"},
		"a large file":     {append(bytes.Clone(good), make([]byte, 1<<20)...), "more than 64 KiB"},
		"nothing":          {nil, "it is not one request"},
		"a certificate":    {[]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), "it is not one request"},
	} {
		file := o.write(strings.ReplaceAll(name, " ", "-")+".csr", c.request)
		r := o.run(exitUsage, "sign", "--url", "http://*.demo", file)
		if !strings.Contains(r.err, c.want) || !strings.Contains(r.err, file) || r.out != "" {
			t.Errorf("%s: %+v, want %q", name, r, c.want)
		}
		if made, _ := filepath.Glob(filepath.Join(o.home, "*.crt")); len(made) > 0 {
			t.Errorf("%s: %s was written", name, made)
		}
	}
	o.run(0, "sign", "--url", "http://*.demo", o.write("good.csr", good))
}

func TestSeal_RefusesWrongUsage(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	o.run(0, "request", "--out", filepath.Join(o.home, "agent"))
	csr := filepath.Join(o.home, "agent", "tls.csr")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, `account "": must be the id of an account`, []string{"init", "--dir", "x"}},
		{exitUsage, `account "ac-1": must be the id`, []string{"init", "--dir", "x", "--account", "ac-1"}},
		{exitOther, "root.key exists", []string{"init", "--account", sealAccount}},
		{exitUsage, "give --out", []string{"request"}},
		{exitUsage, "--account is missing", []string{"request", "--out", "x", "--url", "http://api.demo"}},
		{exitOther, "tls.key exists", []string{"request", "--out", filepath.Dir(csr)}},
		{exitUsage, `--url: "http://*.demo.x"`, []string{"sign", "--url", "http://*.demo.x", csr}},
		{exitUsage, "or of endpoints and a caller", []string{"sign", "--url", "http://a.b", "--caller", "c-1", csr}},
		{exitUsage, "/caller/C/1\" is no name", []string{"sign", "--caller", "C/1", csr}},
		{exitUsage, "give --url or --caller", []string{"sign", csr}},
		{exitUsage, `--for "31d"`, []string{"sign", "--url", "http://api.demo", "--for", "31d", csr}},
		{exitUsage, `--for "23h"`, []string{"sign", "--url", "http://api.demo", "--for", "23h", csr}},
		{exitUsage, `--for "-9d"`, []string{"sign", "--url", "http://api.demo", "--for", "-9d", csr}},
		{exitUsage, "needs one request", []string{"sign"}},
		{exitUsage, "reading the request", []string{"sign", "--url", "http://api.demo", csr + "x"}},
		{exitUsage, "is no certificate", []string{"sign", "--url", "http://a.b", "--out", o.file("root.key"), csr}},
		{exitUsage, "fairlead seal init", []string{"sign", "--url", "http://api.demo", "--dir", "x", csr}},
		{exitUsage, "no such file", []string{"status", csr + "x"}},
		{exitUsage, "no PEM certificate", []string{"status", o.write("empty", nil)}},
		{exitUsage, "there are no roots", []string{"status", "--dir", csr + "x"}},
		{exitUsage, `--output "yaml"`, []string{"status", "-o", "yaml"}},
	} {
		if r := o.run(c.code, c.args...); !strings.Contains(r.err, c.want) {
			t.Errorf("%q: %s, want %q", c.args, r.err, c.want)
		}
	}
}

func TestSealStatus_WarnsOfWhatEnds(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	root, err := authority.ReadRoot(o.file("root.crt"), o.file("root.key"))
	must.Succeed(t, err)
	key, now := newKey(t, elliptic.P256()), time.Now()
	csr := o.request(x509.CertificateRequest{URIs: uris(t, own+"caller/c-1")}, key)
	signed := func(name string, at time.Time) string {
		text, err := root.Sign(csr, authority.Names{Account: sealAccount, Caller: "c-1"}, authority.MinLife, at)
		must.Succeed(t, err)
		return o.write(name, text)
	}
	damaged, _ := pem.Decode(csr)
	damaged.Bytes[len(damaged.Bytes)-1] ^= 1
	for file, c := range map[string]struct {
		code      int
		out, want string
	}{
		signed("new.crt", now):                          {0, "certificate   caller c-1   1.0 days   sha256/", ""},
		signed("soon.crt", now.Add(-17*time.Hour)):      {0, "caller c-1   0.3 days", "soon.crt: less than a third"},
		signed("ended.crt", now.Add(-25*time.Hour)):     {1, "caller c-1   0.0 days", "ended.crt: the certificate is"},
		o.write("good.csr", csr):                        {0, "request   caller c-1   -", ""},
		o.write("bad.csr", pem.EncodeToMemory(damaged)): {1, "request", "bad.csr: "},
		o.write("escape.csr", o.request(x509.CertificateRequest{URIs: uris(t, "fairlead://x/%1b[31m")}, key)): {1,
			"request   -", "is no name of a sealed endpoint"},
		o.file("root.key"): {0, "private key   -", ""},
		o.write("two", append([]byte("-----BEGIN X-----\n-----END X-----\n"), csr...)): {exitUsage, "", `"X" is no`},
		o.write("large", make([]byte, 1<<20)):                                          {exitUsage, "", "than 64 KiB"},
	} {
		r := o.run(c.code, "status", file)
		if !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.want) || (c.want == "") != (r.err == "") ||
			strings.ContainsRune(r.out+r.err, '\x1b') {
			t.Errorf("%s: %+v, want %+v", file, r, c)
		}
	}
	r := o.run(exitUsage, "status", filepath.Join(o.home, "ended.crt"), "none")
	if !strings.Contains(r.err, "no such file") || !strings.Contains(r.out, "ended.crt") {
		t.Errorf("one file of two can be read: %+v", r)
	}
}

// TestSeal_FilesHaveModes runs the program under several umasks.
func TestSeal_FilesHaveModes(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "022", "077"} {
		home := t.TempDir()
		sh := exec.CommandContext(t.Context(), "sh", "-ec", "umask "+umask+`; "$0" seal init --account `+sealAccount+
			` --dir new/seal; "$0" seal request --out agent; "$0" seal sign --dir new/seal --caller c-1 agent/tls.csr`,
			os.Args[0])
		sh.Dir, sh.Env = home, []string{asProcess + "=1", "HOME=" + home}
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for file, want := range map[string]os.FileMode{"new/seal": 0o700, "new/seal/root.key": 0o600,
			"new/seal/spare.key": 0o600, "new/seal/root.crt": 0o644, "new/seal/authorities.pem": 0o644, "agent": 0o700,
			"agent/tls.key": 0o600, "agent/tls.csr": 0o644, "agent/tls.crt": 0o644} {
			info, err := os.Stat(filepath.Join(home, file))
			must.Succeed(t, err)
			if info.Mode().Perm() != want {
				t.Errorf("umask %s: %s has the mode %v", umask, file, info.Mode())
			}
		}
	}
}

// TestSealLog compares what a real store announces with what kubectl prints.
func TestSealLog(t *testing.T) {
	a, dir := newAccountAPI(t), t.TempDir()
	session := a.Session()
	e := a.Bind(session, "http://api.demo").Endpoint
	other := a.Request(session, "http://api.demo")
	other.SealKey = "sha256/other"
	_, err := a.Store.Bind(t.Context(), other)
	must.Succeed(t, err)
	changes, err := a.Store.AuditEvents(t.Context(), a.AccountID, account.AuditFilter{Type: account.AuditSealChanged},
		account.Page{})
	must.Succeed(t, err)
	event := changes.Events[0]
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for key, c := range map[string]struct {
		code int
		says string
	}{"sha256/other": {0, "sealed by keys"}, "sha256/x": {1, "the cluster pins sha256/x"}} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(`#!/bin/sh
case "$*" in
*boundendpoints*) echo '{"items": [{"metadata": {"labels": {"bindings.fairlead.dev/installation": "x"}}, "status":
	{"sealed": "pinned", "conditions": [{"type": "Sealed", "status": "True", "message": "sealed by keys"}]}}]}' ;;
*endpointtrusts*) echo '{"items": [{"spec": {"endpoints": ["api"], "keys": ["`+key+`"]}}]}' ;;
*) echo '{"items": []}' ;;
esac
`), 0o700))
		r := fairlead(t, a.env, "", "seal", "log", "http://api.demo", "--context", "c")
		since := e.ID + ", online: sha256/other since " + event.OccurredAt.UTC().Format(time.RFC3339)
		text := strings.Join(strings.Fields(r.out), " ")
		if r.code != c.code || r.err != "" || !strings.Contains(text, c.says) || !strings.Contains(text, since) {
			t.Errorf("%s: %+v", key, r)
		}
		r = fairlead(t, a.env, "", "seal", "log", "http://api.demo", "--context", "c", "-o", "json")
		if r.code != c.code || !strings.Contains(r.out, since) || !json.Valid([]byte(r.out)) {
			t.Errorf("%s: %+v", key, r)
		}
	}
}
