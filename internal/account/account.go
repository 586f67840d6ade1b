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

// Caller is on whose behalf something is written: the account, and the API key or authtoken of it
// that asks; "" for the service itself and for who administers it.
type Caller struct{ AccountID, PrincipalID string }

// Limits of an account; the assembly of the service may override each.
const (
	DefaultMaxEndpoints  = 10_000
	DefaultMaxOperators  = 1_000
	DefaultMaxWatches    = 100
	DefaultMaxAPIKeys    = 1_000
	DefaultMaxAuthtokens = 10_000
)
