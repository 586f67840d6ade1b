// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

// fakeAccount is an account with a sequenced log of changes, as the service keeps it.
type fakeAccount struct {
	mu        sync.Mutex
	down      error
	seq       int64
	endpoints map[string]account.Endpoint
	log       []account.EndpointEvent
	changed   chan struct{} // closed and replaced at each change
	operators []account.Operator
	id, store string
	compacted int64 // versions before it are gone
}

func newFakeAccount() *fakeAccount {
	return &fakeAccount{endpoints: map[string]account.Endpoint{}, changed: make(chan struct{}), id: "ac-1",
		store: "st-1"}
}

func (f *fakeAccount) version() account.ResourceVersion {
	return account.ResourceVersion{Epoch: 1, Seq: f.seq}
}

func (f *fakeAccount) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// put adds or changes endpoints.
func (f *fakeAccount) put(endpoints ...account.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range endpoints {
		f.seq++
		typ := account.Added
		if _, known := f.endpoints[e.ID]; known {
			typ = account.Modified
		}
		e.ResourceVersion = f.version()
		f.endpoints[e.ID] = e
		f.log = append(f.log, account.EndpointEvent{Type: typ, ResourceVersion: f.version(), Endpoint: &e})
	}
	f.wake()
}

func (f *fakeAccount) delete(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.seq++
		e := f.endpoints[id]
		delete(f.endpoints, id)
		f.log = append(f.log, account.EndpointEvent{Type: account.Deleted, ResourceVersion: f.version(), Endpoint: &e})
	}
	f.wake()
}

// fail makes everything fail, and ends watches; nil ends the outage.
func (f *fakeAccount) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
	f.wake()
}

// switchTo makes it another account without endpoints, and ends watches with CodeGone.
func (f *fakeAccount) switchTo(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id, f.endpoints, f.log, f.compacted = id, map[string]account.Endpoint{}, nil, f.seq+1
	f.seq++
	f.wake()
}

func (f *fakeAccount) List(context.Context) (endpointsync.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := endpointsync.Snapshot{Version: f.version(), AccountID: f.id, StoreID: f.store}
	for _, e := range f.endpoints {
		s.Endpoints = append(s.Endpoints, e)
	}
	return s, f.down
}

func (f *fakeAccount) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &fakeWatch{account: f, ctx: ctx, after: after.Seq}, f.down
}

type fakeWatch struct {
	account *fakeAccount
	ctx     context.Context
	after   int64
}

func (w *fakeWatch) Next() (account.EndpointEvent, error) {
	for {
		w.account.mu.Lock()
		err, changed := w.account.down, w.account.changed
		var next *account.EndpointEvent
		for i := range w.account.log {
			if w.account.log[i].ResourceVersion.Seq > w.after {
				next = &w.account.log[i]
				break
			}
		}
		if w.after < w.account.compacted && err == nil {
			err = account.Errorf(account.CodeGone, "compacted")
		}
		w.account.mu.Unlock()
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

func (w *fakeWatch) Close() {}

func (f *fakeAccount) UpsertOperator(_ context.Context, o account.Operator) (*account.Operator, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	o.ID = "op-1"
	f.operators = append(f.operators, o)
	return &o, nil
}

func (f *fakeAccount) registered() []account.Operator {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]account.Operator(nil), f.operators...)
}

var errDown = errors.New("dial tcp 10.99.0.2:8443: connect: connection refused")
