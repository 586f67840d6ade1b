// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// attack is a token that must be refused.
type attack struct {
	name  string
	token func(f *fixture) string
	code  account.Code // default CodeUnknownCredential
	says  string       // part of the refusal
	quiet bool         // the token names no account that exists: no event
}

// with returns a function that makes a token whose claims were changed.
func with(change func(f *fixture, claims map[string]any)) func(*fixture) string {
	return func(f *fixture) string {
		claims := f.claims()
		change(f, claims)
		return f.signer.Token(f.T, claims)
	}
}

// claim is with for one claim.
func claim(name string, value any) func(*fixture) string {
	return with(func(_ *fixture, claims map[string]any) {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	})
}

// header returns a function that makes a token with other or further members of the header, signed
// all the same.
func header(members map[string]any) func(*fixture) string {
	return func(f *fixture) string {
		all := map[string]any{"alg": f.signer.Algorithm, "kid": f.signer.KeyID}
		maps.Copy(all, members)
		maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
		return f.signer.Sign(f.T, f.json(all), f.json(f.claims()))
	}
}

// hmacSigned returns the valid token signed with HS256 under the bytes of the public key.
func hmacSigned(f *fixture) string {
	head := base64.RawURLEncoding.EncodeToString(f.json(map[string]any{"alg": "HS256", "kid": f.signer.KeyID}))
	input := head + "." + base64.RawURLEncoding.EncodeToString(f.json(f.claims()))
	mac := hmac.New(sha256.New, f.json(f.signer.KeySet(f.T).Keys[0]))
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// kubernetesClaim changes the claims of Kubernetes.
func kubernetesClaim(namespace, name, uid string) func(*fixture) string {
	return claim("kubernetes.io", map[string]any{"namespace": namespace,
		"serviceaccount": map[string]any{"name": name, "uid": uid}})
}

const foreignKey = `{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`

func attacks() []attack {
	return slices.Concat(attacksOnNames(), attacksOnSignature(), attacksOnTimes(), attacksOnKeys(), attacksOnForm())
}

func attacksOnNames() []attack {
	return []attack{
		{name: "wrong issuer", token: claim("iss", "https://other.example"), says: "issuer"},
		{name: "no issuer", token: claim("iss", nil), says: "issuer"},
		{name: "wrong audience", token: claim("aud", []string{"https://kubernetes.default.svc"}),
			says: "the token's audience is", quiet: true},
		{name: "audience of another service", token: with(func(f *fixture, c map[string]any) {
			c["aud"] = []string{"https://other.example/accounts/" + f.AccountID}
		}), says: "the token's audience is", quiet: true},
		{name: "no audience", token: claim("aud", nil), says: "the token's audience is", quiet: true},
		{name: "audience with a path below", token: with(func(f *fixture, c map[string]any) {
			c["aud"] = []string{f.audience() + "/x"}
		}), says: "the token's audience is", quiet: true},
		{name: "two audiences", token: with(func(f *fixture, c map[string]any) {
			c["aud"] = []string{"https://other.example", f.audience()}
		}), says: "2 audiences"},
		{name: "account that does not exist", token: with(func(_ *fixture, c map[string]any) {
			c["aud"] = []string{account.TokenAudience(baseURL, account.NewID("ac", time.Time{}))}
		}), says: "does not exist here", quiet: true},
		{name: "other ServiceAccount", token: with(func(_ *fixture, c map[string]any) {
			c["sub"] = "system:serviceaccount:fairlead:other"
			c["kubernetes.io"] = map[string]any{"namespace": "fairlead",
				"serviceaccount": map[string]any{"name": "other", "uid": "u-1"}}
		}), says: "no subject of cluster prod"},
		{name: "sub of a user", token: claim("sub", "system:admin"), says: "must name the same"},
		{name: "sub differs from the claims of Kubernetes", token: kubernetesClaim("fairlead", "manager", "u-1"),
			says: "must name the same"},
		{name: "namespace with a colon", token: with(func(_ *fixture, c map[string]any) {
			c["sub"] = "system:serviceaccount:fairlead:exporter"
			c["kubernetes.io"] = map[string]any{"namespace": "fairlead:exporter",
				"serviceaccount": map[string]any{"name": "", "uid": "u-1"}}
		}), says: "must name the same"},
		{name: "no claims of Kubernetes", token: claim("kubernetes.io", nil), says: "must name the same"},
		{name: "other UID", token: kubernetesClaim("fairlead", "exporter", "u-2"), says: "deleted and made again"},
		{name: "no UID", token: kubernetesClaim("fairlead", "exporter", ""), says: "no Kubernetes uid"},
	}
}

func attacksOnSignature() []attack {
	return []attack{
		{name: "alg none", token: func(f *fixture) string {
			signed := header(map[string]any{"alg": "none"})(f)
			return signed[:strings.LastIndex(signed, ".")+1]
		}, says: "algorithm is \"none\""},
		{name: "alg none with a signature", token: header(map[string]any{"alg": "none"}),
			says: "algorithm is \"none\""},
		{name: "no alg", token: header(map[string]any{"alg": nil}), says: "algorithm is \"\""},
		{name: "HS256 with the public key", token: hmacSigned, says: "algorithm is \"HS256\""},
		{name: "another algorithm than the key's", token: func(f *fixture) string {
			other := map[string]string{"ES256": "RS256", "RS256": "ES256"}[f.signer.Algorithm]
			return header(map[string]any{"alg": other})(f)
		}, says: "accepted with"},
		{name: "PS256 of an RSA key", token: header(map[string]any{"alg": "PS256"}), says: "accepted with"},
		{name: "unknown kid", token: header(map[string]any{"kid": "k-9"}), says: "has a key with the kid \"k-9\""},
		{name: "no kid", token: header(map[string]any{"kid": nil}), says: "has a key with the kid \"\""},
		{name: "kid with NUL", token: header(map[string]any{"kid": "k-1\x00"}), says: "has a key with the kid \""},
		{name: "kid that is a number", token: header(map[string]any{"kid": 1}), says: "kid is no text", quiet: true},
		{name: "kid as SQL", token: header(map[string]any{"kid": "' OR 1=1 --"}), says: "has a key with the kid \""},
	}
}

func attacksOnTimes() []attack {
	return []attack{
		{name: "expired", token: claim("exp", at(0)), code: account.CodeExpired, says: "the token expired at"},
		{name: "not valid yet", token: claim("nbf", at(61*time.Second)), code: account.CodeExpired,
			says: "not valid before"},
		{name: "issued in the future", token: with(func(_ *fixture, c map[string]any) {
			c["iat"], c["nbf"], c["exp"] = at(61*time.Second), at(0), at(time.Hour)
		}), code: account.CodeExpired, says: "not valid before"},
		{name: "lives too long", token: claim("exp", at(time.Hour+8*time.Second)), says: "at most an hour"},
		{name: "extended to a year", token: claim("exp", at(365*24*time.Hour)), says: "extends"},
		{name: "exp before iat", token: with(func(_ *fixture, c map[string]any) {
			c["iat"], c["exp"] = at(50*time.Second), at(40*time.Second)
		}), says: "at most an hour"},
		{name: "exp beyond all numbers", token: claim("exp", 1e300), says: "no complete JSON Web Token", quiet: true},
		{name: "negative iat", token: claim("iat", -1), says: "a time that is none"},
		{name: "exp as text", token: claim("exp", "9999999999"), says: "no complete JSON Web Token", quiet: true},
		{name: "legacy token without exp", token: claim("exp", nil), says: "legacy token"},
		{name: "no iat", token: claim("iat", nil), says: "legacy token"},
	}
}

func attacksOnKeys() []attack {
	return []attack{
		{name: "key of another cluster with the same issuer", token: func(f *fixture) string {
			return accounttest.NewTokenSigner(f.T, "k-other", "ES256").Token(f.T, f.claims())
		}, says: "has a key with the kid \"k-other\""},
		{name: "key of another cluster with the same kid", token: func(f *fixture) string {
			return accounttest.NewTokenSigner(f.T, f.signer.KeyID, "ES256").Token(f.T, f.claims())
		}, says: "key"}, // of ES256: not signed by it; of RS256: another algorithm
		{name: "key of another cluster of the account", token: func(f *fixture) string {
			return f.neighbour.Token(f.T, f.claims())
		}, says: "no subject of cluster staging"},
		{name: "token for another account", token: func(f *fixture) string {
			claims := f.claims()
			claims["aud"] = []string{account.TokenAudience(baseURL, f.otherAccount)}
			return f.signer.Token(f.T, claims)
		}, says: "no cluster of the account has a key with the kid \"", quiet: true}, // the event is in that account
		{name: "embedded jwk", token: header(map[string]any{"jwk": json.RawMessage(foreignKey)}), says: "has \"jwk\""},
		{name: "jku", token: header(map[string]any{"jku": "https://evil.example/jwks"}), says: "has \"jku\""},
		{name: "x5u", token: header(map[string]any{"x5u": "https://evil.example/x"}), says: "has \"x5u\""},
		{name: "x5c", token: header(map[string]any{"x5c": []string{"AA=="}}), says: "has \"x5c\""},
		{name: "crit", token: header(map[string]any{"crit": []string{"b64"}, "b64": false}), says: "has \"b64\""},
	}
}

func attacksOnForm() []attack {
	return []attack{
		{name: "duplicate claim", token: func(f *fixture) string {
			payload := strings.Replace(string(f.json(f.claims())), `"iss"`, `"sub":"system:admin","iss"`, 1)
			return f.signer.Sign(f.T, f.json(map[string]any{"alg": f.signer.Algorithm, "kid": f.signer.KeyID}),
				[]byte(payload))
		}, says: "without duplicate members", quiet: true},
		{name: "duplicate member of the header", token: func(f *fixture) string {
			head := fmt.Sprintf(`{"alg":"none","alg":%q,"kid":%q}`, f.signer.Algorithm, f.signer.KeyID)
			return f.signer.Sign(f.T, []byte(head), f.json(f.claims()))
		}, says: "without duplicate members", quiet: true},
		{name: "claim in another case", token: func(f *fixture) string {
			payload := strings.Replace(string(f.json(f.claims())), `"exp"`, `"EXP"`, 1)
			return f.signer.Sign(f.T, f.json(map[string]any{"alg": f.signer.Algorithm, "kid": f.signer.KeyID}),
				[]byte(payload))
		}, says: "legacy token"},
		{name: "changed payload", token: func(f *fixture) string {
			parts := strings.Split(f.valid(), ".")
			claims := f.claims()
			claims["jti"] = "other"
			parts[1] = base64.RawURLEncoding.EncodeToString(f.json(claims))
			return strings.Join(parts, ".")
		}, says: "not signed by"},
		{name: "without signature", token: func(f *fixture) string {
			return f.valid()[:strings.LastIndex(f.valid(), ".")+1]
		}, says: "not signed by"},
		{name: "truncated", token: func(f *fixture) string { return f.valid()[:len(f.valid())/2] },
			says: "was it cut off?", quiet: true},
		{name: "truncated signature", token: func(f *fixture) string { return f.valid()[:len(f.valid())-8] },
			says: "not signed by"},
		{name: "a fourth part", token: func(f *fixture) string { return f.valid() + ".AA" },
			says: "no complete JSON Web Token", quiet: true},
		{name: "JSON serialization", token: func(f *fixture) string { return "ey" + string(f.json(f.claims())) },
			says: "no complete JSON Web Token", quiet: true},
		{name: "1 MiB of garbage", token: func(*fixture) string { return "ey" + strings.Repeat("J", 1<<20) },
			says: "at most 8192", quiet: true},
		{name: "10,000 dots", token: func(*fixture) string { return "ey" + strings.Repeat(".", 8000) },
			says: "no complete JSON Web Token", quiet: true},
	}
}

// at is a time d after the fixture's clock.
func at(d time.Duration) int64 { return storetest.NewClock().Now().Add(d).Unix() }
