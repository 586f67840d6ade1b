// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// endpointStore reads one endpoint, or fails.
type endpointStore struct {
	Store
	stored account.Endpoint
	err    error
}

func (s *endpointStore) Endpoint(_ context.Context, accountID, id string) (*account.Endpoint, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case accountID != s.stored.AccountID || id != s.stored.ID:
		return nil, account.Errorf(account.CodeNotFound, "there is no endpoint %s", id)
	}
	ep := s.stored
	return &ep, nil
}

// hold adds a member as a bind of the account does.
func hold(s *Server, accountID, binding, id, host string) *Member {
	ep := account.Endpoint{ID: id, AccountID: accountID, Bindings: []string{binding}, Scheme: "http", Host: host,
		Port: 80, TrafficPolicy: "policy of " + id}
	s.members.add(&session{accountID: accountID}, &account.BindResult{Endpoint: ep}, "", time.Now())
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return s.members.endpoints[id]
}

// TestStream_FindsEndpointsDuringOutage checks which endpoint a forwarder's stream gets while the
// store is away: the one that it names, from memory or as it was last read, or else one of its pool
// that is bound here; never one of another account, and none that was deleted before.
func TestStream_FindsEndpointsDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := account.Errorf(account.CodeUnavailable, "no store")
		store := &endpointStore{stored: account.Endpoint{ID: "ep-warm", AccountID: "a", Type: account.TypeCloud}}
		s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Store: store, Logger: slog.New(slog.DiscardHandler)})
		hold(s, "a", account.BindingKubernetes, "ep-bound", "bound.demo")
		hold(s, "a", account.BindingClusterset, "ep-exported", "bound.demo.cluster")
		hold(s, "b", account.BindingKubernetes, "ep-other", "other.demo")
		expect := func(id, host, want string, code account.Code) {
			t.Helper()
			began := time.Now()
			ep, err := s.streams.endpoint(t.Context(), "a",
				tunnel.OpenHeader{EndpointID: id, Scheme: "http", Host: host, Port: 80})
			if err == nil && ep.ID != want || account.CodeOf(err) != code {
				t.Errorf("%s at %s: %+v %v, want %q %s", id, host, ep, err, want, code)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: took %v", id, took)
			}
		}
		expect("ep-warm", "warm.demo", "ep-warm", "")
		store.err = away
		for range 5 {
			time.Sleep(time.Minute)
			expect("ep-warm", "warm.demo", "ep-warm", "")
			expect("ep-bound", "bound.demo", "ep-bound", "")
			expect("ep-cold", "bound.demo", "ep-bound", "")
			expect("ep-cold", "bound.demo.cluster", "ep-exported", "")
			expect("ep-cold", "cold.demo", "", account.CodeUnavailable)
			expect("ep-other", "other.demo", "", account.CodeUnavailable)
		}
		store.err, store.stored.ID = nil, "ep-gone"
		time.Sleep(time.Second)
		_, err := s.streams.endpoint(t.Context(), "a", tunnel.OpenHeader{EndpointID: "ep-warm"})
		if account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("a deleted endpoint: %v", err)
		}
		store.err = away
		expect("ep-warm", "warm.demo", "", account.CodeUnavailable)
	})
}

// TestOnlinePublic_ReturnsLastBind checks that memory answers for the public binding only, with the
// policy of the bind, and that of two accounts the one that bound last has the host.
func TestOnlinePublic_ReturnsLastBind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler)})
		expect := func(want string, since time.Time) {
			t.Helper()
			ep, at := s.OnlinePublic("app.test", 80)
			switch {
			case want == "" && ep == nil:
			case ep == nil || ep.ID != want || ep.TrafficPolicy != "policy of "+want || !at.Equal(since):
				t.Errorf("%+v since %v, want %s since %v", ep, at, want, since)
			}
		}
		hold(s, "a", account.BindingKubernetes, "ep-pods", "app.test")
		expect("", time.Time{})
		former, first := hold(s, "a", account.BindingPublic, "ep-former", "app.test"), time.Now()
		expect("ep-former", first)
		time.Sleep(time.Second)
		latter := hold(s, "b", account.BindingPublic, "ep-latter", "app.test")
		expect("ep-latter", time.Now())
		s.members.remove(latter.session, "ep-latter")
		expect("ep-former", first)
		s.members.remove(former.session, "ep-former")
		expect("", time.Time{})
		if len(s.public) != 0 {
			t.Errorf("kept: %v", s.public)
		}
	})
}
