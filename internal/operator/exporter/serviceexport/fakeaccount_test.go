// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
)

// fakeAccount has the records of an account, with a log of events.
type fakeAccount struct {
	mu     sync.Mutex
	rows   map[string]account.Endpoint
	log    []account.EndpointEvent // the n-th has the version 1-n+1
	wake   []chan struct{}
	calls  []string
	refuse func(call, url string) error // instead of a call
	lose   func(call string) bool       // the answer
	isGone bool                         // the next watch's version
	lists  int
}

func (a *fakeAccount) do(call, url string, change func() *account.Endpoint) (*account.Endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, call+" "+url)
	if a.refuse != nil {
		if err := a.refuse(call, url); err != nil {
			return nil, err
		}
	}
	made := change()
	if made == nil {
		return nil, account.Errorf(account.CodeNotFound, "no endpoint")
	}
	if a.lose != nil && a.lose(call) {
		return nil, account.Errorf(account.CodeUnreachable, "the answer was lost")
	}
	return made, nil
}

// note logs an event about a row. mu must be held.
func (a *fakeAccount) note(typ account.EventType, e account.Endpoint) *account.Endpoint {
	e.ResourceVersion = account.ResourceVersion{Epoch: 1, Seq: int64(len(a.log) + 1)}
	if typ == account.Deleted {
		delete(a.rows, e.ID)
	} else {
		a.rows[e.ID] = e
	}
	a.log = append(a.log, account.EndpointEvent{Type: typ, ResourceVersion: e.ResourceVersion, Endpoint: &e})
	for _, wake := range a.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	return &e
}

// add makes a record of any cluster.
func (a *fakeAccount) add(e account.Endpoint) *account.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.ID, e.Type, e.CreatedAt = fmt.Sprintf("ep-%04d", len(a.log)), account.TypeCloud, time.Now()
	return a.note(account.Added, e)
}

// remove deletes a record, as another does.
func (a *fakeAccount) remove(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(account.Deleted, a.rows[id])
}

func (a *fakeAccount) of(cluster string, name types.NamespacedName) (own []account.Endpoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.rows {
		if e.Owner.Cluster == cluster && e.Owner.Namespace == name.Namespace && e.Owner.Name == name.Name {
			own = append(own, e)
		}
	}
	return own
}

func (a *fakeAccount) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.calls
	a.calls = nil
	return taken
}

// set changes what fails.
func (a *fakeAccount) set(refuse func(call, url string) error, lose func(call string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse, a.lose = refuse, lose
}

// listCount returns how many lists were read.
func (a *fakeAccount) listCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists
}

// ListEndpoints implements Account.
func (a *fakeAccount) ListEndpoints(context.Context, account.EndpointFilter) (*apiclient.EndpointSnapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	if a.refuse != nil {
		if err := a.refuse("LIST", ""); err != nil {
			return nil, err
		}
	}
	return &apiclient.EndpointSnapshot{Endpoints: slices.Collect(maps.Values(a.rows)),
		Version: account.ResourceVersion{Epoch: 1, Seq: int64(len(a.log))}}, nil
}

// CreateEndpoint implements Account.
func (a *fakeAccount) CreateEndpoint(_ context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return a.do("POST", e.URL, func() *account.Endpoint {
		e.ID, e.Type, e.CreatedAt = fmt.Sprintf("ep-%04d", len(a.log)), account.TypeCloud, time.Now()
		return a.note(account.Added, e)
	})
}

// PatchEndpoint implements Account.
func (a *fakeAccount) PatchEndpoint(
	_ context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return a.do("PATCH", id, func() *account.Endpoint {
		e, ok := a.rows[id]
		if !ok {
			return nil
		}
		e.ServiceExport = p.ServiceExport
		if owner != nil {
			e.Owner = owner
		}
		return a.note(account.Modified, e)
	})
}

// DeleteEndpoint implements Account.
func (a *fakeAccount) DeleteEndpoint(_ context.Context, id string) error {
	_, err := a.do("DELETE", id, func() *account.Endpoint {
		e, ok := a.rows[id]
		if !ok {
			return nil
		}
		return a.note(account.Deleted, e)
	})
	return err
}

// watch is a WatchFunc.
func (a *fakeAccount) watch(
	ctx context.Context, _ account.EndpointFilter, v account.ResourceVersion,
) (apiclient.EndpointWatch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isGone {
		a.isGone = false
		return nil, account.Errorf(account.CodeGone, "the version is gone")
	}
	w := &fakeWatch{ctx: ctx, account: a, next: int(v.Seq), wake: make(chan struct{}, 1)}
	a.wake = append(a.wake, w.wake)
	return w, nil
}

type fakeWatch struct {
	ctx     context.Context
	account *fakeAccount
	next    int
	wake    chan struct{}
}

// Next implements Watch.
func (w *fakeWatch) Next() (account.EndpointEvent, error) {
	for {
		w.account.mu.Lock()
		if log := w.account.log; w.next < len(log) {
			w.next++
			w.account.mu.Unlock()
			return log[w.next-1], nil
		}
		w.account.mu.Unlock()
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return account.EndpointEvent{}, io.EOF
		}
	}
}

// Close implements Watch.
func (w *fakeWatch) Close() {}
