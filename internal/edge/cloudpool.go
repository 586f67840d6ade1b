// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/storecache"
)

// poolMembers lets the members of a pool of cloud endpoints serve in turn. They are always online
// and hold no connections, so round robin balances as well as a count of connections.
type poolMembers struct {
	lists *storecache.Cache[poolKey, []member] // nil = there are no pools

	mu    sync.Mutex
	turns map[poolKey]int // turn of the next request, by pool
}

// poolKey identifies a pool.
type poolKey struct{ accountID, binding, url, scheme string }

func poolKeyOf(ep *account.Endpoint) poolKey {
	return poolKey{ep.AccountID, ep.Bindings[0], ep.URL, ep.Scheme}
}

type member struct{ id, backendID string }

// newPoolMembers makes the poolMembers of Options.Endpoints.
func newPoolMembers(source Endpoints) *poolMembers {
	s := &poolMembers{turns: make(map[poolKey]int)}
	if source == nil {
		return s
	}
	s.lists = storecache.New(storecache.Options[poolKey, []member]{
		TTL: endpointTTL, MaxEntries: maxCachedEndpoints,
		Read: func(ctx context.Context, key poolKey) ([]member, error) {
			all, err := source.ListPool(ctx, &account.Endpoint{AccountID: key.accountID,
				Bindings: []string{key.binding}, URL: key.url, Scheme: key.scheme})
			return cloudMembers(all, key.scheme), err
		},
	})
	return s
}

// cloudMembers returns the endpoints of the list that take turns, sorted by id.
func cloudMembers(all []account.Endpoint, scheme string) []member {
	var members []member
	for i := range all {
		if e := &all[i]; e.Type == account.TypeCloud && e.PoolingEnabled && e.Scheme == scheme {
			members = append(members, member{e.ID, e.BackendID})
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	return members
}

// ordered returns the pool's members in the order in which they are to be tried; none where the
// endpoint does not pool or the pool is not known.
func (s *poolMembers) ordered(ctx context.Context, ep *account.Endpoint) []member {
	if s.lists == nil || ep.Type != account.TypeCloud || !ep.PoolingEnabled {
		return nil
	}
	key := poolKeyOf(ep)
	members, err := s.lists.GetOr(ctx, key, nil)
	if err != nil || len(members) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) >= maxCachedEndpoints {
		clear(s.turns)
	}
	first := s.turns[key] % len(members)
	s.turns[key] = first + 1
	return slices.Concat(members[first:], members[:first])
}

// expire makes the next use of each pool of the account read it.
func (s *poolMembers) expire(accountID string) {
	if s.lists != nil {
		s.lists.Expire(func(key poolKey, _ []member) bool { return key.accountID == accountID })
	}
}

// otherBackends returns the backends of the other members of the endpoint's pool, in the order in
// which they follow it.
func (s *poolMembers) otherBackends(ep *account.Endpoint) []string {
	if s.lists == nil || !ep.PoolingEnabled {
		return nil
	}
	members, _ := s.lists.Last(poolKeyOf(ep))
	own := slices.IndexFunc(members, func(m member) bool { return m.id == ep.ID })
	var ids []string
	for i := range members {
		id := members[(own+1+i)%len(members)].backendID
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
	backends     Backends
	accountID    string
	info         *ClientInfo
}

// Next returns the next leaf.
func (c *chainedAttempts) Next(ctx context.Context) (Attempt, bool) {
	for {
		leaf, ok := c.Attempts.Next(ctx)
		if ok || len(c.nextBackends) == 0 {
			return leaf, ok
		}
		next, err := c.backends.Attempts(ctx, c.accountID, c.nextBackends[0], c.info)
		c.nextBackends = c.nextBackends[1:]
		if err == nil { // else it was deleted just now, or the store does not answer
			c.Attempts = next
		}
	}
}
