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

// grantCheckInterval is how often grants are checked: requests to a host end within a second after
// its grant is revoked.
const grantCheckInterval = 500 * time.Millisecond

// accountHost is a host of an account.
type accountHost struct{ accountID, name string }

// activeRequests tracks the requests in progress by host, upgraded connections included.
type activeRequests struct {
	mu     sync.Mutex
	next   uint64
	byHost map[accountHost]map[uint64]context.CancelFunc
}

// add tracks the request, which cancel then ends. The caller calls remove when the request has
// ended.
func (a *activeRequests) add(r *http.Request, ep *account.Endpoint) (tracked *http.Request, remove func()) {
	ctx, cancel := context.WithCancel(r.Context())
	at := accountHost{ep.AccountID, ep.Host}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byHost == nil {
		a.byHost = make(map[accountHost]map[uint64]context.CancelFunc)
	}
	if a.byHost[at] == nil {
		a.byHost[at] = make(map[uint64]context.CancelFunc)
	}
	a.next++
	id := a.next
	a.byHost[at][id] = cancel
	return r.WithContext(ctx), func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.byHost[at], id); len(a.byHost[at]) == 0 {
			delete(a.byHost, at)
		}
	}
}

// hosts returns the hosts with requests in progress, by account.
func (a *activeRequests) hosts() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all map[string][]string
	for at := range a.byHost {
		if all == nil {
			all = make(map[string][]string)
		}
		all[at.accountID] = append(all[at.accountID], at.name)
	}
	return all
}

// cancel ends the requests to a host.
func (a *activeRequests) cancel(at accountHost) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.byHost[at] {
		cancel()
	}
}

// endRevoked ends requests to hosts that their accounts no longer have, until ctx is done. It ends
// none while the store does not answer.
func (s *Server) endRevoked(ctx context.Context) {
	tick := time.NewTicker(grantCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stopped:
			return
		case <-tick.C:
		}
		for accountID, names := range s.grants.hosts() {
			granted, err := s.opt.Endpoints.GrantedHosts(ctx, accountID, names)
			if err != nil {
				s.log.Debug("grants of domains could not be read", "account", accountID, "err", err)
				continue
			}
			for _, name := range names {
				if !granted[name] {
					s.log.Info("requests ended: the domain is no longer granted", "account", accountID, "host", name)
					s.grants.cancel(accountHost{accountID, name})
				}
			}
		}
	}
}
