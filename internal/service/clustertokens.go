// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
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

// TunnelCredential implements account.TunnelAuthenticator. The refusal of a token that has expired,
// or is not valid yet, is a *tunnel.Error that lets the client try again: the kubelet renews the
// token in its file when the cluster's API server is back.
func (s *tunnelStore) TunnelCredential(ctx context.Context, secret string) (*account.TunnelCredential, error) {
	if !clustertoken.IsToken(secret) {
		return s.Store.TunnelCredential(ctx, secret)
	}
	c, err := s.tokens.TunnelCredential(ctx, secret)
	if account.CodeOf(err) == account.CodeExpired {
		return nil, &tunnel.Error{Code: tunnel.CodeUnavailable, Detail: string(account.CodeExpired), Msg: err.Error()}
	}
	return c, err
}
