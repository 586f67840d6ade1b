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
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
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

// Identity returns an agent's identity, whose certificate names the endpoint.
func (o *Owner) Identity(u account.EndpointURL) *sealed.Identity {
	o.t.Helper()
	pair := o.Server(u)
	i, err := sealed.NewIdentity(sealed.IdentityOptions{Account: o.Account,
		Certificate: func() (*tls.Certificate, error) { return pair, nil }})
	must.Succeed(o.t, err)
	return i
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

// Server returns an agent's certificate, which names the endpoint.
func (o *Owner) Server(u account.EndpointURL) *tls.Certificate {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(o.t, err)
	leaf := o.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{sealed.Name(o.Account, u)}}, o.Root, &key.PublicKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Trust returns what a cluster trusts that has the owner's root.
func (o *Owner) Trust() *sealed.Trust {
	o.t.Helper()
	t, err := sealed.NewTrust(sealed.TrustOptions{Mode: sealed.Require, Account: o.Account,
		Authorities: []*x509.Certificate{o.Root}})
	must.Succeed(o.t, err)
	return t
}
