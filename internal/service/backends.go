// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/storecache"
)

const (
	maxCachedTrees       = 4096 // for outages of the store
	maxQueuedSwitches    = 256  // that wait to be written
	backendSwitchTimeout = 5 * time.Second
	// backendEvictInterval is how often a replica looks for failovers that it has not used lately.
	backendEvictInterval = time.Minute
)

// backends are what cloud endpoints answer through: their trees, which child of each serves, and the
// guard before static addresses.
type backends struct {
	log      *slog.Logger
	targets  *targets
	guard    *backend.Guard
	trees    *storecache.Cache[treeKey, *account.BackendTree] // asks the store, and uses its answers in outages
	resolver *backend.Resolver
	switches chan account.ActiveChildChange
}

// treeKey is the root of a tree.
type treeKey struct{ accountID, id string }

func newBackends(set *settings, t *targets) *backends {
	b := &backends{log: set.Logger, targets: t, guard: &backend.Guard{Allow: set.staticAllow},
		switches: make(chan account.ActiveChildChange, maxQueuedSwitches)}
	b.trees = storecache.New(storecache.Options[treeKey, *account.BackendTree]{MaxEntries: maxCachedTrees,
		Read: func(ctx context.Context, key treeKey) (*account.BackendTree, error) {
			return t.store.BackendTree(ctx, key.accountID, key.id)
		}})
	b.resolver = backend.New(b)
	return b
}

// Subscribe implements backend.Source.
func (b *backends) Subscribe(accountID string) (<-chan struct{}, func()) {
	return b.targets.store.Subscribe(accountID)
}

// TunnelOnline implements backend.Source: the tunnel may be online here or with another replica.
func (b *backends) TunnelOnline(accountID string, labels map[string]string) bool {
	to := tunnelserver.TunnelGroup(accountID, labels)
	if b.targets.sessions.IsOnline(to) {
		return true
	}
	if b.targets.replicas.alone() {
		return false
	}
	m, err := b.targets.replicas.peers.Choose(context.Background(), to.Query, nil)
	if err != nil {
		return false
	}
	m.Release()
	return true
}

// BackendTree implements backend.Source.
func (b *backends) BackendTree(ctx context.Context, accountID, id string) (*account.BackendTree, error) {
	return b.trees.Get(ctx, treeKey{accountID, id})
}

// expire makes the next use of each of the account's backends ask the store.
func (b *backends) expire(accountID string) {
	b.trees.Expire(func(key treeKey, _ *account.BackendTree) bool { return key.accountID == accountID })
	b.resolver.ExpireAccount(accountID)
}

// ActiveChanged implements backend.Source: it queues the change for the store. A server that is alone
// keeps switches only.
func (b *backends) ActiveChanged(c account.ActiveChildChange) {
	isSwitch := c.From != nil && c.To != nil
	if isSwitch {
		b.log.Info("backend switched", "backend", c.BackendID, "from", *c.From, "to", *c.To, "account", c.AccountID)
	} else if b.targets.replicas.alone() {
		return
	}
	select {
	case b.switches <- c:
	default:
		if isSwitch {
			b.log.Warn("the events of backends come faster than the store takes them; one is only in this log",
				"backend", c.BackendID)
		}
	}
}

// run writes the changes of active children until ctx is done.
func (b *backends) run(ctx context.Context) {
	evict := time.NewTicker(backendEvictInterval)
	defer evict.Stop()
	if b.targets.replicas.alone() {
		evict.Stop() // the next connection does it
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-evict.C:
			b.resolver.EvictIdle()
		case c := <-b.switches:
			b.recordSwitch(ctx, c)
		}
	}
}

func (b *backends) recordSwitch(ctx context.Context, c account.ActiveChildChange) {
	ctx, cancel := context.WithTimeout(ctx, backendSwitchTimeout)
	defer cancel()
	if err := b.targets.store.RecordActiveChild(ctx, c); err != nil {
		b.log.Error("the event of a backend could not be written", "backend", c.BackendID, "err", err)
	}
}

// ActiveChild implements httpkit.Backends.
func (b *backends) ActiveChild(accountID, id string) string { return b.resolver.Active(accountID, id) }

// CheckStaticAddress returns CodeInvalid for the address of a static backend that the guard would
// refuse whenever it is dialed.
func (b *backends) CheckStaticAddress(address string) error {
	err := b.guard.CheckAddress(address)
	if err == nil {
		return nil
	}
	_, why, _ := strings.Cut(err.Error(), ": ")
	return account.Invalid("address", address, "the server does not connect there: "+why+", a flag of fairlead-server")
}

// Attempts implements edge.Backends.
func (b *backends) Attempts(
	ctx context.Context, accountID, id string, o *edge.ClientInfo,
) (edge.Attempts, error) {
	a, err := b.resolver.Attempts(ctx, accountID, id, backend.Client{Addr: o.ClientIP, OwnPod: o.OperatorID != ""})
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
