// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestSealed_TokensProveCallers runs forwarders with tokens against an agent that requires proof: it
// serves that of the forwarders' ServiceAccount, also on a resumed session, and reaches its upstream for
// no other; no refusal shows a token.
func TestSealed_TokensProveCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.owner.NewCluster("cluster-1")
	other := r.owner.NewCluster("cluster-1") // has the key id, and another key
	callers := r.owner.WriteCallers(t.TempDir(), r.owner.SignClusters(0, c))
	var reached atomic.Int64
	answer := digest("got ")
	id := r.serve("in-a", r.endpoint(upstream(t, func(conn *net.TCPConn) { reached.Add(1); answer(conn) }),
		r.owner.Identity(databaseURL, func(o *sealed.IdentityOptions) { o.Callers, o.RequireCaller = callers, true })))
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	by := func(algorithm jose.SignatureAlgorithm, key any) string {
		return c.TokenBy(jose.SigningKey{Algorithm: algorithm,
			Key: jose.JSONWebKey{Key: key, KeyID: "cluster-1-key"}}, nil)
	}
	public, err := x509.MarshalPKIXPublicKey(c.Key.Public())
	must.Succeed(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must.Succeed(t, err)
	good := c.Token(nil)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"cluster-1-key"}`))
	for name, tt := range map[string]struct{ token, want string }{
		"the forwarders'":    {good, ""},
		"ends just now":      {c.Token(sealtest.Claims{"iat": at(-time.Hour), "exp": at(-time.Minute)}), ""},
		"from a clock ahead": {c.Token(sealtest.Claims{"nbf": at(4 * time.Minute), "iat": at(4 * time.Minute)}), ""},
		"none":               {"", "it has no certificate"},
		"another issuer":     {c.Token(sealtest.Claims{"iss": "https://evil"}), "of no issuer, key and ServiceAccount"},
		"no issuer":          {c.Token(sealtest.Claims{"iss": nil}), "of no issuer, key and ServiceAccount"},
		"another subject": {c.Token(sealtest.Claims{"sub": "system:serviceaccount:fairlead:default"}),
			"of no issuer, key and ServiceAccount"},
		"for another account": {c.Token(sealtest.Claims{"aud": []string{"fairlead-seal:ac-1"}}),
			"its token: it is not for fairlead-seal:"},
		"for the Kubernetes API": {c.Token(sealtest.Claims{"aud": []string{c.Issuer}}),
			"its token: it is not for fairlead-seal:"},
		"for others, too": {c.Token(sealtest.Claims{"aud": []string{"fairlead-seal:" + c.Account, "x"}}),
			"is not for"},
		"for none":                {c.Token(sealtest.Claims{"aud": nil}), "its token: it is not for fairlead-seal:"},
		"another key":             {other.Token(nil), "of no issuer, key and ServiceAccount"},
		"a key that is not there": {r.owner.NewCluster("x").Token(nil), "of no issuer, key and ServiceAccount"},
		"another algorithm":       {by(jose.RS256, rsaKey), "of no issuer, key and ServiceAccount"},
		"an algorithm not allowed": {by(jose.ES384, curve),
			"the token is no JSON Web Token"},
		"no signature":           {none + "." + parts[1] + ".", "the token is no JSON Web Token"},
		"none, with a signature": {none + "." + parts[1] + "." + parts[2], "the token is no JSON Web Token"},
		"HS256 by the public key": {by(jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
			"the token is no JSON Web Token"},
		"changed": {parts[0] + "." + strings.Split(c.Token(sealtest.Claims{"x": 1}), ".")[1] + "." + parts[2],
			"of no issuer, key and ServiceAccount"},
		"ended": {c.Token(sealtest.Claims{"iat": at(-time.Hour), "exp": at(-6 * time.Minute)}),
			"in force from"},
		"far in the future":   {c.Token(sealtest.Claims{"nbf": at(10 * time.Minute)}), "in force from"},
		"issued far ahead":    {c.Token(sealtest.Claims{"iat": at(10 * time.Minute)}), "in force from"},
		"for a day":           {c.Token(sealtest.Claims{"exp": at(24 * time.Hour)}), "more than an hour"},
		"without an end":      {c.Token(sealtest.Claims{"exp": nil}), "it has no iat or no exp"},
		"with a time of text": {c.Token(sealtest.Claims{"exp": "never"}), "of no issuer, key"},
		"oversized":           {c.Token(sealtest.Claims{"x": strings.Repeat("x", 8<<10)}), "of at most 8192 bytes"},
		"no token":            {"flk_secret", "the token is no JSON Web Token"},
	} {
		before, trust := reached.Load(), r.owner.TokenTrust(tt.token)
		for range 2 { // the second resumes the session
			why := greets(t, r.call(id, trust))
			if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
				t.Errorf("%s: %s, want %q", name, why, tt.want)
			}
			for _, part := range strings.Split(tt.token, ".") {
				if len(part) > 4 && strings.Contains(why, part) {
					t.Errorf("%s: the refusal shows the token: %s", name, why)
				}
			}
		}
		if tt.want != "" && reached.Load() != before {
			t.Errorf("%s: reached the upstream", name)
		}
	}
}
