// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestChoose_WaitsForReconnectingAgents requires that Choose waits only for agents that a
// restart of this server disconnected, and only for a limited time after the restart.
func TestChoose_WaitsForReconnectingAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost  time.Duration // before the start; 0 = online: the bind is committed, its member is not there yet
		after time.Duration // since the start
		want  time.Duration
	}{
		"lost when the last life was killed": {lost: time.Microsecond, want: maxReconnectWait},
		"lost at an orderly stop": {lost: 5 * time.Second, after: 2 * time.Second,
			want: maxReconnectWait},
		"when most are back":                        {lost: time.Second, after: 11 * time.Second, want: time.Second},
		"when all are back":                         {lost: time.Second, after: 12 * time.Second},
		"offline long before":                       {lost: 2 * time.Minute},
		"lost while this server runs":               {lost: -time.Second, after: 2 * time.Second},
		"about to be back":                          {want: maxReconnectWait},
		"bound when all are back":                   {after: 12 * time.Second},
		"lost while this server runs, in the start": {lost: -time.Microsecond, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler)})
				ep := &account.Endpoint{ID: "ep-1", Bindings: []string{account.BindingKubernetes}}
				if at := s.started.Add(-c.lost); c.lost != 0 {
					ep.OfflineSince = &at
				} else {
					ep.Status = account.StatusOnline
				}
				time.Sleep(c.after) // fake time of synctest
				asked := time.Now()
				_, err := s.Choose(t.Context(), URLOf(ep))
				if account.CodeOf(err) != account.CodeEndpointOffline {
					t.Errorf("error %v", err)
				}
				if waited := time.Since(asked); waited != c.want {
					t.Errorf("waited %v, want %v", waited, c.want)
				}
			})
		})
	}
}

func TestChoose_EndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler)})
		ep := &account.Endpoint{ID: "ep-1", Bindings: []string{account.BindingKubernetes}, OfflineSince: &s.started}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := time.Now()
		if _, err := s.Choose(ctx, URLOf(ep)); err == nil || time.Since(asked) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(asked))
		}
	})
}

// poolLister lists the members of a pool.
type poolLister struct {
	Store
	filter account.EndpointFilter
	all    []account.Endpoint
	err    error
}

func (p *poolLister) ListEndpoints(
	_ context.Context, _ string, f account.EndpointFilter, _ account.Page,
) (*account.EndpointPage, error) {
	p.filter = f
	return &account.EndpointPage{Endpoints: p.all}, p.err
}

// TestChoose_WaitsForMemberThatSeals holds that a sealed connection that members are of no use for waits for
// one that seals and was lost by the restart, and no other does.
func TestChoose_WaitsForMemberThatSeals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seals bool // the connection
		key   string
		tried string
		want  time.Duration
	}{
		"it seals":           {seals: true, key: "k", tried: "ep-1", want: maxReconnectWait},
		"it does not":        {seals: true, tried: "ep-1"},
		"it was tried":       {seals: true, key: "k", tried: "ep-2"},
		"a plain connection": {key: "k", tried: "ep-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool := &poolLister{}
				s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Store: pool, Logger: slog.New(slog.DiscardHandler)})
				lost := s.started.Add(-time.Second)
				named := account.Endpoint{ID: "ep-1", URL: "http://a.b", Bindings: []string{account.BindingKubernetes},
					EndpointSettings: account.EndpointSettings{PoolingEnabled: true}, Status: account.StatusOnline}
				other := account.Endpoint{ID: "ep-2", OfflineSince: &lost}
				other.SealKey = c.key
				pool.all = []account.Endpoint{named, other}
				tried := &Member{endpoint: account.Endpoint{ID: c.tried}}
				to := URLOf(&named)
				to.Seals = c.seals
				asked := time.Now()
				if _, err := s.Choose(t.Context(), to, tried); account.CodeOf(err) != account.CodeEndpointOffline {
					t.Errorf("error %v", err)
				}
				if waited := time.Since(asked); waited != c.want {
					t.Errorf("waited %v, want %v", waited, c.want)
				}
			})
		})
	}
}

// TestChoose_WaitsForAnyPoolMember names an endpoint that was lost before the restart: Choose
// waits while other members of its pool reconnect.
func TestChoose_WaitsForAnyPoolMember(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other   time.Duration // before the start: when the other member was lost
		pooling bool
		err     error
		want    time.Duration
	}{
		"another was lost by the restart": {other: time.Second, pooling: true, want: maxReconnectWait},
		"another died long before, too":   {other: time.Hour, pooling: true},
		"another is lost while we run":    {other: -time.Microsecond, pooling: true},
		"no pool":                         {other: time.Second},
		"the store does not answer": {other: time.Second, pooling: true,
			err: account.Errorf(account.CodeUnavailable, "no")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool := &poolLister{err: c.err}
				s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Store: pool, Logger: slog.New(slog.DiscardHandler)})
				long, other := s.started.Add(-time.Hour), s.started.Add(-c.other)
				named := account.Endpoint{ID: "ep-1", URL: "http://a.b", Bindings: []string{account.BindingKubernetes},
					EndpointSettings: account.EndpointSettings{PoolingEnabled: c.pooling}, OfflineSince: &long}
				pool.all = []account.Endpoint{{ID: "ep-2", OfflineSince: &other}, named}
				time.Sleep(time.Millisecond) // fake time of synctest
				asked := time.Now()
				if _, err := s.Choose(t.Context(), URLOf(&named)); account.CodeOf(err) != account.CodeEndpointOffline {
					t.Errorf("error %v", err)
				}
				if waited := time.Since(asked); waited != c.want {
					t.Errorf("waited %v, want %v", waited, c.want)
				}
				want := account.EndpointFilter{Bindings: []string{account.BindingKubernetes}, URL: "http://a.b"}
				if c.pooling && !reflect.DeepEqual(pool.filter, want) {
					t.Errorf("looked for %+v", pool.filter)
				}
			})
		})
	}
}
