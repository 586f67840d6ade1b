// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Callers has the authorities in a PEM file that sign the certificates of callers, and the clusters
// whose forwarders prove themselves by tokens. It reads both again when they change: at most every 10
// seconds, when it is asked. It is safe for concurrent use.
type Callers struct {
	File     string
	Clusters string // Clusters is a file of Root.SignClusters, by one of the authorities; "" = none.
	Account  string // Account is that of the clusters.

	roots    followed[[]*x509.Certificate]
	clusters followed[clusters]
}

// Cluster is one whose forwarders prove themselves by tokens. Any pod can get a token of its own with
// any audience, so Subject counts as much as the keys.
type Cluster struct {
	Name    string             `json:"name"` // Name is the caller's, a DNS label.
	Issuer  string             `json:"issuer"`
	Subject string             `json:"subject"` // Subject is system:serviceaccount:NAMESPACE:NAME.
	JWKS    jose.JSONWebKeySet `json:"jwks"`
}

// clusters are what Root.SignClusters signs, as a JSON Web Token: agents must not learn keys from the
// service. Its iat is the version: agents do not go back.
type clusters struct {
	jwt.Claims
	Clusters []Cluster `json:"clusters"`

	signer *x509.Certificate
}

const (
	maxToken    = 8 << 10 // bytes; those of ServiceAccounts have about 1,500
	tokenFor    = "fairlead-seal:"
	clustersFor = "fairlead-seal-clusters:" // audiences, before the account
)

// Pool returns the authorities of the last good file; none as long as there has been no good one.
func (c *Callers) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range c.authorities() {
		pool.AddCert(cert)
	}
	return pool
}

func (c *Callers) authorities() []*x509.Certificate {
	if last, _ := c.roots.get(c.load, c.File); last != nil {
		return *last
	}
	return nil
}

// Problem returns why the files as they are cannot be used, or that the clusters end soon; nil when all
// is well.
func (c *Callers) Problem() error {
	_, err := c.roots.get(c.load, c.File)
	if err != nil || c.Clusters == "" {
		return err
	}
	last, err := c.clusters.get(c.loadClusters, c.Clusters, c.File)
	if err == nil && time.Until(last.Expiry.Time()) < last.Expiry.Time().Sub(last.IssuedAt.Time())/3 {
		err = fmt.Errorf("%s: its end is at %s: have it signed again", c.Clusters, formatDate(last.Expiry))
	}
	return err
}

// VerifyToken returns the name of the cluster whose forwarders' token it is. Errors have nothing of a
// token that the cluster has not signed.
func (c *Callers) VerifyToken(raw string) (caller string, err error) {
	if c.Clusters == "" {
		return "", errors.New("its token counts for agents with --seal-clusters alone")
	}
	last, err := c.clusters.get(c.loadClusters, c.Clusters, c.File)
	if last != nil {
		err = checkClaims(last.Claims, clustersFor+c.Account) // it may have ended since
	}
	if err == nil && !slices.ContainsFunc(c.authorities(), last.signer.Equal) {
		err = errors.New("it is signed by an authority that is not trusted any more")
	}
	if err != nil {
		return "", fmt.Errorf("its token cannot be verified: the agent's file of clusters: %w", err)
	}
	token, err := parseToken(raw)
	if err != nil {
		return "", err
	}
	for _, by := range last.Clusters {
		var claims jwt.Claims
		if token.Claims(by.JWKS, &claims) != nil || claims.Issuer != by.Issuer || claims.Subject != by.Subject {
			continue
		}
		if err := checkClaims(claims, tokenFor+c.Account); err != nil {
			return "", fmt.Errorf("its token: %w", err)
		}
		return by.Name, nil
	}
	return "", errors.New("its token is of no issuer, key and ServiceAccount that the owner has signed")
}

func parseToken(raw string) (*jwt.JSONWebToken, error) {
	token, err := jwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil || len(raw) > maxToken {
		return nil, fmt.Errorf("the token is no JSON Web Token of at most %d bytes with RS256 or ES256", maxToken)
	}
	return token, nil
}

// checkClaims checks whom a token is for, and when.
func checkClaims(c jwt.Claims, audience string) error {
	switch {
	case !slices.Equal(c.Audience, jwt.Audience{audience}):
		return fmt.Errorf("it is not for %s alone", audience)
	case c.IssuedAt == nil || c.Expiry == nil:
		return errors.New("it has no iat or no exp")
	case strings.HasPrefix(audience, tokenFor) && int64(*c.Expiry-*c.IssuedAt) > int64(account.MaxTokenLife.Seconds()):
		return errors.New("it lives for more than an hour")
	case c.ValidateWithLeeway(jwt.Expected{}, backdate) != nil:
		return fmt.Errorf("it is in force from %s to %s, not now", formatDate(c.IssuedAt), formatDate(c.Expiry))
	}
	return nil
}

func formatDate(d *jwt.NumericDate) string { return d.Time().UTC().Format(time.RFC3339) }

func (c *Callers) load() (*[]*x509.Certificate, error) { return parseFile(c.File, ParseAuthorities) }

func (c *Callers) loadClusters() (*clusters, error) { return parseFile(c.Clusters, c.parseClusters) }

func (c *Callers) parseClusters(text string) (read clusters, err error) {
	signed, err := jwt.ParseSigned(strings.TrimSpace(text), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return read, errors.New("it is not what fairlead seal clusters makes")
	}
	roots := c.authorities()
	signer := slices.IndexFunc(roots, func(root *x509.Certificate) bool {
		return CheckDates(root, time.Now()) == nil && signed.Claims(root.PublicKey, &read) == nil
	})
	if signer < 0 {
		return read, errors.New("it is signed by none of the authorities")
	}
	read.signer, err = roots[signer], checkClaims(read.Claims, clustersFor+c.Account)
	if last := c.clusters.last; err == nil && last != nil && *read.IssuedAt < *last.IssuedAt {
		err = fmt.Errorf("it is of %s, older than what was here", formatDate(read.IssuedAt))
	}
	return read, err
}

// FollowToken returns a source of the token in a file, which is read again when it changes: at most every
// 10 seconds. A token that is not for agents of the account, such as for the Kubernetes API, is not sent.
func FollowToken(file, accountID string) sealed.TokenSource {
	var read followed[string]
	parse := func(text string) (string, error) {
		var claims jwt.Claims
		raw := strings.TrimSpace(text)
		token, err := parseToken(raw)
		if err == nil {
			err = token.UnsafeClaimsWithoutVerification(&claims)
		}
		if err == nil {
			err = checkClaims(claims, tokenFor+accountID)
		}
		return raw, err
	}
	load := func() (*string, error) { return parseFile(file, parse) }
	return func() (string, error) {
		last, err := read.get(load, file)
		if last == nil {
			return "", err
		}
		return *last, err
	}
}

// ParseAuthorities reads PEM with one or more certificates of authorities, and nothing else.
func ParseAuthorities(text string) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a PEM block %q: give certificates only", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(all)+1, err)
		}
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %d, %s, is not one of an authority", len(all)+1, c.Subject)
		}
		all = append(all, c)
	}
	if len(all) == 0 || len(all) != strings.Count(text, "-----BEGIN ") {
		return nil, errors.New("it is not the PEM text of certificates")
	}
	return all, nil
}
