// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealtest makes what tests need of the owner of sealed endpoints.
package sealtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Owner signs the certificates of an account's agents.
type Owner struct {
	Account string
	Root    *x509.Certificate

	t   testing.TB
	key *ecdsa.PrivateKey
}

// NewOwner returns an owner with a root of its own.
func NewOwner(t testing.TB, accountID string) *Owner {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	t.Helper()
	o := &Owner{t: t, Account: accountID, key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	o.Root = o.sign(template, template, &key.PublicKey)
	return o
}

func (o *Owner) sign(template, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	o.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, o.key)
	must.Succeed(o.t, err)
	c, err := x509.ParseCertificate(der)
	must.Succeed(o.t, err)
	return c
}

// Server returns an agent's certificate, which names the endpoint.
func (o *Owner) Server(u account.EndpointURL) *tls.Certificate {
	o.t.Helper()
	return o.leaf(x509.ExtKeyUsageServerAuth, sealed.Name(o.Account, u), time.Now().Add(time.Hour))
}

// Caller returns the certificate of a caller, such as a cluster's forwarders. It ends after a time.
func (o *Owner) Caller(name string, ends time.Duration) *tls.Certificate {
	o.t.Helper()
	return o.leaf(x509.ExtKeyUsageClientAuth, sealed.CallerName(o.Account, name), time.Now().Add(ends))
}

func (o *Owner) leaf(usage x509.ExtKeyUsage, name *url.URL, end time.Time) *tls.Certificate {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(o.t, err)
	leaf := o.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		URIs: []*url.URL{name}}, o.Root, &key.PublicKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Static returns what always returns the certificate.
func Static(c *tls.Certificate) sealed.CertificateSource {
	return func() (*tls.Certificate, error) { return c, nil }
}

// Write writes tls.crt and tls.key into a folder.
func Write(t testing.TB, dir string, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must.Succeed(t, err)
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// Pool returns the owner's root.
func (o *Owner) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(o.Root)
	return pool
}

// Identity returns an agent's identity, whose certificate names the endpoint.
func (o *Owner) Identity(u account.EndpointURL, change ...func(*sealed.IdentityOptions)) *sealed.Identity {
	o.t.Helper()
	options := sealed.IdentityOptions{Account: o.Account, Certificate: Static(o.Server(u))}
	for _, c := range change {
		c(&options)
	}
	i, err := sealed.NewIdentity(options)
	must.Succeed(o.t, err)
	return i
}

// Callers returns roots of callers' certificates.
type Callers func() *x509.CertPool

// Pool implements sealed.Callers.
func (c Callers) Pool() *x509.CertPool { return c() }

// VerifyToken implements sealed.Callers.
func (c Callers) VerifyToken(string) (string, error) { return "", errors.New("no token is known") }

// Required makes an agent refuse callers whose certificates none of the roots has signed.
func (c Callers) Required(o *sealed.IdentityOptions) { o.Callers, o.RequireCaller = c, true }

// Trust returns what a cluster trusts that has the owner's root, and proves itself by a certificate of
// its own, if there is one.
func (o *Owner) Trust(proof ...*tls.Certificate) *sealed.Trust {
	o.t.Helper()
	options := sealed.TrustOptions{Mode: sealed.Require, Account: o.Account, Authorities: []*x509.Certificate{o.Root}}
	for _, p := range proof {
		options.Proof = Static(p)
	}
	t, err := sealed.NewTrust(options)
	must.Succeed(o.t, err)
	return t
}
