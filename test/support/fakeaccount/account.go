// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeaccount has an account in memory, for tests of what follows an account's endpoints.
//
// It keeps a sequenced log of changes, as the service does: lists have a version, and watches go on
// after one. Where a test needs the service itself, it takes test/support/servicetest.
package fakeaccount

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

// Account implements endpointsync.Source and registration.Registrar. It is safe for concurrent use.
type Account struct {
	mu             sync.Mutex
	id             string
	down           error
	seq, compacted int64 // versions before compacted are gone
	endpoints      map[string]account.Endpoint
	log            []account.EndpointEvent
	changed        chan struct{} // closed and replaced at each change
	operators      []account.Operator
}

// New returns account ac-1 without endpoints.
func New() *Account {
	return &Account{id: "ac-1", endpoints: map[string]account.Endpoint{}, changed: make(chan struct{})}
}

// record logs a change. a.mu must be held.
func (a *Account) record(typ account.EventType, e account.Endpoint) account.Endpoint {
	a.seq++
	e.ResourceVersion = a.version()
	a.log = append(a.log, account.EndpointEvent{Type: typ, ResourceVersion: e.ResourceVersion, Endpoint: &e})
	a.wake()
	return e
}

func (a *Account) version() account.ResourceVersion {
	return account.ResourceVersion{Epoch: 1, Seq: a.seq}
}

func (a *Account) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Put adds or changes endpoints and returns the last as it is kept.
func (a *Account) Put(endpoints ...account.Endpoint) (last account.Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range endpoints {
		typ := account.Added
		if _, known := a.endpoints[e.ID]; known {
			typ = account.Modified
		}
		last = a.record(typ, e)
		a.endpoints[e.ID] = last
	}
	return last
}

// PutWithoutEvent adds an endpoint that watches do not report.
func (a *Account) PutWithoutEvent(e account.Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endpoints[e.ID] = e
}

// Delete deletes endpoints.
func (a *Account) Delete(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.record(account.Deleted, a.endpoints[id])
		delete(a.endpoints, id)
	}
}

// Endpoints returns the endpoints by id.
func (a *Account) Endpoints() map[string]account.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.endpoints)
}

// Fail makes everything fail, and ends watches; nil ends the outage.
func (a *Account) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
	a.wake()
}

// SwitchTo makes it another account without endpoints, and ends watches with CodeGone.
func (a *Account) SwitchTo(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seq++
	a.id, a.endpoints, a.log, a.compacted = id, map[string]account.Endpoint{}, nil, a.seq
	a.wake()
}

// List implements endpointsync.Source.
func (a *Account) List(context.Context) (endpointsync.Snapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return endpointsync.Snapshot{Endpoints: slices.Collect(maps.Values(a.endpoints)), Version: a.version(),
		AccountID: a.id, StoreID: "st-1"}, a.down
}

// Watch implements endpointsync.Source.
func (a *Account) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &watch{account: a, ctx: ctx, after: after.Seq}, a.down
}

type watch struct {
	account *Account
	ctx     context.Context
	after   int64
}

// Next implements apiclient.EndpointWatch.
func (w *watch) Next() (account.EndpointEvent, error) {
	for {
		next, changed, err := w.account.next(w.after)
		if err != nil {
			return account.EndpointEvent{}, err
		}
		if next != nil {
			w.after = next.ResourceVersion.Seq
			return *next, nil
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return account.EndpointEvent{}, io.EOF
		}
	}
}

// Close implements apiclient.EndpointWatch.
func (w *watch) Close() {}

// next returns the first event after a version, or what is closed at the next change.
func (a *Account) next(after int64) (*account.EndpointEvent, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, nil, a.down
	}
	if after < a.compacted {
		return nil, nil, account.Errorf(account.CodeGone, "compacted")
	}
	for i := range a.log {
		if a.log[i].ResourceVersion.Seq > after {
			return &a.log[i], a.changed, nil
		}
	}
	return nil, a.changed, nil
}

// UpsertOperator implements registration.Registrar.
func (a *Account) UpsertOperator(_ context.Context, o account.Operator) (*account.Operator, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	o.ID = "op-1"
	a.operators = append(a.operators, o)
	return &o, nil
}

// Operators returns what UpsertOperator got.
func (a *Account) Operators() []account.Operator {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.operators)
}
