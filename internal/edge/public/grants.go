// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// guardEvery keeps the promise that a revoked grant ends what lives on it within a second.
const guardEvery = 500 * time.Millisecond

// host is a host that an account has.
type host struct{ accountID, name string }

// guard knows the requests under way, upgraded connections among them, by host.
type guard struct {
	mu   sync.Mutex
	next uint64
	live map[host]map[uint64]context.CancelFunc
}

// enter makes the request one that a revoked grant ends. The caller calls leave when it has ended.
func (g *guard) enter(r *http.Request, ep *account.Endpoint) (guarded *http.Request, leave func()) {
	ctx, cancel := context.WithCancel(r.Context())
	at := host{ep.AccountID, ep.Host}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		g.live = make(map[host]map[uint64]context.CancelFunc)
	}
	if g.live[at] == nil {
		g.live[at] = make(map[uint64]context.CancelFunc)
	}
	g.next++
	id := g.next
	g.live[at][id] = cancel
	return r.WithContext(ctx), func() {
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.live[at], id); len(g.live[at]) == 0 {
			delete(g.live, at)
		}
	}
}

// hosts returns the hosts with requests under way, by account.
func (g *guard) hosts() map[string][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all map[string][]string
	for at := range g.live {
		if all == nil {
			all = make(map[string][]string)
		}
		all[at.accountID] = append(all[at.accountID], at.name)
	}
	return all
}

// end ends the requests to a host.
func (g *guard) end(at host) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cancel := range g.live[at] {
		cancel()
	}
}

// keepGrants ends requests to hosts that their accounts have no more, until ctx is done. When the
// store does not answer, they live on.
func (e *Server) keepGrants(ctx context.Context) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.stopped:
			return
		case <-tick.C:
		}
		for accountID, names := range e.guard.hosts() {
			granted, err := e.opt.GrantedHosts(ctx, accountID, names)
			if err != nil {
				e.log.Debug("grants of domains could not be read", "account", accountID, "err", err)
				continue
			}
			for _, name := range names {
				if !granted[name] {
					e.log.Info("requests ended: the domain is no longer granted", "account", accountID, "host", name)
					e.guard.end(host{accountID, name})
				}
			}
		}
	}
}
