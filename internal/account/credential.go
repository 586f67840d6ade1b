// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"
)

// Prefixes of secrets, so that a mix-up gets a hint.
const (
	APIKeyPrefix    = "flk_"
	AuthtokenPrefix = "flt_"
	ResumePrefix    = "flr_" // resume secrets of binds
)

// Scope is what an API key may do.
type Scope string

// The scopes of API keys.
const (
	ScopeAdmin      Scope = "admin"      // everything
	ScopeRead       Scope = "read"       // every GET
	ScopeOperator   Scope = "operator"   // read and watch endpoints, keep operators
	ScopeIdentities Scope = "identities" // read and revoke users and their sessions, and nothing else
)

// Scopes lists the scopes.
func Scopes() []Scope { return []Scope{ScopeAdmin, ScopeRead, ScopeOperator, ScopeIdentities} }

// APIKey is a credential for the HTTP API. URI is filled in by the API server.
type APIKey struct {
	ID          string  `json:"id"`
	URI         string  `json:"uri"`
	Description string  `json:"description"`
	Metadata    string  `json:"metadata"`
	Scopes      []Scope `json:"scopes"`
	// the secret: in the answer of the creation, and never again; only its hash is stored
	Token      *string    `json:"token"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`

	AccountID string `json:"-"`
}

// HasAnyScope reports whether the key carries one of the scopes, or admin.
func (k *APIKey) HasAnyScope(any ...Scope) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s == ScopeAdmin || slices.Contains(any, s) })
}

// Authtoken is a credential for agents and forwarders, "credential" in the API. ACL holds its
// rules: "bind:<pattern>", "bind:<label>=<value>" and "connect:<pattern>", where a pattern is
// matched against the endpoint's URL, a label or the operator's id and "*" stands for any run of
// characters. URI is filled in by the API server.
type Authtoken struct {
	ID          string   `json:"id"`
	URI         string   `json:"uri"`
	Description string   `json:"description"`
	Metadata    string   `json:"metadata"`
	ACL         []string `json:"acl"`
	// the secret: in the answer of the creation, and never again; only its hash is stored
	Token      *string    `json:"token"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`

	AccountID string `json:"-"`
}

// MayBind reports whether a rule admits the endpoint URL.
func (a *Authtoken) MayBind(url string) bool { return a.allowed("bind:", url) }

// MayConnect reports whether a rule lets the token act as forwarder of the operator.
func (a *Authtoken) MayConnect(operatorID string) bool { return a.allowed("connect:", operatorID) }

func (a *Authtoken) allowed(verb, subject string) bool {
	return slices.ContainsFunc(a.ACL, func(rule string) bool {
		pattern, ok := strings.CutPrefix(rule, verb)
		return ok && matchPattern(pattern, subject)
	})
}

// matchPattern matches s against a pattern whose "*" stands for any run of characters. Linear in
// the usual case, without backtracking over more than one star.
func matchPattern(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) || !strings.HasSuffix(s[len(first):], last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// NewSecret makes a secret of 256 random bits with the given prefix.
func NewSecret(prefix string) string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // crypto/rand.Read never returns an error (Go 1.24)
	return prefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// HashSecret returns what is stored of a secret: SHA-256, which is enough for 256 random bits.
// Look-ups compare hashes, so their timing reveals nothing of the secret.
func HashSecret(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// Authenticator finds credentials by their secret. Unknown: CodeUnknownCredential; the other kind:
// CodeWrongKind with a hint; expired: CodeExpired.
type Authenticator interface {
	APIKeyBySecret(ctx context.Context, secret string) (*APIKey, error)
	AuthtokenBySecret(ctx context.Context, secret string) (*Authtoken, error)
	// LiveCredentials returns, of the given ids of API keys and authtokens, those that still exist
	// and have not expired.
	LiveCredentials(ctx context.Context, ids []string) (map[string]bool, error)
	// LiveAuthtokens returns, of the authtokens with the given ids, those that still exist and have
	// not expired, as they are now.
	LiveAuthtokens(ctx context.Context, ids []string) (map[string]*Authtoken, error)
}
