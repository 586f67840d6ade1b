// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// poolMembers lets the members of a pool of cloud endpoints serve in turn. They are always online
// and hold no connections, so round robin balances as well as a count of connections.
type poolMembers struct {
	list func(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error)

	mu    sync.Mutex
	pools map[poolKey]*memberList
}

// poolKey identifies a pool.
type poolKey struct{ accountID, binding, url string }

// memberList is a pool as it was last listed, guarded by poolMembers.mu.
type memberList struct {
	members []member
	next    int // index of the member whose turn it is
	readAt  time.Time
	reading bool
}

type member struct{ id, backendID string }

// ordered returns the pool's members in the order in which they are to be tried; none where the
// endpoint does not pool or the pool is not known.
func (s *poolMembers) ordered(ctx context.Context, ep *account.Endpoint) []member {
	if s.list == nil || ep.Type != account.TypeCloud || !ep.PoolingEnabled {
		return nil
	}
	key := poolKey{ep.AccountID, ep.Bindings[0], ep.URL}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[key]
	if p == nil {
		if len(s.pools) >= maxCachedEndpoints {
			clear(s.pools)
		}
		p = &memberList{}
		s.pools[key] = p
	}
	if !p.reading && time.Since(p.readAt) >= endpointTTL {
		s.refreshLocked(ctx, p, ep)
	}
	if len(p.members) == 0 {
		return nil
	}
	first := p.next % len(p.members)
	p.next = first + 1
	return slices.Concat(p.members[first:], p.members[:first])
}

// refreshLocked lists the pool again. Meanwhile, and when the store does not answer, others use the
// last list. mu must be held; it is released during the read.
func (s *poolMembers) refreshLocked(ctx context.Context, p *memberList, ep *account.Endpoint) {
	p.reading = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endpointReadTimeout)
	defer cancel()
	list, err := s.list(ctx, ep)
	s.mu.Lock()
	p.reading, p.readAt = false, time.Now()
	if err != nil {
		return
	}
	p.members = nil
	for _, e := range list {
		if e.Type == account.TypeCloud && e.PoolingEnabled && e.Scheme == ep.Scheme {
			p.members = append(p.members, member{e.ID, e.BackendID})
		}
	}
	slices.SortFunc(p.members, func(a, b member) int { return cmp.Compare(a.id, b.id) })
}

// otherBackends returns the backends of the other members of the endpoint's pool, in the order in
// which they follow it.
func (s *poolMembers) otherBackends(ep *account.Endpoint) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[poolKey{ep.AccountID, ep.Bindings[0], ep.URL}]
	if p == nil || !ep.PoolingEnabled {
		return nil
	}
	own := slices.IndexFunc(p.members, func(m member) bool { return m.id == ep.ID })
	var ids []string
	for i := range p.members {
		id := p.members[(own+1+i)%len(p.members)].backendID
		if id != "" && id != ep.BackendID && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// chainedAttempts yields the leaves of one backend, then those of nextBackends.
type chainedAttempts struct {
	Attempts
	nextBackends []string
	begin        func(ctx context.Context, backendID string) (Attempts, error)
}

// Next returns the next leaf.
func (c *chainedAttempts) Next(ctx context.Context) (Attempt, bool) {
	for {
		leaf, ok := c.Attempts.Next(ctx)
		if ok || len(c.nextBackends) == 0 {
			return leaf, ok
		}
		next, err := c.begin(ctx, c.nextBackends[0])
		c.nextBackends = c.nextBackends[1:]
		if err == nil { // else it was deleted just now, or the store does not answer
			c.Attempts = next
		}
	}
}
