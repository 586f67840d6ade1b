// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
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
	ScopeExporter   Scope = "exporter"   // bind and keep the endpoints of one cluster's objects; goes with no other
)

// Scopes lists the scopes.
func Scopes() []Scope {
	return []Scope{ScopeAdmin, ScopeRead, ScopeOperator, ScopeIdentities, ScopeExporter}
}

// APIKey is a credential for the HTTP API. One of ScopeExporter is for tunnel sessions of agents,
// too. URI is filled in by the API server.
type APIKey struct {
	ID          string  `json:"id"`
	URI         string  `json:"uri"`
	Description string  `json:"description"`
	Metadata    string  `json:"metadata"`
	Scopes      []Scope `json:"scopes"`
	ACL         ACL     `json:"acl"` // empty without ScopeExporter
	// the UID of the namespace kube-system of the cluster that a key of ScopeExporter belongs to;
	// "" = the first that presents it
	ClusterUID string `json:"cluster_uid"`
	// the secret: in the answer of the creation, and never again; only its hash is stored
	Token      *string    `json:"token"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`

	AccountID      string              `json:"-"`
	ServiceAccount ServiceAccountToken `json:"-"` // set if the key stands for such a token
}

// HasAnyScope reports whether the key carries one of the scopes, or admin.
func (k *APIKey) HasAnyScope(any ...Scope) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s == ScopeAdmin || slices.Contains(any, s) })
}

// Authtoken is a credential for agents and forwarders, "credential" in the API. URI is filled in by
// the API server.
type Authtoken struct {
	ID          string `json:"id"`
	URI         string `json:"uri"`
	Description string `json:"description"`
	Metadata    string `json:"metadata"`
	ACL         ACL    `json:"acl"`
	// the secret: in the answer of the creation, and never again; only its hash is stored
	Token      *string    `json:"token"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil = never
	LastUsedAt *time.Time `json:"last_used_at"`

	AccountID string `json:"-"`
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

// Authenticator finds API keys by their secret. Unknown: CodeUnknownCredential; an authtoken:
// CodeWrongKind with a hint; expired: CodeExpired.
type Authenticator interface {
	APIKeyBySecret(ctx context.Context, secret string) (*APIKey, error)
	// LiveCredentials returns those of the API keys, authtokens and subjects of clusters that still
	// exist and have not expired, and whose token is still admitted.
	LiveCredentials(ctx context.Context, uses []CredentialUse) (map[CredentialUse]bool, error)
}
