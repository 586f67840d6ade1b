// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "time"

// Account owns endpoints, operators, keys and tokens. Nothing of one account is visible to another.
type Account struct {
	ID        string
	Name      string // unique in the store
	CreatedAt time.Time
}

// Caller is the author of a write: the account, and its API key or authtoken; "" for the service
// itself and for its administrator.
type Caller struct {
	AccountID, PrincipalID string
	// OwnerCluster restricts the caller to endpoints with an owner of this cluster: others do not
	// exist for it. "" = no restriction.
	OwnerCluster string
}

// MayKnow reports whether the endpoint of its account exists for the caller.
func (c Caller) MayKnow(e *Endpoint) bool {
	return c.OwnerCluster == "" || e.Owner != nil && e.Owner.Cluster == c.OwnerCluster
}

// Limits of an account; the assembly of the service may override each.
const (
	DefaultMaxEndpoints  = 10_000
	DefaultMaxOperators  = 1_000
	DefaultMaxWatches    = 100
	DefaultMaxAPIKeys    = 1_000
	DefaultMaxAuthtokens = 10_000
)
