// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyhandover keeps the service informed of the keys with which the cluster signs the tokens
// of its ServiceAccounts, so that a rotation of them ends no session.
//
// What comes in: the keys that the API server publishes under /openid/v1/jwks, before it signs with
// a new one and while old ones are valid, and the manager's token. Whom it hands over to: the
// service, which adds keys that a token of a key it trusts already vouches for. Every replica does
// this, leading or not: a replica that has just started may have no token that vouches.
package keyhandover
