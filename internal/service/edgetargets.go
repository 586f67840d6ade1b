// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/storecache"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// chooseAgent returns an agent that serves the endpoint, none of those in tried: one with a session
// here, or else with another replica.
func (s *service) chooseAgent(ctx context.Context, ep *account.Endpoint, tried []edge.Agent) (edge.Agent, error) {
	members := asMembers(tried)
	return s.chooseHereFirst(ctx, queryOf(ep), tried,
		func() (*tunnelserver.Member, error) { return s.sessions.ChooseNow(ep, members...) },
		func() (*tunnelserver.Member, error) { return s.sessions.Choose(ctx, ep, members...) })
}

// chooseHereFirst chooses one of the members here by now, which does not wait, then one with
// another replica, then one here by choose, which may wait for one. It waits for an agent with
// another replica that has just become unresponsive, unless an agent was tried.
func (s *service) chooseHereFirst(
	ctx context.Context, q peers.Query, tried []edge.Agent, now, choose func() (*tunnelserver.Member, error),
) (edge.Agent, error) {
	var remote error
	if s.replica != nil {
		if h, err := now(); err == nil {
			return h, nil
		}
		m, err := s.replica.choose(ctx, q, tried)
		if err == nil {
			return m, nil
		}
		remote = err
	}
	h, err := choose()
	switch {
	case err == nil:
		return h, nil
	case !errors.Is(remote, tunnel.ErrUnresponsive) || account.CodeOf(err) != account.CodeEndpointOffline:
		return nil, err // not h: a nil *Member is no nil Agent
	case len(tried) > 0:
		return nil, remote
	}
	m, err := s.replica.peers.ChooseWaiting(ctx, q)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func asMembers(agents []edge.Agent) []*tunnelserver.Member {
	var all []*tunnelserver.Member
	for _, a := range agents {
		if h, ok := a.(*tunnelserver.Member); ok {
			all = append(all, h)
		}
	}
	return all
}

// chooseTunnel returns an agent of the tunnel group, none of those in tried.
func (s *service) chooseTunnel(
	ctx context.Context, accountID string, labels map[string]string, tried []edge.Agent,
) (edge.Agent, error) {
	members := asMembers(tried)
	return s.chooseHereFirst(ctx, peers.Query{AccountID: accountID, Labels: labels}, tried,
		func() (*tunnelserver.Member, error) { return s.sessions.ChooseLabelsNow(accountID, labels, members...) },
		func() (*tunnelserver.Member, error) {
			return s.sessions.ChooseLabels(ctx, accountID, labels, members...)
		})
}

// internalEndpoint returns the internal endpoint with the URL. It asks the store only if none is
// online.
func (s *service) internalEndpoint(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	u, err := account.ParseBindingURL(account.BindingInternal, url)
	if err != nil {
		return nil, account.Errorf(account.CodeNotFound, "%s is the URL of no internal endpoint", url)
	}
	if ep := s.sessions.Online(accountID, account.BindingInternal, u); ep != nil {
		return ep, nil
	}
	page, err := s.store.ListEndpoints(ctx, accountID,
		account.EndpointFilter{Bindings: []string{account.BindingInternal}, URL: u.String()}, account.Page{Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(page.Endpoints) == 0:
		return nil, account.Errorf(account.CodeNotFound, "no internal endpoint has the URL %s", url)
	}
	return s.store.Endpoint(ctx, accountID, page.Endpoints[0].ID) // a list has no policies
}

// publicEndpoint returns the endpoint of the public binding at host and port. While the store is
// away, it is one that an agent with another replica has bound, unless there is one here, which
// public.Options.HeldEndpoint returns.
func (s *service) publicEndpoint(ctx context.Context, host string, port int) (*account.Endpoint, error) {
	ep, away := s.store.PublicEndpoint(ctx, host, port)
	if s.replica == nil || account.CodeOf(away) != account.CodeUnavailable {
		return ep, away
	}
	if held, _ := s.sessions.OnlinePublic(host, port); held != nil {
		return nil, away
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPeersTimeout)
	defer cancel()
	m, err := s.replica.peers.Choose(ctx, peers.Query{Binding: account.BindingPublic, Host: host, Port: port}, nil)
	if err != nil {
		return nil, away
	}
	defer m.Release()
	return m.Endpoint(), nil
}

// askPeersTimeout bounds how long the other replicas are asked for what the store does not answer.
const askPeersTimeout = 2 * time.Second

// listPool returns the endpoints that have the endpoint's URL.
func (s *service) listPool(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error) {
	page, err := s.store.ListEndpoints(ctx, ep.AccountID, account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	return page.Endpoints, nil
}

// wireBackends constructs the resolver of backends and the guard of static addresses.
func (s *service) wireBackends() {
	s.staticGuard = &backend.Guard{Allow: s.staticAllow}
	s.backendSwitches = make(chan account.ActiveChildChange, maxQueuedSwitches)
	s.backendTrees = newTreeCache(s.store)
	s.backends = backend.New(backend.Options{
		Trees: s.backendTrees, WatchBackends: s.store.Subscribe, OnActiveChange: s.enqueueSwitch,
		TunnelOnline: s.tunnelOnline,
	})
	s.onClose(s.backends.Close)
	s.watchBackends()
}

// tunnelOnline reports whether a labelled tunnel with all these labels is online, here or with
// another replica.
func (s *service) tunnelOnline(accountID string, labels map[string]string) bool {
	if s.sessions.OnlineLabels(accountID, labels) {
		return true
	}
	if s.replica == nil {
		return false
	}
	m, err := s.replica.choose(context.Background(), peers.Query{AccountID: accountID, Labels: labels}, nil)
	if err != nil {
		return false
	}
	m.Release()
	return true
}

// maxCachedTrees bounds the backends that are kept for outages of the store.
const maxCachedTrees = 4096

// treeCache asks the store for each tree of backends, and uses its answers during outages.
type treeCache struct {
	trees *storecache.Cache[treeKey, *account.BackendTree]
}

// treeKey is the root of a tree.
type treeKey struct{ accountID, id string }

func newTreeCache(trees account.BackendTrees) treeCache {
	return treeCache{storecache.New(storecache.Options[treeKey, *account.BackendTree]{
		Read: func(ctx context.Context, key treeKey) (*account.BackendTree, error) {
			return trees.BackendTree(ctx, key.accountID, key.id)
		},
		MaxEntries: maxCachedTrees,
	})}
}

// BackendTree implements account.BackendTrees.
func (c treeCache) BackendTree(ctx context.Context, accountID, id string) (*account.BackendTree, error) {
	return c.trees.Get(ctx, treeKey{accountID, id})
}

// expire makes the next read of each of the account's trees ask the store.
func (c treeCache) expire(accountID string) {
	c.trees.Expire(func(key treeKey, _ *account.BackendTree) bool { return key.accountID == accountID })
}

// checkStaticAddress returns CodeInvalid for the address of a static backend that the guard would
// refuse whenever it is dialed.
func (s *service) checkStaticAddress(address string) error {
	err := s.staticGuard.CheckAddress(address)
	if err == nil {
		return nil
	}
	_, why, _ := strings.Cut(err.Error(), ": ")
	return account.Invalid("address", address, "the server does not connect there: "+why+", a flag of fairlead-server")
}

// backendAttempts returns the leaves of a backend that a connection or request may try.
func (s *service) backendAttempts(
	ctx context.Context, accountID, id string, o *edge.ClientInfo,
) (edge.Attempts, error) {
	a, err := s.backends.Attempts(ctx, accountID, id, backend.Client{Addr: o.ClientIP, OwnPod: o.OperatorID != ""})
	if err != nil {
		return nil, err
	}
	return edgeAttempts{a}, nil
}

// edgeAttempts adapts backend.Attempts to edge.Attempts.
type edgeAttempts struct{ *backend.Attempts }

// Next returns the next leaf.
func (a edgeAttempts) Next(ctx context.Context) (edge.Attempt, bool) {
	t, ok := a.Attempts.Next(ctx)
	if !ok {
		return edge.Attempt{}, false
	}
	return edge.Attempt{BackendID: t.BackendID, Labels: t.Labels, Static: t.Static, Response: t.Response, Outcome: t},
		true
}
