// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// lossyStore commits the first bind and loses the answer, as a database does whose connection
// breaks at the commit.
type lossyStore struct {
	Store
	lost bool
}

func (s *lossyStore) Bind(ctx context.Context, r account.BindRequest) (*account.BindResult, error) {
	result, err := s.Store.Bind(ctx, r)
	if err == nil && !s.lost {
		s.lost = true
		return nil, account.Errorf(account.CodeUnavailable, "the store is not available; try again")
	}
	return result, err
}

// TestBind_RepeatsAfterLostAnswer holds that a session may bind again what the store gave it
// without its knowledge, and that a second endpoint of the session with the same URL is refused.
func TestBind_RepeatsAfterLostAnswer(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	l.binder.store = &lossyStore{Store: l.store}
	a := l.agent()
	bind := tunnel.Bind{URL: "tcp://db.demo:5432", UpstreamURL: "tcp://localhost:1", Name: "db"}
	var refused *tunnel.Error
	if _, err := a.Bind(t.Context(), bind); !errors.As(err, &refused) || refused.Code != tunnel.CodeUnavailable {
		t.Fatalf("the bind whose answer is lost: %v, want %s", err, tunnel.CodeUnavailable)
	}
	bound, err := a.Bind(t.Context(), bind)
	if err != nil {
		t.Fatalf("the same bind again: %v", err)
	}
	if _, err := a.Bind(t.Context(), bind); !errors.As(err, &refused) || refused.Code != tunnel.CodeURLTaken {
		t.Errorf("another endpoint of the session with the same URL: %v, want %s", err, tunnel.CodeURLTaken)
	}
	bind.ResumeSecret = bound.ResumeSecret
	if _, err := a.Bind(t.Context(), bind); err != nil {
		t.Errorf("with the resume secret: %v", err)
	}
}

// TestBind_AcceptsRepetition holds that a bind which an agent sends again, over another connection
// with the same server, gets what it has got, and that another bind of the same is refused or starts
// another tunnel.
func TestBind_AcceptsRepetition(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	a := l.agent()
	far := l.session(a.ID()).tun
	bind := func(b tunnel.Bind, id string) (tunnel.Bound, error) {
		t.Helper()
		b.UpstreamURL, b.BindID = "tcp://localhost:1", id
		return l.Bind(t.Context(), far, b)
	}
	first, second := rand.Text(), rand.Text()
	for name, b := range map[string]tunnel.Bind{
		"endpoint":        {URL: "tcp://db.demo:5432", Name: "db"},
		"labelled tunnel": {Labels: map[string]string{"app": "api"}},
	} {
		bound, err := bind(b, first)
		must.Succeed(t, err)
		again, err := bind(b, first)
		if err != nil || again.EndpointID != bound.EndpointID {
			t.Errorf("%s: sent again: %+v, %v, want %+v", name, again, err, bound)
		}
		if other, err := bind(b, second); err == nil && (b.URL != "" || other.EndpointID == bound.EndpointID) {
			t.Errorf("%s: another bind got the same", name)
		}
	}
	if n := len(l.listed()); n != 2 {
		t.Errorf("%d labelled tunnels, want 2", n)
	}
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	if n := len(l.tunnels[l.accountID]); n != 2 {
		t.Errorf("%d members of labelled tunnels, want 2", n)
	}
}
