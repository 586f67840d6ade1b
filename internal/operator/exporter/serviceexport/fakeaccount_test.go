// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/test/support/fakeaccount"
)

// fakeAccount is an account whose calls are recorded, and fail as a test wants.
type fakeAccount struct {
	*fakeaccount.Account
	made atomic.Int32 // records, which are numbered

	mu     sync.Mutex // guards the rest
	calls  []string
	refuse func(call, url string) error // instead of a call
	lose   func(call string) bool       // the answer
	isGone bool                         // the next watch's version
	lists  int
}

// do makes a call whose change is of one endpoint; nil: there is none.
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

// add makes a record of any cluster.
func (a *fakeAccount) add(e account.Endpoint) *account.Endpoint {
	e.ID, e.Type, e.CreatedAt = fmt.Sprintf("ep-%04d", a.made.Add(1)), account.TypeCloud, time.Now()
	made := a.Put(e)
	return &made
}

func (a *fakeAccount) of(cluster string, name types.NamespacedName) (own []account.Endpoint) {
	for _, e := range a.Endpoints() {
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

// endVersion makes the version of the next watch one that is gone.
func (a *fakeAccount) endVersion() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isGone = true
}

// listCount returns how many lists were read.
func (a *fakeAccount) listCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists
}

// ListEndpoints implements Account.
func (a *fakeAccount) ListEndpoints(
	ctx context.Context, _ account.EndpointFilter,
) (*apiclient.EndpointSnapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	if a.refuse != nil {
		if err := a.refuse("LIST", ""); err != nil {
			return nil, err
		}
	}
	s, err := a.List(ctx)
	return &apiclient.EndpointSnapshot{Endpoints: s.Endpoints, Version: s.Version}, err
}

// CreateEndpoint implements Account.
func (a *fakeAccount) CreateEndpoint(_ context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return a.do("POST", e.URL, func() *account.Endpoint { return a.add(e) })
}

// PatchEndpoint implements Account.
func (a *fakeAccount) PatchEndpoint(
	_ context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return a.do("PATCH", id, func() *account.Endpoint {
		e, ok := a.Endpoints()[id]
		if !ok {
			return nil
		}
		e.ServiceExport = p.ServiceExport
		if owner != nil {
			e.Owner = owner
		}
		e = a.Put(e)
		return &e
	})
}

// DeleteEndpoint implements Account.
func (a *fakeAccount) DeleteEndpoint(_ context.Context, id string) error {
	_, err := a.do("DELETE", id, func() *account.Endpoint {
		e, ok := a.Endpoints()[id]
		if !ok {
			return nil
		}
		a.Delete(id)
		return &e
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
	return a.Watch(ctx, v)
}
