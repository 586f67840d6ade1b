// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// cloudState is all that a restore brings back of domains, backends and cloud endpoints.
type cloudState struct {
	Domains   []account.Domain
	Tree      *account.BackendTree
	ByBackend *account.Endpoint
	ByPolicy  *account.Endpoint
	Public    *account.Endpoint
	Export    *account.Endpoint
	Claimed   string // why another cluster cannot have the id of the one that exports
}

type cloudFixture struct {
	*storetest.Fixture
	order, byBackend, byPolicy, export string
}

func newCloudFixture(t *testing.T, opt store.Options) *cloudFixture {
	f := &cloudFixture{Fixture: storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DataDir, o.DatabaseURL = opt.DataDir, opt.DatabaseURL
		return store.Open(context.WithoutCancel(t.Context()), o)
	})}
	_, err := f.Store.GrantDomain(t.Context(), f.AccountID, "*.example.com")
	storetest.Must(t, err)
	f.order = f.Failover(f.Static().ID, f.HTTPResponse().ID).ID
	one := f.Cloud("http://by-backend.demo")
	one.BackendID = f.order
	f.byBackend = f.MakeCloud(one).ID
	two := f.Cloud("http://by-policy.demo")
	two.TrafficPolicy = "hush-hush"
	f.byPolicy = f.MakeCloud(two).ID
	three, u := f.Cloud("http://placeholder.demo"), account.EndpointURL{Scheme: "https", Host: "shop.example.com",
		Port: 443}
	three.URL, three.Scheme, three.Host, three.Port, three.Bindings = u.String(), u.Scheme, u.Host, u.Port,
		[]string{account.BindingPublic}
	three.TrafficPolicy = "hush-hush"
	f.MakeCloud(three)
	f.export = f.MakeCloud(f.Export("hello", "a", "one")).ID
	return f
}

// state reads everything. When and by which version it was read is left out: a restore begins a new
// epoch.
func (f *cloudFixture) state() (s cloudState) {
	f.T.Helper()
	ctx := f.T.Context()
	var err error
	s.Domains, err = f.Store.ListDomains(ctx, f.AccountID)
	storetest.Must(f.T, err)
	s.Tree, err = f.Store.BackendTree(ctx, f.AccountID, f.order)
	storetest.Must(f.T, err)
	s.ByBackend, s.ByPolicy = f.Endpoint(f.byBackend), f.Endpoint(f.byPolicy)
	s.Public, err = f.Store.PublicEndpoint(ctx, "shop.example.com", 443)
	storetest.Must(f.T, err)
	s.Export = f.Endpoint(f.export)
	_, err = f.Store.CreateEndpoint(ctx, f.Export("other", "a", "two"), account.PolicyFacts{})
	storetest.MustCode(f.T, err, account.CodeInUse)
	s.Claimed = err.Error()
	for _, e := range []*account.Endpoint{s.ByBackend, s.ByPolicy, s.Public, s.Export} {
		e.ResourceVersion = account.ResourceVersion{}
	}
	return s
}

// spoil changes all of it.
func (f *cloudFixture) spoil() {
	f.T.Helper()
	ctx, by := f.T.Context(), account.Caller{AccountID: f.AccountID, PrincipalID: "ak-someone"}
	_, err := f.Store.PatchEndpoint(ctx, by, f.byPolicy, account.EndpointPatch{TrafficPolicy: new("another")},
		storetest.FactsOf("another"))
	storetest.Must(f.T, err)
	storetest.Must(f.T, f.Store.DeleteEndpoint(ctx, by, f.byBackend))
	_, err = f.Store.PatchBackend(ctx, by, account.BackendFailover, f.order,
		account.BackendPatch{Children: &[]string{f.HTTPResponse().ID}})
	storetest.Must(f.T, err)
	storetest.Must(f.T, f.Store.RevokeDomain(ctx, f.AccountID, "*.example.com"))
	storetest.Must(f.T, f.Store.DeleteEndpoint(ctx, by, f.export))
	f.MakeCloud(f.Export("hello", "a", "two"))
}

// TestRestore_RestoresDomainsBackendsAndEndpoints: they are, on both engines, with their
// policies, which neither copy shows.
func TestRestore_RestoresDomainsBackendsAndEndpoints(t *testing.T) {
	t.Parallel()
	bring := func(t *testing.T, opt store.Options, backup func() []byte, restore func(f *cloudFixture)) {
		f := newCloudFixture(t, opt)
		before, copied := f.state(), backup()
		if bytes.Contains(copied, []byte("hush-hush")) {
			t.Error("the backup shows a traffic policy")
		}
		f.spoil()
		storetest.Must(t, f.Store.Close())
		restore(f)
		f.Reopen()
		storetest.Must(t, f.Store.CheckKey(t.Context()))
		if diff := cmp.Diff(before, f.state()); diff != "" {
			t.Errorf("before (-) and after (+) the restore:\n%s", diff)
		}
		// It is in use, not only there: what a cloud endpoint refers to cannot be deleted.
		err := f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendFailover,
			f.order)
		storetest.MustCode(t, err, account.CodeInUse)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		opt, file := store.Options{DataDir: t.TempDir()}, filepath.Join(t.TempDir(), "backup.db")
		bring(t, opt, func() []byte {
			storetest.Must(t, store.Backup(t.Context(), opt.DataDir, file))
			b, err := os.ReadFile(file)
			storetest.Must(t, err)
			return b
		}, func(f *cloudFixture) {
			_, err := store.Restore(t.Context(), store.Options{DataDir: opt.DataDir, Clock: f.Clock.Now}, file)
			storetest.Must(t, err)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := postgres.Server(t)
		opt := store.Options{DataDir: t.TempDir(), DatabaseURL: server.URL(t)}
		var dump []byte
		bring(t, opt, func() []byte {
			dump = server.Dump(t, opt.DatabaseURL)
			return dump
		}, func(f *cloudFixture) {
			server.Restore(t, opt.DatabaseURL, dump)
			_, err := store.NewEpoch(t.Context(), store.Options{DataDir: opt.DataDir, DatabaseURL: opt.DatabaseURL,
				Clock: f.Clock.Now})
			storetest.Must(t, err)
		})
	})
}
