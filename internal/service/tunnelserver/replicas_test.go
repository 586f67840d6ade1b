// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

var postgres postgrestest.Shared

func TestMain(m *testing.M) {
	os.Exit(postgrestest.Main{M: m, Shared: &postgres}.Run())
}

// replicas are several servers with one store, of which nothing runs in the background.
type replicas struct {
	t         *testing.T
	servers   []*testService
	legs      []*pausingLegs // of each server
	accountID string
	token     string
	tokenID   string
}

// pausingLegs are the store's, and pause after a reading when a test wants it.
type pausingLegs struct {
	account.SessionLegs
	mu     sync.Mutex
	reads  int
	paused chan struct{} // closed when a reading is done that waits for resume; nil = none waits
	resume chan struct{}
	err    error // of all calls
	left   bool  // a session has left

	history string // of the database, behind its own
}

func (p *pausingLegs) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// pauseNext makes the next reading wait, when the store has answered, until resume is called.
func (p *pausingLegs) pauseNext() (paused <-chan struct{}, resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.resume = make(chan struct{}), make(chan struct{})
	return p.paused, sync.OnceFunc(func() { close(p.resume) })
}

func (p *pausingLegs) SessionHoldings(ctx context.Context, accountID, id string) (*account.SessionHoldings, error) {
	p.mu.Lock()
	paused, resume, err := p.paused, p.resume, p.err
	p.paused, p.reads = nil, p.reads+1
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	held, err := p.SessionLegs.SessionHoldings(ctx, accountID, id)
	if paused != nil {
		close(paused)
		<-resume
	}
	if err == nil {
		held.History += p.historyOf()
	}
	return held, err
}

func (p *pausingLegs) LeaveSession(ctx context.Context, accountID, id string, end account.SessionEnd) error {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	if err != nil {
		return err
	}
	err = p.SessionLegs.LeaveSession(ctx, accountID, id, end)
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	return err
}

// awaitLeave waits until a session has left the server.
func (p *pausingLegs) awaitLeave(t *testing.T) {
	t.Helper()
	wait.Until(t, "a session to leave", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.left
	})
}

func (p *pausingLegs) readings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

func newReplicas(t *testing.T, n int) *replicas {
	t.Helper()
	databaseURL := postgres.Server(t).URL(t)
	r := &replicas{t: t}
	for i := range n {
		l := &testService{t: t, store: openReplica(t, databaseURL), paused: true}
		if i == 0 {
			a, err := l.store.CreateAccount(t.Context(), "first")
			storetest.Must(t, err)
			token, secret, err := l.store.IssueAuthtoken(t.Context(), a.ID, "", []string{"bind:*", "connect:*"})
			storetest.Must(t, err)
			r.accountID, r.token, r.tokenID = a.ID, secret, token.ID
		}
		l.accountID, l.token, l.tokenID = r.accountID, r.token, r.tokenID
		legs := &pausingLegs{SessionLegs: l.store}
		l.Server = New(Options{
			Store: l.store, StoreID: l.store.StoreID(), ServerID: "test", Version: "test",
			Edge: noEdge{}, Meter: noMeter{},
			CheckPolicy: func(policy, _, _ string) (account.PolicyFacts, error) {
				return account.PolicyFacts{Digest: policy}, nil
			},
			Logger: slog.New(slog.DiscardHandler), ReplicaID: account.NewID(account.PrefixReplica, time.Now()),
			Legs: legs,
			Replicas: &fakeReplicas{count: n, publish: func(
				ctx context.Context, accounts, ids []string, code tunnel.Code, msg string,
			) {
				storetest.Equal(t, "accounts of the change", fmt.Sprint(accounts), fmt.Sprint([]string{r.accountID}))
				for j, other := range r.servers {
					if j != i {
						storetest.Must(t, other.ApplySessions(ctx, peers.Change{IDs: ids, Code: code, Message: msg}))
					}
				}
			}},
		})
		l.listen()
		r.servers, r.legs = append(r.servers, l), append(r.legs, legs)
	}
	return r
}

// replicas returns the servers that this one publishes to.
func (l *testService) replicas() *fakeReplicas { return l.binder.publisher.replicas.(*fakeReplicas) }

// awaitOthers makes binds wait for all servers, however slow the machine is.
func (r *replicas) awaitOthers() {
	for _, s := range r.servers {
		s.binder.publisher.wait = testTimeout
	}
}

// openReplica opens the database as one of several servers, which does not beat.
func openReplica(t *testing.T, databaseURL string) *store.Store {
	t.Helper()
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	storetest.Must(t, err)
	id := account.NewID(account.PrefixReplica, time.Now())
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL, Key: key, Replica: &membership.Replica{ID: id,
		Address: id + ":1", RelayAddress: id + ":2", BaseURL: "https://fairlead.example.net", Version: "1.2.3"}}
	opt.Lock, err = store.LockServer(t.Context(), opt)
	storetest.Must(t, err)
	s, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	t.Cleanup(func() {
		storetest.Must(t, s.Close())
		storetest.Must(t, opt.Lock.Release())
	})
	storetest.Must(t, s.BeginServerTerm(t.Context()))
	return s
}

// legAgent is an agent that has one connection with each of its servers.
type legAgent struct {
	*agent
	r *replicas

	mu      sync.Mutex
	servers []int            // where it dials
	conns   map[int]net.Conn // by server
}

// agent connects an agent, first with the first of the servers.
func (r *replicas) agent(servers ...int) *legAgent {
	r.t.Helper()
	a := &legAgent{agent: &agent{}, r: r, servers: servers, conns: map[int]net.Conn{}}
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: r.servers[0].addr, TLS: r.servers[0].tls, Connections: len(servers), DialContext: a.dial,
		MaxBackoff: 10 * time.Millisecond,
		Hello:      func() tunnel.Hello { return tunnel.Hello{Role: tunnel.RoleAgent, Token: r.token} },
		OnStream:   keepOpen,
	})
	a.run(r.t, client)
	for _, i := range servers {
		a.awaitLeg(i)
	}
	return a
}

// dial connects with the first server that it has no connection with.
func (a *legAgent) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.servers, func(i int) bool { return a.conns[i] == nil })
	if i < 0 {
		return nil, net.ErrClosed
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, a.r.servers[a.servers[i]].addr)
	if err == nil {
		a.conns[a.servers[i]] = c
	}
	return c, err
}

// awaitLeg waits until both sides know of the leg.
func (a *legAgent) awaitLeg(server int) {
	a.r.t.Helper()
	s := a.r.servers[server]
	wait.Until(a.r.t, "a leg", func() bool {
		return s.storedSession(a.ID()) != nil && slices.ContainsFunc(a.Legs(), func(leg tunnel.Leg) bool {
			return leg.ReplicaID == s.opt.ReplicaID
		})
	})
}

// cut ends the connection with the server, where it does not connect again.
func (a *legAgent) cut(server int) {
	a.r.t.Helper()
	a.mu.Lock()
	a.servers = slices.DeleteFunc(a.servers, func(i int) bool { return i == server })
	storetest.Must(a.r.t, a.conns[server].Close())
	delete(a.conns, server)
	a.mu.Unlock()
	l := a.r.servers[server]
	wait.Until(a.r.t, "the end of the leg", func() bool { return l.session(a.ID()) == nil })
}

func (a *legAgent) bind(b tunnel.Bind) tunnel.Bound {
	a.r.t.Helper()
	b.UpstreamURL = "tcp://localhost:1"
	bound, err := a.Bind(a.r.t.Context(), b)
	storetest.Must(a.r.t, err)
	return bound
}

// member returns the server's member, or nil.
func (r *replicas) member(server int, id string) *Member {
	return r.servers[server].memberOf(r.accountID, id)
}

// expect waits until the servers have members of the session for the endpoint or labelled tunnel.
func (r *replicas) expect(id string, of *legAgent, servers ...int) {
	r.t.Helper()
	for _, i := range servers {
		wait.Until(r.t, "a member", func() bool {
			h := r.member(i, id)
			return h != nil && h.session.id == of.ID()
		})
	}
}

// expectNone holds that no server has a member for the endpoint or labelled tunnel now.
func (r *replicas) expectNone(id string) {
	r.t.Helper()
	for i := range r.servers {
		if h := r.member(i, id); h != nil {
			r.t.Errorf("server %d has a member of %s for session %s", i, id, h.session.id)
		}
	}
}

// version returns the number of the account's last event.
func (r *replicas) version() int64 {
	r.t.Helper()
	list, err := r.servers[0].store.ListEndpoints(r.t.Context(), r.accountID, account.EndpointFilter{}, account.Page{})
	storetest.Must(r.t, err)
	return list.Version.Seq
}

func (r *replicas) endpoint(id string) *account.Endpoint {
	r.t.Helper()
	ep, err := r.servers[0].store.Endpoint(r.t.Context(), r.accountID, id)
	storetest.Must(r.t, err)
	return ep
}

func (r *replicas) isOver(id string) bool {
	_, err := r.servers[0].store.TunnelSession(r.t.Context(), r.accountID, id)
	return account.CodeOf(err) == account.CodeNotFound
}
