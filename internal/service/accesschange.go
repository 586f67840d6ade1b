// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// accessTimeout bounds how long a change waits for this server to compare itself with the store.
const accessTimeout = 5 * time.Second

// accessChangeInterval is how often a server looks for changes of commands that wait for it.
const accessChangeInterval = 500 * time.Millisecond

// publishingStore is the store for the API and the dashboard. What is deleted through it, and the
// rules that are changed through it, are true on all servers when the call returns.
type publishingStore struct {
	*store.Store
	// changed is told of a change: ids are the endpoint or backend that alone it is about.
	changed func(ctx context.Context, accountID string, ids ...string)
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
		s.changed(context.WithoutCancel(ctx), accountID, ids...)
	}
	return err
}

// accessChanged makes a change of the account true on this server, and then on the other replicas.
// What cannot be told to one of them, it finds itself when it compares with the store.
func (s *service) accessChanged(ctx context.Context, accountID string, ids ...string) {
	c := peers.Change{Kind: peers.ChangeAccess, AccountID: accountID, IDs: ids}
	if err := s.applyAccess(ctx, c); err != nil {
		s.log.Error("a change of an account could not be applied at once; it is, as soon as the store answers",
			"account", accountID, "err", err)
	}
	s.publishAccess(ctx, c)
}

func (s *service) publishAccess(ctx context.Context, c peers.Change) {
	if s.replica == nil {
		return
	}
	if err := s.replica.peers.Publish(ctx, c); err != nil {
		s.log.Error("other servers were not told of a change of an account; they find it in the store", "account",
			c.AccountID, "err", err)
	}
}

// applyAccessChanges makes the changes of commands true on this server until ctx is done, and
// confirms them.
func (s *service) applyAccessChanges(ctx context.Context) {
	failing := false
	for timer.Sleep(ctx, accessChangeInterval) {
		err := s.applyPending(ctx)
		if err == nil && s.replica != nil {
			err = s.replica.isolation.readAgain(ctx, s.readAccess)
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("changes by commands cannot be confirmed", "err", err)
		}
		failing = err != nil
	}
}

func (s *service) applyPending(ctx context.Context) error {
	pending, err := s.store.PendingAccessChanges(ctx)
	if err != nil {
		return err
	}
	for _, p := range pending {
		c := peers.Change{Kind: peers.ChangeAccess, AccountID: p.AccountID}
		if err := s.applyAccess(ctx, c); err != nil {
			return err
		}
		if s.public != nil {
			s.public.ForgetAccount(c.AccountID)
		}
		if err := s.store.ConfirmAccessChange(ctx, p.ID); err != nil {
			return err
		}
		// a replica whose store is away does not find it there
		s.tasks.Go(func() { s.publishAccess(context.WithoutCancel(ctx), c) })
	}
	return nil
}

// applyAccess makes a change of the account true on this server, whichever has written it: sessions
// and watches whose credentials were deleted end, and what begins from now on reads the account's
// endpoints and backends from the store. What a replica could not read there is not served.
func (s *service) applyAccess(ctx context.Context, c peers.Change) error {
	s.edge.ExpireAccount(c.AccountID)
	s.backendTrees.expire(c.AccountID)
	s.backends.ExpireAccount(c.AccountID)
	if s.public != nil {
		s.public.ExpireAccount(c.AccountID)
	}
	if s.replica == nil {
		return s.readAccess(ctx, c)
	}
	return s.replica.isolation.read(c, func() error { return s.readAccess(ctx, c) })
}

// readAccess compares what is held for the account with the store, and reads the endpoints that a
// change is about, so that they are known if the store is away when they are next asked for.
func (s *service) readAccess(ctx context.Context, c peers.Change) error {
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	err := errors.Join(s.api.EndRevokedWatches(ctx), s.sessions.ApplyAccess(ctx, c.AccountID))
	for _, id := range c.IDs {
		if strings.HasPrefix(id, account.PrefixEndpoint+"-") {
			err = errors.Join(err, s.edge.ReadEndpoint(ctx, c.AccountID, id))
		}
	}
	return err
}
