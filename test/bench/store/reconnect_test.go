// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
)

const (
	reconnectAgents   = 500
	reconnectInFlight = 64
	reconnectRounds   = 5
)

// BenchmarkReconnect starts the sessions of many agents at once, each of which binds its endpoint,
// as after a restart: with one server, and with three replicas, where each agent joins the two
// others as well. The endpoints exist and were lost with the sessions before.
func BenchmarkReconnect(b *testing.B) {
	for name, open := range engines(b) {
		b.Run(name, func(b *testing.B) {
			opt, _, _ := open(b)
			s, err := store.Open(b.Context(), opt)
			must(b, err)
			b.Cleanup(func() { must(b, s.Close()) })
			newReconnect(b, s).run()
		})
		if name == "postgres" {
			b.Run(name+", three replicas", func(b *testing.B) {
				opt, _, _ := open(b)
				newReconnect(b, openReplicas(b, opt, 3)...).run()
			})
		}
	}
}

// openReplicas makes several servers of one database.
func openReplicas(b *testing.B, opt store.Options, n int) []*store.Store {
	b.Helper()
	all := make([]*store.Store, n)
	for i := range all {
		own := opt
		own.DataDir = b.TempDir()
		own.Replica = &membership.Replica{ID: account.NewID(account.PrefixReplica, time.Now())}
		var err error
		own.Lock, err = store.LockServer(b.Context(), own)
		must(b, err)
		all[i], err = store.Open(b.Context(), own)
		must(b, err)
		must(b, all[i].BeginServerTerm(b.Context()))
		b.Cleanup(func() { must(b, errors.Join(all[i].Close(), own.Lock.Release())) })
	}
	return all
}

// reconnect is agents whose servers use the stores.
type reconnect struct {
	b        *testing.B
	stores   []*store.Store
	account  string
	sessions []string // of the agents, now
}

func newReconnect(b *testing.B, stores ...*store.Store) *reconnect {
	b.Helper()
	owner, err := stores[0].CreateAccount(b.Context(), "bench")
	must(b, err)
	r := &reconnect{b: b, stores: stores, account: owner.ID, sessions: make([]string, reconnectAgents)}
	r.connectAll()
	return r
}

// connect is what one agent makes its servers write.
func (r *reconnect) connect(ctx context.Context, agent int) error {
	id, joinHash := account.NewID(account.PrefixTunnelSession, time.Now()), bytes.Repeat([]byte{7}, 32)
	r.sessions[agent] = id
	u, err := account.ParseEndpointURL(fmt.Sprintf("http://a-%d.demo", agent))
	if err != nil {
		return err
	}
	home := r.stores[agent%len(r.stores)]
	err = home.StartSession(ctx, account.TunnelSession{ID: id, AccountID: r.account, IP: "127.0.0.1",
		InstanceID: fmt.Sprintf("agent-%d", agent), JoinHash: joinHash})
	if err != nil {
		return err
	}
	e := account.NewEndpoint(account.BindingKubernetes, u)
	e.AccountID, e.EndpointSettings = r.account, account.EndpointSettings{UpstreamURL: "http://localhost:8080",
		UpstreamProtocol: "http1", HostMode: account.HostPassthrough}
	_, err = home.Bind(ctx, account.BindRequest{Endpoint: e, SessionID: id})
	for other := 1; other < len(r.stores) && err == nil; other++ {
		_, err = r.stores[(agent+other)%len(r.stores)].JoinSession(ctx, id, joinHash)
	}
	return err
}

// connectAll connects all agents and returns how long each took, and all together.
func (r *reconnect) connectAll() (each []time.Duration, all time.Duration) {
	r.b.Helper()
	each = make([]time.Duration, reconnectAgents)
	errs := make([]error, reconnectAgents)
	free := make(chan struct{}, reconnectInFlight)
	var agents sync.WaitGroup
	begin := time.Now()
	for i := range reconnectAgents {
		free <- struct{}{}
		agents.Go(func() {
			from := time.Now()
			errs[i] = r.connect(r.b.Context(), i)
			each[i] = time.Since(from)
			<-free
		})
	}
	agents.Wait()
	all = time.Since(begin)
	must(r.b, errors.Join(errs...))
	return each, all
}

// loseAll ends the sessions as servers do that their agents have left.
func (r *reconnect) loseAll() {
	r.b.Helper()
	for agent, id := range r.sessions {
		for i := range r.stores {
			must(r.b, r.stores[(agent+i)%len(r.stores)].LeaveSession(r.b.Context(), r.account, id,
				account.SessionEnd{Reason: "the benchmark"}))
		}
	}
}

func (r *reconnect) run() {
	r.b.Helper()
	var rounds []float64
	r.b.ResetTimer()
	for range r.b.N * reconnectRounds {
		r.loseAll()
		each, all := r.connectAll()
		perSecond := reconnectAgents / all.Seconds()
		rounds = append(rounds, perSecond)
		r.b.Logf("%d agents, %d at a time: %.0f agents a second, %s (p50) and %s (p99) for one", reconnectAgents,
			reconnectInFlight, perSecond, percentile(each, 0.5).Round(time.Millisecond),
			percentile(each, 0.99).Round(time.Millisecond))
	}
	slices.Sort(rounds)
	r.b.ReportMetric(rounds[len(rounds)/2], "agents/s")
	r.b.ReportMetric(0, "ns/op")
}
