// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// publishedWrites are calls of a publishingStore, and what they change.
type publishedWrites struct {
	*publishingStore
	by       account.Caller
	key      *account.APIKey
	token    *account.Authtoken
	operator *account.Operator
	backend  *account.Backend
	endpoint *account.Endpoint
	cluster  *account.Cluster
}

func newPublishedWrites(t *testing.T, s *publishingStore, accountID string) *publishedWrites {
	t.Helper()
	ctx := t.Context()
	w := &publishedWrites{publishingStore: s, by: account.Caller{AccountID: accountID}}
	admin := []account.Scope{account.ScopeAdmin}
	_, err := s.CreateAPIKey(ctx, w.by, account.APIKeyPatch{Scopes: &admin}) // that stays
	storetest.Must(t, err)
	w.key, err = s.CreateAPIKey(ctx, w.by, account.APIKeyPatch{Scopes: &admin})
	storetest.Must(t, err)
	w.token, err = s.CreateAuthtoken(ctx, w.by, account.AuthtokenPatch{})
	storetest.Must(t, err)
	w.operator, _, err = s.UpsertOperator(ctx, account.Operator{AccountID: accountID})
	storetest.Must(t, err)
	w.backend, err = s.CreateBackend(ctx, w.by, account.Backend{Kind: account.BackendHTTPResponse,
		Response: &account.HTTPResponse{StatusCode: 200}})
	storetest.Must(t, err)
	w.endpoint, err = s.CreateEndpoint(ctx, account.Endpoint{AccountID: accountID, URL: "http://a.demo",
		Scheme: "http", Host: "a.demo", Port: 80, Bindings: []string{account.BindingKubernetes}}, account.PolicyFacts{})
	storetest.Must(t, err)
	w.cluster, err = s.CreateCluster(ctx, w.by, storetest.ClusterPatch(t, "prod", "k-1"))
	storetest.Must(t, err)
	return w
}

// calls are the writes by the names of their methods.
func (w *publishedWrites) calls() map[string]func(ctx context.Context) error {
	text := "changed"
	return map[string]func(ctx context.Context) error{
		"PatchAPIKey": func(ctx context.Context) error {
			_, err := w.PatchAPIKey(ctx, w.by, w.key.ID, account.APIKeyPatch{Description: &text})
			return err
		},
		"PatchAuthtoken": func(ctx context.Context) error {
			_, err := w.PatchAuthtoken(ctx, w.by, w.token.ID, account.AuthtokenPatch{Description: &text})
			return err
		},
		"PatchBackend": func(ctx context.Context) error {
			_, err := w.PatchBackend(ctx, w.by, w.backend.Kind, w.backend.ID, account.BackendPatch{Description: &text})
			return err
		},
		"PatchEndpoint": func(ctx context.Context) error {
			_, err := w.PatchEndpoint(ctx, w.by, w.endpoint.ID, account.EndpointPatch{Description: &text},
				account.PolicyFacts{})
			return err
		},
		"PatchCluster": func(ctx context.Context) error {
			_, err := w.PatchCluster(ctx, w.by, w.cluster.ID, account.ClusterPatch{Description: &text})
			return err
		},
		"DeleteCluster":   func(ctx context.Context) error { return w.DeleteCluster(ctx, w.by, w.cluster.ID) },
		"DeleteAPIKey":    func(ctx context.Context) error { return w.DeleteAPIKey(ctx, w.by, w.key.ID) },
		"DeleteAuthtoken": func(ctx context.Context) error { return w.DeleteAuthtoken(ctx, w.by, w.token.ID) },
		"DeleteOperator":  func(ctx context.Context) error { return w.DeleteOperator(ctx, w.by, w.operator.ID) },
		"DeleteEndpoint":  func(ctx context.Context) error { return w.DeleteEndpoint(ctx, w.by, w.endpoint.ID) },
		"DeleteBackend": func(ctx context.Context) error {
			return w.DeleteBackend(ctx, w.by, w.backend.Kind, w.backend.ID)
		},
	}
}

// state describes all that the writes change, as the store has it.
func (w *publishedWrites) state(ctx context.Context) string {
	var text []string
	add := func(description string, err error) { text = append(text, description+string(account.CodeOf(err))) }
	if k, err := w.APIKey(ctx, w.by.AccountID, w.key.ID); err == nil {
		add(k.Description, nil)
	} else {
		add("", err)
	}
	if a, err := w.Authtoken(ctx, w.by.AccountID, w.token.ID); err == nil {
		add(a.Description, nil)
	} else {
		add("", err)
	}
	if c, err := w.Cluster(ctx, w.by.AccountID, w.cluster.ID); err == nil {
		add(c.Description, nil)
	} else {
		add("", err)
	}
	if b, err := w.Backend(ctx, w.by.AccountID, w.backend.Kind, w.backend.ID); err == nil {
		add(b.Description, nil)
	} else {
		add("", err)
	}
	if e, err := w.Endpoint(ctx, w.by.AccountID, w.endpoint.ID); err == nil {
		add(e.Description, nil)
	} else {
		add("", err)
	}
	_, err := w.Operator(ctx, w.by.AccountID, w.operator.ID)
	add("", err)
	return strings.Join(text, "|")
}

// changeFunc is a changeListener.
type changeFunc func(ctx context.Context, accountID string, ids ...string)

func (f changeFunc) AccessChanged(ctx context.Context, accountID string, ids ...string) {
	f(ctx, accountID, ids...)
}

// unpublishedWrites change nothing that any server keeps.
var unpublishedWrites = []string{"PatchOperator"}

// TestPublishingStore_PublishesEveryWrite calls every method with which the API and the dashboard
// delete or change, and checks that it is published once, after it was committed.
func TestPublishingStore_PublishesEveryWrite(t *testing.T) {
	t.Parallel()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = t.TempDir()
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	var seen []string
	var cancel context.CancelFunc // of the call
	s := &publishingStore{Store: f.Store}
	w := newPublishedWrites(t, s, f.AccountID)
	s.changes = changeFunc(func(ctx context.Context, accountID string, _ ...string) {
		cancel() // as a client that is gone
		if err := ctx.Err(); err != nil || accountID != f.AccountID {
			t.Errorf("published for %q, %v", accountID, err)
		}
		seen = append(seen, w.state(ctx))
	})
	calls := w.calls()
	var names []string
	for _, of := range []reflect.Type{reflect.TypeFor[apiserver.Store](), reflect.TypeFor[dashboard.Store]()} {
		for i := range of.NumMethod() {
			name := of.Method(i).Name
			if (strings.HasPrefix(name, "Delete") || strings.HasPrefix(name, "Patch")) &&
				!slices.Contains(unpublishedWrites, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	slices.Reverse(names) // patches before deletions, and the endpoint before the backend
	for _, name := range names {
		before := w.state(t.Context())
		if calls[name] == nil {
			t.Errorf("%s has no test", name)
			continue
		}
		seen = nil
		ctx, cancelCall := context.WithCancel(t.Context())
		cancel = cancelCall
		err := calls[name](ctx)
		cancelCall()
		storetest.Must(t, err)
		if after := w.state(t.Context()); len(seen) != 1 || seen[0] != after || after == before {
			t.Errorf("%s: published with %q; before %q, after %q", name, seen, before, after)
		}
	}
	seen = nil
	storetest.MustCode(t, s.DeleteAPIKey(t.Context(), w.by, w.key.ID), account.CodeNotFound)
	if len(seen) != 0 {
		t.Error("a write that failed is published")
	}
}
