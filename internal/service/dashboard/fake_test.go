// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// fake is an account service in memory: every interface that the dashboard sees. It does no more
// than keep lists; what it holds is in fixture_test.go. What the dashboard must not call is that of
// the nil Store.
type fake struct {
	Store
	mu   sync.Mutex
	now  time.Time
	down bool // every call fails as if the store did not answer

	endpoints []account.Endpoint
	ops       []account.Operator
	backends  []account.Backend
	agents    []account.TunnelSession
	tunnels   []account.LabelledTunnel
	users     []account.User
	sessions  []account.AppSession
	visited   map[string][]account.AccessedEndpoint
	keys      []account.APIKey
	secrets   map[string]string // of keys, to ids
	tokens    []account.Authtoken
	clusters  []account.Cluster
	events    []account.AuditEvent
	owner     map[string]string // id -> account
	signIns   map[string]signedIn
	active    map[string]string
	wakes     map[chan struct{}]bool

	requests map[string][]traffic.Request // by endpoint
	busy     float64                      // factor of all traffic
	failing  float64                      // how many of the 3 requests a second to endpoints[3] fail
	failures []traffic.LoginFailure

	revoked []account.RevokeSelector
	stopped []string
	callers []account.Caller
}

type signedIn struct {
	key     string
	expires time.Time
}

// enter locks the fake, unless the store does not answer.
func (f *fake) enter() error {
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		return account.Errorf(account.CodeUnavailable, "the store does not answer; try again in a moment")
	}
	return nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// pageOf sorts what passes, newest first, and cuts a page out of it.
func pageOf[T any](
	f *fake, all []T, id func(*T) string, accountID string, p account.Page, passes func(*T) bool,
) (page []T, more bool) {
	limit := p.Limit
	if limit == 0 {
		limit = account.DefaultPageLimit
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b T) int { return strings.Compare(id(&b), id(&a)) })
	for i := range sorted {
		one := &sorted[i]
		if f.owner[id(one)] != accountID || p.BeforeID != "" && id(one) >= p.BeforeID || passes != nil && !passes(one) {
			continue
		}
		if len(page) == limit {
			return page, true
		}
		page = append(page, *one)
	}
	return page, false
}

func find[T any](f *fake, all []T, id func(*T) string, accountID, wanted string) (*T, error) {
	for i := range all {
		if id(&all[i]) == wanted && f.owner[wanted] == accountID {
			found := all[i]
			return &found, nil
		}
	}
	return nil, account.Errorf(account.CodeNotFound, "there is no object %q", wanted)
}

// get returns a copy of one of the rows.
func get[T any](f *fake, all *[]T, id func(*T) string, accountID, wanted string) (*T, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	return find(f, *all, id, accountID, wanted)
}

// list returns a page of the rows that pass.
func list[T any](
	f *fake, all *[]T, id func(*T) string, accountID string, p account.Page, passes func(*T) bool,
) (page []T, more bool, err error) {
	if err := f.enter(); err != nil {
		return nil, false, err
	}
	defer f.mu.Unlock()
	page, more = pageOf(f, *all, id, accountID, p, passes)
	return page, more, nil
}

// remove deletes one of the rows. f.mu must be held.
func remove[T any](f *fake, all *[]T, id func(*T) string, accountID, wanted string) error {
	_, err := find(f, *all, id, accountID, wanted)
	if err == nil {
		*all = slices.DeleteFunc(*all, func(one T) bool { return id(&one) == wanted })
	}
	return err
}

func endpointID(e *account.Endpoint) string     { return e.ID }
func tunnelID(t *account.LabelledTunnel) string { return t.ID }
func sessionID(s *account.AppSession) string    { return s.ID }
func keyID(k *account.APIKey) string            { return k.ID }
func authtokenID(a *account.Authtoken) string   { return a.ID }

func (f *fake) Endpoint(_ context.Context, accountID, id string) (*account.Endpoint, error) {
	return get(f, &f.endpoints, endpointID, accountID, id)
}

func (f *fake) ListEndpoints(
	_ context.Context, accountID string, filter account.EndpointFilter, p account.Page,
) (*account.EndpointPage, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	page, more := pageOf(f, f.endpoints, endpointID, accountID, p, filter.Matches)
	return &account.EndpointPage{Endpoints: page, More: more}, nil
}

func (f *fake) Subscribe(string) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	f.set(func() { f.wakes[wake] = true })
	return wake, func() { f.set(func() { delete(f.wakes, wake) }) }
}

func (f *fake) SubscribeAudit(accountID string) (<-chan struct{}, func()) {
	return f.Subscribe(accountID)
}

// change changes something and wakes who has subscribed.
func (f *fake) change(what func()) {
	f.set(what)
	f.mu.Lock()
	defer f.mu.Unlock()
	for wake := range f.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (f *fake) subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.wakes)
}

func (f *fake) AuditEvent(_ context.Context, accountID, id string) (*account.AuditEvent, error) {
	return get(f, &f.events, auditEventID, accountID, id)
}

func (f *fake) AuditEvents(
	_ context.Context, accountID string, filter account.AuditFilter, p account.Page,
) (*account.AuditPage, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	page, more := pageOf(f, f.events, auditEventID, accountID, p, func(e *account.AuditEvent) bool {
		return (filter.Type == "" || e.Type == filter.Type) &&
			(filter.ObjectID == "" || e.Object != nil && e.Object.ID == filter.ObjectID)
	})
	return &account.AuditPage{Events: page, More: more}, nil
}

func (f *fake) Operator(_ context.Context, accountID, id string) (*account.Operator, error) {
	return get(f, &f.ops, operatorID, accountID, id)
}

func (f *fake) ListOperators(
	_ context.Context, accountID string, p account.Page,
) (page []account.Operator, more bool, err error) {
	return list(f, &f.ops, operatorID, accountID, p, nil)
}

func (f *fake) Backend(
	_ context.Context, accountID string, kind account.BackendKind, id string,
) (*account.Backend, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	b, err := find(f, f.backends, backendID, accountID, id)
	if err == nil && b.Kind != kind {
		return nil, account.Errorf(account.CodeNotFound, "there is no backend %q", id)
	}
	return b, err
}

func (f *fake) ListBackends(
	_ context.Context, accountID string, kind account.BackendKind, p account.Page,
) (page []account.Backend, more bool, err error) {
	return list(f, &f.backends, backendID, accountID, p, func(b *account.Backend) bool {
		return b.Kind == kind
	})
}

// ActiveChild implements httpkit.Backends.
func (f *fake) ActiveChild(_, id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active[id]
}

// ActiveChildren implements Store.
func (f *fake) ActiveChildren(context.Context, string, []string) (map[string]map[string]string, error) {
	return nil, nil
}

// CheckStaticAddress implements httpkit.Backends.
func (f *fake) CheckStaticAddress(string) error { return nil }

func (f *fake) TunnelSession(_ context.Context, accountID, id string) (*account.TunnelSession, error) {
	return get(f, &f.agents, agentID, accountID, id)
}

func (f *fake) ListTunnelSessions(
	_ context.Context, accountID string, p account.Page,
) (page []account.TunnelSession, more bool, err error) {
	return list(f, &f.agents, agentID, accountID, p, nil)
}

func (f *fake) StopSession(_ context.Context, by account.Caller, id string) error {
	return f.end("stop", by.AccountID, id)
}

func (f *fake) RestartSession(_ context.Context, by account.Caller, id string) error {
	return f.end("restart", by.AccountID, id)
}

func (f *fake) end(how, accountID, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, err := find(f, f.agents, agentID, accountID, id); err != nil {
		return err
	}
	f.stopped = append(f.stopped, how+" "+id)
	return nil
}

func (f *fake) LabelledTunnel(_ context.Context, accountID, id string) (*account.LabelledTunnel, error) {
	return get(f, &f.tunnels, tunnelID, accountID, id)
}

func (f *fake) ListLabelledTunnels(
	_ context.Context, accountID string, labels map[string]string, p account.Page,
) (page []account.LabelledTunnel, more bool, err error) {
	return list(f, &f.tunnels, tunnelID, accountID, p, func(t *account.LabelledTunnel) bool {
		return account.HasLabels(t.Labels, labels)
	})
}
