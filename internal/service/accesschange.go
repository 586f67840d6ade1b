// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// accessTimeout bounds how long a change waits for this server to compare itself with the store.
const accessTimeout = 5 * time.Second

// accessChangeInterval is how often a server looks for changes of commands that wait for it.
const accessChangeInterval = 500 * time.Millisecond

// publishingStore is the store for the API and the dashboard. What is deleted through it, and the
// rules that are changed through it, are true on all servers when the call returns.
type publishingStore struct {
	*store.Store
	changes changeListener
}

// changeListener is told of changes of accounts.
type changeListener interface {
	// AccessChanged returns when the change is true. ids: the one endpoint or backend that changed.
	AccessChanged(ctx context.Context, accountID string, ids ...string)
}

// DeleteAPIKey implements account.APIKeys.
func (s *publishingStore) DeleteAPIKey(ctx context.Context, by account.Caller, id string) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteAPIKey(ctx, by, id))
}

// PatchAPIKey implements account.APIKeys.
func (s *publishingStore) PatchAPIKey(
	ctx context.Context, by account.Caller, id string, p account.APIKeyPatch,
) (*account.APIKey, error) {
	k, err := s.Store.PatchAPIKey(ctx, by, id, p)
	return k, s.published(ctx, by.AccountID, err)
}

// DeleteAuthtoken implements account.Authtokens.
func (s *publishingStore) DeleteAuthtoken(ctx context.Context, by account.Caller, id string) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteAuthtoken(ctx, by, id))
}

// PatchAuthtoken implements account.Authtokens.
func (s *publishingStore) PatchAuthtoken(
	ctx context.Context, by account.Caller, id string, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	a, err := s.Store.PatchAuthtoken(ctx, by, id, p)
	return a, s.published(ctx, by.AccountID, err)
}

// DeleteCluster implements account.Clusters.
func (s *publishingStore) DeleteCluster(ctx context.Context, by account.Caller, id string) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteCluster(ctx, by, id))
}

// PatchCluster implements account.Clusters.
func (s *publishingStore) PatchCluster(
	ctx context.Context, by account.Caller, id string, p account.ClusterPatch,
) (*account.Cluster, error) {
	c, err := s.Store.PatchCluster(ctx, by, id, p)
	return c, s.published(ctx, by.AccountID, err)
}

// DeleteOperator implements account.Operators.
func (s *publishingStore) DeleteOperator(ctx context.Context, by account.Caller, id string) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteOperator(ctx, by, id))
}

// DeleteEndpoint implements account.CloudEndpoints.
func (s *publishingStore) DeleteEndpoint(ctx context.Context, by account.Caller, id string) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteEndpoint(ctx, by, id), id)
}

// PatchEndpoint implements account.CloudEndpoints.
func (s *publishingStore) PatchEndpoint(
	ctx context.Context, by account.Caller, id string, p account.EndpointPatch, facts account.PolicyFacts,
) (*account.Endpoint, error) {
	e, err := s.Store.PatchEndpoint(ctx, by, id, p, facts)
	return e, s.published(ctx, by.AccountID, err, id)
}

// DeleteBackend implements account.Backends.
func (s *publishingStore) DeleteBackend(
	ctx context.Context, by account.Caller, kind account.BackendKind, id string,
) error {
	return s.published(ctx, by.AccountID, s.Store.DeleteBackend(ctx, by, kind, id), id)
}

// PatchBackend implements account.Backends.
func (s *publishingStore) PatchBackend(
	ctx context.Context, by account.Caller, kind account.BackendKind, id string, p account.BackendPatch,
) (*account.Backend, error) {
	b, err := s.Store.PatchBackend(ctx, by, kind, id, p)
	return b, s.published(ctx, by.AccountID, err, id)
}

// published makes a write true everywhere, if it was committed, and returns its error. It does so
// even if ctx ends: the client may be gone before the answer.
func (s *publishingStore) published(ctx context.Context, accountID string, err error, ids ...string) error {
	if err == nil {
		s.changes.AccessChanged(context.WithoutCancel(ctx), accountID, ids...)
	}
	return err
}

// accessChanges makes changes of accounts true on this server, and on the other replicas.
type accessChanges struct {
	log      *slog.Logger
	store    *store.Store
	control  *controlServer
	edge     *edgeServer
	replicas *replicas
	tasks    *group
}

// AccessChanged makes a change of the account true on this server, and then on the other replicas.
// What cannot be told to one of them, it finds itself when it compares with the store.
func (a *accessChanges) AccessChanged(ctx context.Context, accountID string, ids ...string) {
	c := peers.Change{Kind: peers.ChangeAccess, AccountID: accountID, IDs: ids}
	if err := a.apply(ctx, c); err != nil {
		a.log.Error("a change of an account could not be applied at once; it is, as soon as the store answers",
			"account", accountID, "err", err)
	}
	a.replicas.publishAccess(ctx, c)
}

// run makes the changes of commands true on this server until ctx is done, and confirms them.
func (a *accessChanges) run(ctx context.Context) {
	failing := false
	for timer.Sleep(ctx, accessChangeInterval) {
		err := a.applyPending(ctx)
		if err == nil && !a.replicas.alone() {
			err = a.replicas.isolation.readAgain(ctx, a.read)
		}
		if err != nil && !failing && ctx.Err() == nil {
			a.log.Error("changes by commands cannot be confirmed", "err", err)
		}
		failing = err != nil
	}
}

func (a *accessChanges) applyPending(ctx context.Context) error {
	pending, err := a.store.PendingAccessChanges(ctx)
	if err != nil {
		return err
	}
	for _, p := range pending {
		c := peers.Change{Kind: peers.ChangeAccess, AccountID: p.AccountID}
		if err := a.apply(ctx, c); err != nil {
			return err
		}
		if public := a.edge.public.server; public != nil {
			public.ForgetAccount(c.AccountID)
		}
		if err := a.store.ConfirmAccessChange(ctx, p.ID); err != nil {
			return err
		}
		// a replica whose store is away does not find it there
		a.tasks.Go(func() { a.replicas.publishAccess(context.WithoutCancel(ctx), c) })
	}
	return nil
}

// apply makes a change of the account true on this server, whichever has written it: sessions and
// watches whose credentials were deleted end, and what begins from now on reads the account's
// endpoints and backends from the store. What a replica could not read there is not served.
func (a *accessChanges) apply(ctx context.Context, c peers.Change) error {
	a.edge.expire(c.AccountID)
	if a.replicas.alone() {
		return a.read(ctx, c)
	}
	return a.replicas.isolation.read(c, func() error { return a.read(ctx, c) })
}

// read compares what is held for the account with the store, and reads the endpoints that a change
// is about, so that they are known if the store is away when they are next asked for.
func (a *accessChanges) read(ctx context.Context, c peers.Change) error {
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	err := errors.Join(a.control.api.EndRevokedWatches(ctx), a.control.sessions.ApplyAccess(ctx, c.AccountID))
	for _, id := range c.IDs {
		if strings.HasPrefix(id, account.PrefixEndpoint+"-") {
			err = errors.Join(err, a.edge.edge.ReadEndpoint(ctx, c.AccountID, id))
		}
	}
	return err
}

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
