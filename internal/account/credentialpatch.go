// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// APIKeyPatch changes an API key, or describes a new one; nil fields stay. Lists are replaced.
type APIKeyPatch struct {
	Description *string
	Metadata    *string
	Scopes      *[]Scope
	ACL         *[]string // needs ScopeExporter; a nil list means DefaultExporterACL
	ClusterUID  *string   // likewise; an empty one is ignored
	Expiry      ExpiryPatch
}

// AuthtokenPatch changes an authtoken, or describes a new one; nil fields stay. Lists are
// replaced.
type AuthtokenPatch struct {
	Description *string
	Metadata    *string
	ACL         *[]string
	Expiry      ExpiryPatch
}

// ExpiryPatch changes when a credential ends. Without Set it stays; a nil At is never.
type ExpiryPatch struct {
	Set bool
	At  *time.Time
}

// DefaultScopes are those of a key that names none.
func DefaultScopes() []Scope { return []Scope{ScopeAdmin} }

// DefaultACL is that of an authtoken that names no rule: it may bind anything, and connect as
// nothing.
func DefaultACL() ACL { return ACL{"bind:*"} }

// Apply returns k with the patch applied, validated: CodeInvalid lists every broken rule.
func (p APIKeyPatch) Apply(k APIKey, now time.Time) (APIKey, error) {
	set(&k.Description, p.Description)
	set(&k.Metadata, p.Metadata)
	set(&k.Scopes, p.Scopes)
	r := credentialRules(k.Description, k.Metadata)
	r = append(r, FieldsOf(ValidateScopes(k.Scopes))...)
	if k.IsExporter() {
		p.applyExporter(&k, &r)
	} else {
		p.withoutExporter(&k, &r)
	}
	k.ExpiresAt = p.Expiry.apply(k.ExpiresAt, now, &r)
	return k, r.err()
}

// Apply returns a with the patch applied and the rules in their normal form, validated: CodeInvalid
// lists every broken rule.
func (p AuthtokenPatch) Apply(a Authtoken, now time.Time) (Authtoken, error) {
	set(&a.Description, p.Description)
	set(&a.Metadata, p.Metadata)
	r := credentialRules(a.Description, a.Metadata)
	if p.ACL != nil {
		normal, err := NormaliseACL(*p.ACL)
		if err == nil && len(normal) == 0 {
			err = Invalid("acl", "",
				"at least one rule is required, for example bind:*; delete the authtoken to forbid everything")
		}
		r = append(r, FieldsOf(err)...)
		a.ACL = normal
	}
	a.ExpiresAt = p.Expiry.apply(a.ExpiresAt, now, &r)
	return a, r.err()
}

func credentialRules(description, metadata string) rules {
	var r rules
	r.text("description", description, MaxDescription)
	r.text("metadata", metadata, MaxMetadata)
	return r
}

func (p ExpiryPatch) apply(was *time.Time, now time.Time, r *rules) *time.Time {
	if !p.Set {
		return was
	}
	if p.At == nil {
		return nil
	}
	at := p.At.UTC().Truncate(time.Microsecond)
	if !at.After(now) {
		r.add("expires_at", at.Format(time.RFC3339), "must lie in the future; delete what is to end now")
	}
	return &at
}

// Valid reports whether the key has not expired.
func (k *APIKey) Valid(now time.Time) bool { return k.ExpiresAt == nil || k.ExpiresAt.After(now) }

// APIKeys stores the API keys of an account. An account's last admin key that has not expired can
// neither be deleted nor lose that scope: CodeInUse.
type APIKeys interface {
	// CreateAPIKey makes a key; its Token is set this once. Without scopes it is an admin key.
	// CodeLimit when the account has too many.
	CreateAPIKey(ctx context.Context, by Caller, p APIKeyPatch) (*APIKey, error)
	APIKey(ctx context.Context, accountID, id string) (*APIKey, error)
	ListAPIKeys(ctx context.Context, accountID string, p Page) (page []APIKey, more bool, err error)
	PatchAPIKey(ctx context.Context, by Caller, id string, p APIKeyPatch) (*APIKey, error)
	// DeleteAPIKey deletes a key; what it has open ends within a second.
	DeleteAPIKey(ctx context.Context, by Caller, id string) error
}

// Authtokens stores the authtokens of an account.
type Authtokens interface {
	// CreateAuthtoken makes an authtoken; its Token is set this once. Without rules it has
	// DefaultACL. CodeLimit when the account has too many.
	CreateAuthtoken(ctx context.Context, by Caller, p AuthtokenPatch) (*Authtoken, error)
	Authtoken(ctx context.Context, accountID, id string) (*Authtoken, error)
	ListAuthtokens(ctx context.Context, accountID string, p Page) (page []Authtoken, more bool, err error)
	// PatchAuthtoken changes an authtoken. Sessions that the new rules do not admit end within a
	// second.
	PatchAuthtoken(ctx context.Context, by Caller, id string, p AuthtokenPatch) (*Authtoken, error)
	// DeleteAuthtoken deletes an authtoken; sessions that it opened, and their streams, end within
	// a second.
	DeleteAuthtoken(ctx context.Context, by Caller, id string) error
}
