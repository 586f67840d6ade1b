// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Clusters are those whose forwarders prove themselves to agents by tokens of a ServiceAccount. The
// owner signs them, a JWS of the type clustersType, as agents must not learn keys from the service.
type Clusters struct {
	Account  string    `json:"account"`
	Version  int64     `json:"version"` // Version grows: agents do not go back.
	SignedAt time.Time `json:"signed_at"`
	EndsAt   time.Time `json:"ends_at"`
	Clusters []Cluster `json:"clusters"`

	signer *x509.Certificate
}

// Cluster is what its forwarders' tokens are verified by. Any pod can get a token with any audience,
// so Subject counts as much as the keys.
type Cluster struct {
	Name    string         `json:"name"` // Name is the caller's, a DNS label.
	Issuer  string         `json:"issuer"`
	Subject string         `json:"subject"` // Subject is system:serviceaccount:NAMESPACE:NAME.
	JWKS    account.KeySet `json:"jwks"`
}

const (
	clustersType  = "fairlead-seal-clusters"
	clustersLimit = 1 << 20 // bytes of the file
)

// Put adds a cluster, or replaces that of its name.
func (c *Clusters) Put(one Cluster) error {
	one.JWKS.Keys = slices.DeleteFunc(one.JWKS.Keys, func(k account.ClusterKey) bool {
		return !slices.Contains(tokenAlgorithms(), jose.SignatureAlgorithm(k.Algorithm))
	})
	if !account.ValidClusterID(one.Name) || len(one.JWKS.Keys) == 0 {
		return fmt.Errorf("cluster %q: it needs a name that is a DNS label, and a key for RS256 or ES256", one.Name)
	}
	c.Remove(one.Name)
	for _, k := range one.JWKS.Keys {
		if other := c.find(one.Issuer, k.KeyID); other != nil {
			return fmt.Errorf("cluster %s has the issuer and the key %q of %s: their tokens cannot be told apart",
				one.Name, k.KeyID, other.Name)
		}
	}
	c.Clusters = append(c.Clusters, one)
	return nil
}

// Remove removes a cluster, and reports whether there was one of the name.
func (c *Clusters) Remove(name string) bool {
	before := len(c.Clusters)
	c.Clusters = slices.DeleteFunc(c.Clusters, func(one Cluster) bool { return one.Name == name })
	return len(c.Clusters) < before
}

func (c *Clusters) find(issuer, keyID string) *Cluster {
	i := slices.IndexFunc(c.Clusters, func(one Cluster) bool {
		return one.Issuer == issuer && one.JWKS.Key(keyID) != nil
	})
	if i < 0 {
		return nil
	}
	return &c.Clusters[i]
}

// SignClusters signs clusters for a time, as a version that is newer than theirs.
func (r *Root) SignClusters(c *Clusters, life time.Duration, now time.Time) ([]byte, error) {
	c.Account, c.SignedAt, c.EndsAt = r.Account, now.UTC().Truncate(time.Second), now.UTC().Add(life).Truncate(time.Second)
	c.Version = max(c.Version+1, now.Unix()) // newer than a file that was lost, too
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: r.key},
		(&jose.SignerOptions{}).WithType(clustersType))
	if err != nil {
		return nil, fmt.Errorf("signing clusters: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("signing clusters: %w", err)
	}
	text, err := signed.CompactSerialize()
	if len(text) > clustersLimit {
		err = fmt.Errorf("the clusters have %d bytes; at most %d are allowed", len(text), clustersLimit)
	}
	return []byte(text + "\n"), err
}

// ReadClusters reads the file of the clusters of an account that one of the roots has signed.
func ReadClusters(file, accountID string, roots []*x509.Certificate) (*Clusters, error) {
	text, err := readFile(file, clustersLimit)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(strings.TrimSpace(string(text)), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType] != clustersType {
		return nil, fmt.Errorf("%s: it is not what fairlead seal clusters makes", file)
	}
	for _, root := range roots {
		payload, err := signed.Verify(root.PublicKey)
		if err != nil || CheckDates(root, time.Now()) != nil {
			continue
		}
		c := &Clusters{signer: root}
		if err := json.Unmarshal(payload, c); err != nil || c.Account != accountID {
			return nil, fmt.Errorf("%s: it is for the clusters of account %q, not of %s", file, c.Account, accountID)
		}
		return c, nil
	}
	return nil, fmt.Errorf("%s: none of the owner's authorities that are in force has signed it", file)
}

// tokenLimit bounds a token, in bytes: those of ServiceAccounts have about 1,500.
const tokenLimit = 8 << 10

func tokenAlgorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256}
}

func tokenAudience(accountID string) jwt.Audience { return jwt.Audience{"fairlead-seal:" + accountID} }

// parseToken reads a token, and verifies nothing. Errors have nothing of it.
func parseToken(raw string) (*jwt.JSONWebToken, *jwt.Claims, error) {
	var claims jwt.Claims
	if len(raw) > tokenLimit {
		return nil, nil, fmt.Errorf("it has %d bytes; at most %d are allowed", len(raw), tokenLimit)
	}
	t, err := jwt.ParseSigned(raw, tokenAlgorithms())
	if err != nil || t.UnsafeClaimsWithoutVerification(&claims) != nil {
		return nil, nil, errors.New("it is no JSON Web Token that is signed with RS256 or ES256")
	}
	if claims.Expiry == nil || claims.IssuedAt == nil {
		return nil, nil, errors.New("it has no exp or no iat, as those that the kubelet projects have")
	}
	return t, &claims, nil
}

// callerOf returns the name of the cluster whose forwarders' token it is. Errors have nothing of a
// token that the cluster has not signed.
func (c *Clusters) callerOf(raw string, now time.Time) (string, error) {
	t, claims, err := parseToken(raw)
	if err != nil {
		return "", err
	}
	header := t.Headers[0]
	by := c.find(claims.Issuer, header.KeyID)
	if by == nil {
		return "", fmt.Errorf("no cluster in version %d of the clusters has its issuer and key", c.Version)
	}
	key := by.JWKS.Key(header.KeyID)
	public, err := key.PublicKey()
	if err != nil || header.Algorithm != key.Algorithm || t.Claims(public, claims) != nil {
		return "", fmt.Errorf("it is not signed by the key of cluster %s that it names", by.Name)
	}
	switch {
	case claims.Subject != by.Subject:
		return "", fmt.Errorf("it is of %q, not of %s", account.Shorten(claims.Subject), by.Subject)
	case !slices.Equal(claims.Audience, tokenAudience(c.Account)):
		return "", fmt.Errorf("its audience is not %s alone", tokenAudience(c.Account)[0])
	case *claims.Expiry-*claims.IssuedAt > jwt.NumericDate(account.MaxTokenLife/time.Second):
		return "", errors.New("it lives for more than an hour")
	case claims.ValidateWithLeeway(jwt.Expected{Time: now}, backdate) != nil:
		return "", fmt.Errorf("it is in force from %s to %s, and it is %s here", showTime(claims.IssuedAt.Time()),
			showTime(claims.Expiry.Time()), showTime(now))
	}
	return by.Name, nil
}

func showTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
