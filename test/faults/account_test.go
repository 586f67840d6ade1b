// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

// fakeAccount is an account with a sequenced event log, which never fails.
type fakeAccount struct {
	mu        sync.Mutex
	endpoints map[string]account.Endpoint
	log       []account.EndpointEvent
	changed   chan struct{} // closed and replaced at each change
}

func newFakeAccount() *fakeAccount {
	return &fakeAccount{endpoints: map[string]account.Endpoint{}, changed: make(chan struct{})}
}

func (f *fakeAccount) write(typ account.EventType, e account.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.ResourceVersion = account.ResourceVersion{Epoch: 1, Seq: int64(len(f.log) + 1)}
	if typ == account.Deleted {
		delete(f.endpoints, e.ID)
	} else {
		f.endpoints[e.ID] = e
	}
	f.log = append(f.log, account.EndpointEvent{Type: typ, ResourceVersion: e.ResourceVersion, Endpoint: &e})
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAccount) put(e account.Endpoint) { f.write(account.Added, e) }

func (f *fakeAccount) delete(id string) { f.write(account.Deleted, f.all()[id]) }

func (f *fakeAccount) all() map[string]account.Endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.endpoints)
}

// List implements endpointsync.Source.
func (f *fakeAccount) List(context.Context) (endpointsync.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := endpointsync.Snapshot{Version: account.ResourceVersion{Epoch: 1, Seq: int64(len(f.log))}, AccountID: "ac-1",
		StoreID: "st-1"}
	for _, e := range f.endpoints {
		s.Endpoints = append(s.Endpoints, e)
	}
	return s, nil
}

// Watch implements endpointsync.Source.
func (f *fakeAccount) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	return &fakeWatch{account: f, ctx: ctx, after: int(after.Seq)}, nil
}

type fakeWatch struct {
	account *fakeAccount
	ctx     context.Context
	after   int
}

func (w *fakeWatch) Next() (account.EndpointEvent, error) {
	for {
		w.account.mu.Lock()
		log, changed := w.account.log, w.account.changed
		w.account.mu.Unlock()
		if w.after < len(log) {
			w.after++
			return log[w.after-1], nil
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return account.EndpointEvent{}, io.EOF
		}
	}
}

func (w *fakeWatch) Close() {}

// UpsertOperator implements registration.Registrar.
func (f *fakeAccount) UpsertOperator(_ context.Context, o account.Operator) (*account.Operator, error) {
	o.ID = "op-1"
	return &o, nil
}

// endpoint returns an online endpoint.
func endpoint(id, url, projectionID, typ string) account.Endpoint {
	return account.Endpoint{
		ID: id, URL: url,
		EndpointSettings: account.EndpointSettings{Name: id}, Type: typ,
		Bindings:     []string{account.BindingKubernetes},
		Status:       account.StatusOnline,
		ProjectionID: projectionID,
		CreatedAt:    time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}
