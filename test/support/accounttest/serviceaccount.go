// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TokenSigner signs tokens of ServiceAccounts as the API server of a cluster does.
type TokenSigner struct {
	KeyID     string
	Algorithm string // RS256 or ES256
	key       crypto.Signer
}

// rsaKey is shared: making one takes long.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// NewTokenSigner returns a signer with a key for RS256, which all such signers of the process share,
// or a new one for ES256.
func NewTokenSigner(t testing.TB, keyID, algorithm string) *TokenSigner {
	t.Helper()
	s := &TokenSigner{KeyID: keyID, Algorithm: algorithm}
	var err error
	if algorithm == "RS256" {
		s.key, err = rsaKey()
	} else {
		s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	must.Succeed(t, err)
	return s
}

// SignerOf returns a signer with a key of the algorithm.
func SignerOf(keyID, algorithm string, key crypto.Signer) *TokenSigner {
	return &TokenSigner{KeyID: keyID, Algorithm: algorithm, key: key}
}

// KeySet returns the public key as a JSON Web Key Set.
func (s *TokenSigner) KeySet(t testing.TB) account.KeySet {
	t.Helper()
	jwk := map[string]string{"kid": s.KeyID, "use": "sig", "alg": s.Algorithm}
	switch public := s.key.Public().(type) {
	case *rsa.PublicKey:
		jwk["kty"], jwk["n"] = "RSA", encode(public.N.Bytes())
		jwk["e"] = encode(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		must.Succeed(t, err)
		half := (len(point) - 1) / 2
		jwk["kty"], jwk["crv"], jwk["x"], jwk["y"] = "EC", "P-256", encode(point[1:1+half]), encode(point[1+half:])
	}
	raw, err := json.Marshal(map[string]any{"keys": []any{jwk}})
	must.Succeed(t, err)
	set, err := account.ParseKeySet(raw)
	must.Succeed(t, err)
	return set
}

// Claims returns the claims of a token of an hour that the API server issues now for a pod of the
// ServiceAccount.
func Claims(audience, namespace, name, uid string, now time.Time) map[string]any {
	return map[string]any{
		"aud": []string{audience}, "iss": account.DefaultIssuer, "jti": "4f1fb5b0-4b2b-4f0e-9d2c-1f6ad0b4a9d1",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]any{"name": name, "uid": uid},
			"pod":  map[string]any{"name": name + "-0", "uid": "p-1"},
			"node": map[string]any{"name": "node-1", "uid": "n-1"},
		},
	}
}

// Token returns a token with the claims.
func (s *TokenSigner) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	return s.Sign(t, mustJSON(t, map[string]any{"alg": s.Algorithm, "kid": s.KeyID}), mustJSON(t, claims))
}

// Sign returns a compact JWS over a header and a payload that need not be valid.
func (s *TokenSigner) Sign(t testing.TB, header, payload []byte) string {
	t.Helper()
	input := encode(header) + "." + encode(payload)
	digest := sha256.Sum256([]byte(input))
	var signature []byte
	var err error
	switch key := s.key.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	case *ecdsa.PrivateKey:
		var r, v *big.Int
		if r, v, err = ecdsa.Sign(rand.Reader, key, digest[:]); err == nil {
			signature = append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)
		}
	}
	must.Succeed(t, err)
	return input + "." + encode(signature)
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must.Succeed(t, err)
	return raw
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
