// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// apiStore is the store for the API, which takes tokens of ServiceAccounts beside API keys.
type apiStore struct {
	*publishingStore
	tokens *clustertoken.Checker
}

// APIKeyBySecret implements account.Authenticator.
func (s *apiStore) APIKeyBySecret(ctx context.Context, secret string) (*account.APIKey, error) {
	if clustertoken.IsToken(secret) {
		return s.tokens.APIKey(ctx, secret)
	}
	return s.publishingStore.APIKeyBySecret(ctx, secret)
}

// tunnelStore is the store for tunnel sessions, which take tokens of ServiceAccounts beside
// authtokens and API keys.
type tunnelStore struct {
	*store.Store
	tokens *clustertoken.Checker
}

// TunnelCredential implements account.TunnelAuthenticator.
func (s *tunnelStore) TunnelCredential(ctx context.Context, secret string) (*account.TunnelCredential, error) {
	if clustertoken.IsToken(secret) {
		return s.tokens.TunnelCredential(ctx, secret)
	}
	return s.Store.TunnelCredential(ctx, secret)
}
