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

// shares lets the members of a pool of cloud endpoints take turns. They are always online, and
// nothing is held by one of them, so that turns are as good as a count of what each has open.
type shares struct {
	list func(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error)

	mu  sync.Mutex
	all map[shareKey]*share
}

// shareKey is what the members of a pool share.
type shareKey struct{ accountID, binding, url string }

// share is a pool as it was listed last, guarded by shares.mu.
type share struct {
	members []member
	turn    int
	at      time.Time
	reading bool
}

type member struct{ id, backendID string }

// next returns the pool's members in the order in which they are to be tried; none where the pool
// is not known, or nobody pools.
func (s *shares) next(ctx context.Context, ep *account.Endpoint) []member {
	if s.list == nil || ep.Type != account.TypeCloud || !ep.PoolingEnabled {
		return nil
	}
	key := shareKey{ep.AccountID, ep.Bindings[0], ep.URL}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[key]
	if p == nil {
		if len(s.all) >= maxCurrent {
			clear(s.all)
		}
		p = &share{}
		s.all[key] = p
	}
	if !p.reading && time.Since(p.at) >= currentAge {
		s.read(ctx, p, ep)
	}
	if len(p.members) == 0 {
		return nil
	}
	first := p.turn % len(p.members)
	p.turn = first + 1
	return slices.Concat(p.members[first:], p.members[:first])
}

// read lists the pool anew. Others use what is known meanwhile, and for longer if the store does
// not answer. The caller holds mu.
func (s *shares) read(ctx context.Context, p *share, ep *account.Endpoint) {
	p.reading = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), currentRead)
	defer cancel()
	list, err := s.list(ctx, ep)
	s.mu.Lock()
	p.reading, p.at = false, time.Now()
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

// backends returns what the other members of the endpoint's pool answer by, in the order in which
// they follow it.
func (s *shares) backends(ep *account.Endpoint) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[shareKey{ep.AccountID, ep.Bindings[0], ep.URL}]
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

// turns goes through the backend of one member of a pool, and then through those of the others.
type turns struct {
	Attempts
	others []string
	begin  func(ctx context.Context, backendID string) (Attempts, error)
}

// Next returns the next leaf.
func (t *turns) Next(ctx context.Context) (Attempt, bool) {
	for {
		leaf, ok := t.Attempts.Next(ctx)
		if ok || len(t.others) == 0 {
			return leaf, ok
		}
		next, err := t.begin(ctx, t.others[0])
		t.others = t.others[1:]
		if err == nil { // else it was deleted just now, or the store is away
			t.Attempts = next
		}
	}
}
