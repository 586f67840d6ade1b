// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Cluster is a cluster whose forwarders have tokens.
type Cluster struct {
	Account, Name, Issuer, Subject string
	Key                            *ecdsa.PrivateKey

	t testing.TB
}

// NewCluster returns a cluster with a key of its own, with the id NAME-key.
func (o *Owner) NewCluster(name string) *Cluster {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(o.t, err)
	return &Cluster{o.Account, name, account.DefaultIssuer, "system:serviceaccount:fairlead:forwarder", key, o.t}
}

// Claims are claims of a token; nil takes one out.
type Claims map[string]any

// Token returns a token for an hour, with some claims changed.
func (c *Cluster) Token(change Claims) string {
	c.t.Helper()
	return c.TokenBy(jose.SigningKey{Algorithm: jose.ES256,
		Key: jose.JSONWebKey{Key: c.Key, KeyID: c.Name + "-key"}}, change)
}

// TokenBy is Token with another key or algorithm.
func (c *Cluster) TokenBy(key jose.SigningKey, change Claims) string {
	c.t.Helper()
	claims := Claims{"iss": c.Issuer, "sub": c.Subject, "aud": []string{"fairlead-seal:" + c.Account},
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return sign(c.t, key, claims)
}

func sign(t testing.TB, key jose.SigningKey, payload any) string {
	t.Helper()
	text, err := json.Marshal(payload)
	must.Succeed(t, err)
	signer, err := jose.NewSigner(key, nil)
	must.Succeed(t, err)
	signature, err := signer.Sign(text)
	must.Succeed(t, err)
	compact, err := signature.CompactSerialize()
	must.Succeed(t, err)
	return compact
}

// KeySet returns the public key.
func (c *Cluster) KeySet() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: c.Key.Public(), KeyID: c.Name + "-key"}}}
}

// Key returns the key of the root.
func (o *Owner) Key() *ecdsa.PrivateKey { return o.key }

// SignClusters returns what fairlead seal clusters makes, signed some time ago and for a day.
func (o *Owner) SignClusters(ago time.Duration, clusters ...*Cluster) []byte {
	o.t.Helper()
	return o.signClusters(o.Account, ago, clusters)
}

// SignClustersFor is SignClusters for another account.
func (o *Owner) SignClustersFor(accountID string, clusters ...*Cluster) []byte {
	o.t.Helper()
	return o.signClusters(accountID, 0, clusters)
}

func (o *Owner) signClusters(accountID string, ago time.Duration, clusters []*Cluster) []byte {
	o.t.Helper()
	var all []map[string]any
	for _, c := range clusters {
		all = append(all, map[string]any{"name": c.Name, "issuer": c.Issuer, "subject": c.Subject, "jwks": c.KeySet()})
	}
	at := time.Now().Add(-ago)
	return []byte(sign(o.t, jose.SigningKey{Algorithm: jose.ES256, Key: o.key}, Claims{"iat": at.Unix(),
		"exp": at.Add(24 * time.Hour).Unix(), "aud": []string{"fairlead-seal-clusters:" + accountID}, "clusters": all}))
}

// PEM returns the root's certificate.
func (o *Owner) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Root.Raw}))
}

// WriteCallers writes the owner's root and clusters into a folder, for agents.
func (o *Owner) WriteCallers(dir string, clusters []byte) *authority.Callers {
	o.t.Helper()
	c := &authority.Callers{File: filepath.Join(dir, "authorities.pem"), Clusters: filepath.Join(dir, "clusters.jws"),
		Account: o.Account}
	must.Succeed(o.t, os.WriteFile(c.File, []byte(o.PEM()), 0o600))
	must.Succeed(o.t, os.WriteFile(c.Clusters, clusters, 0o600))
	return c
}

// TokenTrust is Trust for a cluster whose proof is a token.
func (o *Owner) TokenTrust(token string) *sealed.Trust {
	o.t.Helper()
	t, err := sealed.NewTrust(sealed.TrustOptions{Mode: sealed.Require, Account: o.Account,
		Authorities: []*x509.Certificate{o.Root}, Token: func() (string, error) { return token, nil }})
	must.Succeed(o.t, err)
	return t
}
