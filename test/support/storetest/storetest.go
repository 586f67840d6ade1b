// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storetest owns what every engine of internal/service/store must hold: a conformance
// suite. A test of an engine hands in how to make a fresh database and how to open it, again and
// again; the suite hands over failures to testing.T.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// Open opens one database with the given options; DataDir is the engine's affair. The suite closes
// what it opens.
type Open func(opt store.Options) (*store.Store, error)

// Run runs the suite. fresh makes an empty database.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, group := range []map[string]func(t *testing.T, open Open){identity, pools, owners, ownerRows,
		ownedCloud, tunnels, legs, reservations,
		events, times,
		operators, credentials, credentialPatches, exporterKeys, domains, backends, backendUsers, cloudEndpoints,
		serviceExports, clusterIDs, trustedClusters,
		policies, audit,
		isolation, concurrency,
		logins, sessionTimes, onlyOnce, userLists, accessFilters, revocations, dashboardSessions, authorities,
		monitored} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, fresh(t))
			})
		}
	}
}

// Clock is a clock that tests step.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at a fixed time.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)} }

// Now is what store.Options.Clock wants.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Step moves the clock.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Fixture is an open store with an account, an authtoken and a stepped clock.
type Fixture struct {
	T         *testing.T
	Store     *store.Store
	Clock     *Clock
	AccountID string
	TokenID   string
	open      Open
	opt       store.Options
}

// NewFixture opens the store and makes the account.
func NewFixture(t *testing.T, open Open, adjust ...func(*store.Options)) *Fixture {
	t.Helper()
	f := &Fixture{T: t, Clock: NewClock(), open: open}
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	Must(t, err)
	f.opt = store.Options{Clock: f.Clock.Now, Key: key}
	for _, a := range adjust {
		a(&f.opt)
	}
	f.Reopen()
	t.Cleanup(func() { Must(t, f.Store.Close()) })
	f.AccountID, f.TokenID = f.NewAccount("first")
	return f
}

// Reopen opens the store again that was closed.
func (f *Fixture) Reopen() {
	f.T.Helper()
	s, err := f.open(f.opt)
	Must(f.T, err)
	f.Store = s
}

// Restart closes the store and opens it as a starting server does.
func (f *Fixture) Restart() {
	f.T.Helper()
	Must(f.T, f.Store.Close())
	f.Reopen()
	Must(f.T, f.Store.BeginServerTerm(f.ctx()))
}

func (f *Fixture) ctx() context.Context { return f.T.Context() }

// NewAccount makes an account with an authtoken.
func (f *Fixture) NewAccount(name string) (accountID, tokenID string) {
	f.T.Helper()
	a, err := f.Store.CreateAccount(f.ctx(), name)
	Must(f.T, err)
	token, _, err := f.Store.IssueAuthtoken(f.ctx(), a.ID, "", nil)
	Must(f.T, err)
	return a.ID, token.ID
}

// Session starts a session in the first account.
func (f *Fixture) Session() string { f.T.Helper(); return f.SessionIn(f.AccountID) }

// SessionIn starts a session in an account.
func (f *Fixture) SessionIn(accountID string) string {
	f.T.Helper()
	return f.startSession(accountID, "")
}

// SessionOf starts a session of an agent with this instance id in the first account.
func (f *Fixture) SessionOf(instanceID string) string {
	f.T.Helper()
	return f.startSession(f.AccountID, instanceID)
}

func (f *Fixture) startSession(accountID, instanceID string) string {
	f.T.Helper()
	id := account.NewID(account.PrefixTunnelSession, f.Clock.Now())
	Must(f.T, f.Store.StartSession(f.ctx(),
		account.TunnelSession{ID: id, AccountID: accountID, Credential: account.Ref{ID: f.TokenID},
			IP: "203.0.113.9", AgentVersion: "1.0.0", OS: "linux", Region: "home", Transport: "tls",
			InstanceID: instanceID}))
	return id
}

// Request is a bind of url by the session in the first account.
func (f *Fixture) Request(session, url string) account.BindRequest {
	f.T.Helper()
	return f.RequestIn(account.BindingKubernetes, session, url)
}

// RequestIn is a bind of url with the binding by the session in the first account.
func (f *Fixture) RequestIn(binding, session, url string) account.BindRequest {
	f.T.Helper()
	u, err := account.ParseBindingURL(binding, url)
	Must(f.T, err)
	r := account.BindRequest{Endpoint: account.NewEndpoint(binding, u), CredentialID: f.TokenID, SessionID: session}
	r.AccountID, r.EndpointSettings = f.AccountID, account.EndpointSettings{UpstreamURL: "http://localhost:8080",
		UpstreamProtocol: "http1", ServiceLabels: "a=b", SealKey: "sha256/x", HostMode: account.HostPassthrough}
	return r
}

// Bind binds and fails the test when it is refused.
func (f *Fixture) Bind(session, url string) *account.BindResult {
	f.T.Helper()
	got, err := f.Store.Bind(f.ctx(), f.Request(session, url))
	Must(f.T, err)
	return got
}

// Join binds url with pooling and fails the test when it is refused.
func (f *Fixture) Join(session, url string) *account.BindResult {
	f.T.Helper()
	r := f.Request(session, url)
	r.PoolingEnabled = true
	got, err := f.Store.Bind(f.ctx(), r)
	Must(f.T, err)
	return got
}

// EndSession ends a session of the first account, as a lost connection does.
func (f *Fixture) EndSession(session string) {
	f.T.Helper()
	Must(f.T, f.Store.EndSession(f.ctx(), f.AccountID, session, account.SessionEnd{}))
}

// Endpoint reads an endpoint of the first account.
func (f *Fixture) Endpoint(id string) *account.Endpoint {
	f.T.Helper()
	e, err := f.Store.Endpoint(f.ctx(), f.AccountID, id)
	Must(f.T, err)
	return e
}

// List reads all endpoints of the first account.
func (f *Fixture) List() *account.EndpointPage {
	f.T.Helper()
	page, err := f.Store.ListEndpoints(f.ctx(), f.AccountID, account.EndpointFilter{},
		account.Page{Limit: account.MaxPageLimit})
	Must(f.T, err)
	return page
}

// Since reads all events of the first account after v.
func (f *Fixture) Since(v account.ResourceVersion) []account.EndpointEvent {
	f.T.Helper()
	got, _, err := f.Store.EndpointEvents(f.ctx(), f.AccountID, v, account.EndpointFilter{}, 0)
	Must(f.T, err)
	return got
}

// Expect fails unless the events after v are of these types; it returns them.
func (f *Fixture) Expect(v account.ResourceVersion, types ...account.EventType) []account.EndpointEvent {
	f.T.Helper()
	got := f.Since(v)
	kinds := make([]account.EventType, 0, len(got))
	for _, e := range got {
		kinds = append(kinds, e.Type)
	}
	if fmt.Sprint(kinds) != fmt.Sprint(types) {
		f.T.Fatalf("events after %s: %v, want %v", v, kinds, types)
	}
	return got
}

// Must fails the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// MustCode fails the test unless the error has the code.
func MustCode(t *testing.T, err error, want account.Code) {
	t.Helper()
	if got := account.CodeOf(err); got != want {
		t.Fatalf("error %v has code %q, want %q", err, got, want)
	}
}

// Equal fails the test unless the values are equal.
func Equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
