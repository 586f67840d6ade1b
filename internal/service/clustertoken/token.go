// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // refuses duplicate members, and matches names in their case only
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// maxToken bounds a token, in bytes: those of ServiceAccounts have about 1,500.
	maxToken = 8 << 10
	// leeway is how much the cluster's clock may be ahead for nbf and iat.
	leeway = time.Minute
)

// token is a token that is not verified until verify has returned nil.
type token struct {
	raw       string
	accountID string // accountID is that of the account that the audience names.
	keyID     string
	header    map[string]json.RawMessage
	claims    claims
}

type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// use returns what the use of the token depends on.
func (t *token) use() account.ServiceAccountToken {
	return account.ServiceAccountToken{KeyID: t.keyID, UID: t.claims.Kubernetes.ServiceAccount.UID,
		Expires: int64(*t.claims.Expiry)}
}

func refuse(format string, args ...any) error {
	return account.Errorf(account.CodeUnknownCredential, format, args...)
}

// parse reads a token as far as is needed to find its account and key. It verifies nothing.
func parse(raw, baseURL string) (*token, error) {
	if len(raw) > maxToken {
		return nil, refuse("the token has %d bytes; at most %d are accepted", len(raw), maxToken)
	}
	t := &token{raw: raw}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 || decode(parts[0], &t.header) != nil || decode(parts[1], &t.claims) != nil {
		return nil, refuse("the token is no complete JSON Web Token of a ServiceAccount: three parts with dots " +
			"between them, of which two are JSON without duplicate members; was it cut off?")
	}
	for _, audience := range t.claims.Audience {
		id, ok := strings.CutPrefix(audience, baseURL+"/accounts/")
		if ok && account.ValidID(account.PrefixAccount, id) {
			t.accountID = id
			break
		}
	}
	if t.accountID == "" {
		return nil, refuse("the token's audience is %q; it must be %s alone: set audience in the projected "+
			"serviceAccountToken, or credentials.serviceAccount in the chart",
			account.Shorten(strings.Join(t.claims.Audience, " ")), account.TokenAudience(baseURL, "ACCOUNT_ID"))
	}
	if kid := t.header["kid"]; kid != nil && json.Unmarshal(kid, &t.keyID) != nil {
		return nil, refuse("the token's kid is no text")
	}
	return t, nil
}

func decode(part string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// verify checks everything of a token that the cluster and the time decide. The algorithm is that
// of the cluster's key.
func (t *token) verify(cluster *account.Cluster, baseURL string, now time.Time) error {
	key := cluster.JWKS.Key(t.keyID)
	if key == nil {
		return account.Errorf(account.CodeUnknownKey, "cluster %s has no key with the kid %q", cluster.Name,
			account.Shorten(t.keyID))
	}
	if len(t.claims.Audience) != 1 {
		return refuse("the token has %d audiences; it must have %s alone, so that no other service can present it here",
			len(t.claims.Audience), account.TokenAudience(baseURL, t.accountID))
	}
	if err := t.checkHeader(key); err != nil {
		return err
	}
	if t.claims.Issuer != cluster.Issuer {
		return refuse("the token's issuer is %q, which is not that of cluster %s (%s); compare: fairlead api clusters "+
			"get %s", account.Shorten(t.claims.Issuer), cluster.Name, cluster.ID, cluster.ID)
	}
	public, err := key.PublicKey()
	if err != nil {
		return refuse("the key %q of cluster %s cannot be used: it %s", key.KeyID, cluster.Name, err)
	}
	signed, err := jose.ParseSignedCompact(t.raw, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(key.Algorithm)})
	if err == nil {
		_, err = signed.Verify(public)
	}
	if err != nil {
		return refuse("the token is not signed by the key %q of cluster %s (%s); if the cluster has a new key of this "+
			"name: kubectl get --raw /openid/v1/jwks | fairlead api clusters update %s --add-jwks-file -",
			account.Shorten(t.keyID), cluster.Name, cluster.ID, cluster.ID)
	}
	if err := t.checkTimes(now); err != nil {
		return err
	}
	return t.checkSubject()
}

// checkHeader refuses an algorithm that is not the key's, and everything that tokens of
// ServiceAccounts do not have in their header, such as keys.
func (t *token) checkHeader(key *account.ClusterKey) error {
	for _, name := range slices.Sorted(maps.Keys(t.header)) {
		if !slices.Contains([]string{"alg", "kid", "typ"}, name) {
			return refuse("the token's header has %q; those of ServiceAccounts have alg, kid and typ only",
				account.Shorten(name))
		}
	}
	var algorithm string
	if json.Unmarshal(t.header["alg"], &algorithm) != nil || algorithm != key.Algorithm {
		return refuse("the token's algorithm is %q; its key is accepted with %s only", account.Shorten(algorithm),
			key.Algorithm)
	}
	return nil
}

// latestTime bounds times of tokens, so that differences of them do not overflow.
const latestTime = 1 << 40

// checkTimes checks exp, nbf and iat, and how long the token lives.
func (t *token) checkTimes(now time.Time) error {
	c := t.claims
	if c.Expiry == nil || c.IssuedAt == nil {
		return refuse("the token has no exp or no iat: it is a legacy token of a Secret; use a projected " +
			"serviceAccountToken with expirationSeconds 3600")
	}
	for _, at := range []*jwt.NumericDate{c.Expiry, c.IssuedAt, c.NotBefore} {
		if at != nil && (*at < 0 || *at > latestTime) {
			return refuse("the token has a time that is none: %d", *at)
		}
	}
	life := time.Duration(*c.Expiry-*c.IssuedAt) * time.Second
	show := func(at *jwt.NumericDate) string { return at.Time().UTC().Format(time.RFC3339) }
	switch {
	case life <= 0 || life > account.MaxTokenLife:
		return refuse("the token lives %s, from %s to %s; at most an hour is accepted: set expirationSeconds 3600. "+
			"Tokens that the API server extends (--service-account-extend-token-expiration) are not accepted",
			life, show(c.IssuedAt), show(c.Expiry))
	case !now.Before(c.Expiry.Time()):
		return account.Errorf(account.CodeExpired, "the token expired at %s; the kubelet renews it in its file as "+
			"long as it reaches the cluster's API server: compare the clocks, too (it is %s here)", show(c.Expiry),
			now.UTC().Format(time.RFC3339))
	case c.IssuedAt.Time().After(now.Add(leeway)),
		c.NotBefore != nil && c.NotBefore.Time().After(now.Add(leeway)):
		return account.Errorf(account.CodeExpired,
			"the token is not valid before %s, and it is %s here; set the clock of the cluster's API server or of "+
				"this service", show(c.IssuedAt), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkSubject checks that sub and the claims of Kubernetes name one ServiceAccount.
func (t *token) checkSubject() error {
	k := t.claims.Kubernetes
	named := account.ClusterSubject{Namespace: k.Namespace, ServiceAccount: k.ServiceAccount.Name}
	if named.Claim() != t.claims.Subject || k.Namespace == "" || k.ServiceAccount.Name == "" {
		return refuse("the token's sub is %q and its claims kubernetes.io name the ServiceAccount %q; both must "+
			"name the same", account.Shorten(t.claims.Subject), account.Shorten(k.Namespace+"/"+k.ServiceAccount.Name))
	}
	return account.ValidateServiceAccountUID(k.ServiceAccount.UID)
}
