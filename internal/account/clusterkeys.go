// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Limits of the keys of a cluster.
const (
	MaxKeySet  = 64 << 10 // bytes
	maxKeyID   = 256      // bytes
	minRSABits = 2048
	maxRSABits = 8192
)

// KeySet are public keys as a JSON Web Key Set (RFC 7517), in a normal form: the members below, and
// for each key the one algorithm that it is used with.
type KeySet struct {
	Keys []ClusterKey `json:"keys"`
}

// ClusterKey is a public key of a KeySet. Numbers are base64url without padding.
type ClusterKey struct {
	KeyID     string `json:"kid"`
	Type      string `json:"kty"` // RSA or EC
	Algorithm string `json:"alg"` // RS256, ES256, ES384 or ES512
	Use       string `json:"use"` // sig
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	// LearnedAt is when the cluster handed the key over, or its issuer published it first; nil for a
	// key that an administrator gave.
	LearnedAt *time.Time `json:"learned_at,omitempty"`
}

// Key returns the key with the id, or nil.
func (s KeySet) Key(id string) *ClusterKey {
	for i := range s.Keys {
		if s.Keys[i].KeyID == id {
			return &s.Keys[i]
		}
	}
	return nil
}

// ParseKeySet reads a JSON Web Key Set of public keys: RSA of at least 2048 bits for RS256, and
// P-256, P-384 and P-521 for ES256, ES384 and ES512, each with a kid. Other members are dropped.
// Private and symmetric keys are refused. Errors are CodeInvalid with field "jwks" and show nothing
// of a private key.
func ParseKeySet(raw []byte) (KeySet, error) {
	if len(raw) > MaxKeySet {
		return KeySet{}, Invalid("jwks", NotShown, fmt.Sprintf("has %d bytes; at most %d are allowed", len(raw),
			MaxKeySet))
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.Keys == nil {
		return KeySet{}, Invalid("jwks", NotShown, "must be a JSON Web Key Set: an object with a list \"keys\", as "+
			"kubectl get --raw /openid/v1/jwks prints")
	}
	set := KeySet{Keys: make([]ClusterKey, 0, len(doc.Keys))}
	for i, one := range doc.Keys {
		key, err := parseKey(one)
		if err != nil {
			return KeySet{}, Invalid(fmt.Sprintf("jwks.keys[%d]", i), NotShown, err.Error())
		}
		set.Keys = append(set.Keys, key)
	}
	return set, set.validate()
}

func (s KeySet) validate() error {
	var r rules
	if len(s.Keys) == 0 || len(s.Keys) > MaxClusterKeys {
		r.add("jwks", "", fmt.Sprintf("has %d keys; 1 to %d are required", len(s.Keys), MaxClusterKeys))
	}
	for i, k := range s.Keys {
		if slices.ContainsFunc(s.Keys[:i], func(o ClusterKey) bool { return o.KeyID == k.KeyID }) {
			r.add(fmt.Sprintf("jwks.keys[%d].kid", i), k.KeyID, "is the kid of two keys; each key needs its own")
		}
	}
	return r.err()
}

// privateMembers are the members of private and symmetric keys, and of several primes.
func privateMembers() []string { return []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} }

// parseKey reads a public key and returns it in its normal form.
func parseKey(raw []byte) (ClusterKey, error) {
	var members map[string]json.RawMessage
	var k ClusterKey
	if json.Unmarshal(raw, &members) != nil || json.Unmarshal(raw, &k) != nil {
		return k, errors.New("must be a JSON Web Key with texts as members")
	}
	for name := range members { // encoding/json matches members in any case
		if slices.Contains(privateMembers(), strings.ToLower(name)) {
			return k, fmt.Errorf("has the member %q of a private key, which must not leave its owner; give public "+
				"keys, as kubectl get --raw /openid/v1/jwks prints, and replace a key that was sent anywhere", name)
		}
	}
	if k.KeyID == "" || len(k.KeyID) > maxKeyID || strings.ContainsFunc(k.KeyID, func(c rune) bool {
		return c <= ' ' || c >= 0x7f
	}) {
		return k, fmt.Errorf("needs a kid of 1 to %d printable ASCII characters", maxKeyID)
	}
	if k.Use != "" && k.Use != "sig" {
		return k, errors.New("has a use other than sig; leave out keys that sign nothing")
	}
	public, err := k.PublicKey()
	if err != nil {
		return k, err
	}
	return k.normalised(public)
}

// normalised returns the key with its algorithm and without members that its type does not have.
func (k ClusterKey) normalised(public crypto.PublicKey) (ClusterKey, error) {
	given := k.Algorithm
	out := ClusterKey{KeyID: k.KeyID, Type: k.Type, Use: "sig"}
	switch public.(type) {
	case *rsa.PublicKey:
		out.Algorithm, out.N, out.E = "RS256", k.N, k.E
	default:
		out.Algorithm, out.Curve, out.X, out.Y = ecAlgorithms()[k.Curve], k.Curve, k.X, k.Y
	}
	if given != "" && given != out.Algorithm {
		return k, fmt.Errorf("has the alg %q; this key is accepted with %s only", Shorten(given), out.Algorithm)
	}
	return out, nil
}

// ecAlgorithms returns the algorithm of each curve.
func ecAlgorithms() map[string]string {
	return map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
}

// PublicKey returns the key as an *rsa.PublicKey or *ecdsa.PublicKey. The error is a rule.
func (k *ClusterKey) PublicKey() (crypto.PublicKey, error) {
	switch k.Type {
	case "RSA":
		return k.rsaKey()
	case "EC":
		return k.ecKey()
	}
	return nil, fmt.Errorf("has the kty %q; it must be RSA or EC", Shorten(k.Type))
}

func (k *ClusterKey) rsaKey() (*rsa.PublicKey, error) {
	n, err := base64.RawURLEncoding.DecodeString(k.N)
	if err != nil {
		return nil, errors.New("has an n that is not base64url without padding")
	}
	e, err := base64.RawURLEncoding.DecodeString(k.E)
	if err != nil || len(e) > 4 {
		return nil, errors.New("has an e that is not base64url without padding, or more than 32 bits")
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if bits := public.N.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("has %d bits; an RSA key needs %d to %d", bits, minRSABits, maxRSABits)
	}
	if public.E < 3 || public.E%2 == 0 || public.E > 1<<31-1 || public.N.Bit(0) == 0 {
		return nil, errors.New("has an n or e that no RSA key has")
	}
	return public, nil
}

func (k *ClusterKey) ecKey() (*ecdsa.PublicKey, error) {
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	curve := curves[k.Curve]
	if curve == nil {
		return nil, fmt.Errorf("has the crv %q; it must be P-256, P-384 or P-521", Shorten(k.Curve))
	}
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4} // uncompressed
	for _, text := range []string{k.X, k.Y} {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(b) != size {
			return nil, fmt.Errorf("has an x or y that is not base64url of %d bytes without padding", size)
		}
		point = append(point, b...)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, fmt.Errorf("has an x and y that are no point of %s", k.Curve)
	}
	return public, nil
}
