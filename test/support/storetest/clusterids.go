// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// clusterIDs tests that a cluster id of the binding clusterset is one cluster's, and how long.
var clusterIDs = map[string]func(*testing.T, Open){
	"cluster id: one cluster's": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made, session := f.MakeCloud(f.Export("hello", "a", "one")), f.Session()
		before := f.List().Version
		theirs := f.Export("other", "a", "two")
		mustSay(t, f.createCloud(theirs), account.CodeInUse, `"a" is that of cluster one`, made.ID, "another id",
			"--owner-cluster one")
		mustSay(t, f.bindPort(session, theirs, 42), account.CodeInUse, "cluster one")
		f.Expect(before)
		Must(t, f.createCloud(f.Export("other", "b", "two")))
		moved := f.Export("third", "c", "one")
		mustSay(t, f.createCloud(moved), account.CodeInUse, `under the cluster id "a"`, `the id "c"`, "keep the id")
		mustSay(t, f.bindPort(session, moved, 42), account.CodeInUse, "keep the id")
		mustSay(t, f.createCloud(f.Export("third", "b", "one")), account.CodeInUse)
		Must(t, f.createCloud(f.Export("third", "a", "one")))
		f.Restart()
		MustCode(t, f.createCloud(theirs), account.CodeInUse)
	},
	"cluster id: claimed by a port": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		Must(t, f.bindPort(session, f.Export("hello", "a", "one"), 42))
		mustSay(t, f.createCloud(f.Export("hello", "a", "two")), account.CodeInUse, "cluster one")
		f.EndSession(session) // its row stays
		MustCode(t, f.createCloud(f.Export("hello", "a", "two")), account.CodeInUse)
		f.Sweep(store.DefaultOwnedGrace)
		Must(t, f.createCloud(f.Export("hello", "a", "two")))
	},
	"cluster id: free without exports": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		made := f.MakeCloud(f.Export("hello", "a", "one"))
		Must(t, f.Store.DeleteEndpoint(t.Context(), by, made.ID))
		renamed := f.MakeCloud(f.Export("hello", "b", "one"))
		theirs := f.MakeCloud(f.Export("hello", "a", "two"))
		MustCode(t, f.createCloud(f.Export("other", "a", "one")), account.CodeInUse)
		Must(t, f.Store.DeleteEndpoint(t.Context(), by, theirs.ID))
		MustCode(t, f.createCloud(f.Export("other", "a", "one")), account.CodeInUse) // one has b
		Must(t, f.Store.DeleteEndpoint(t.Context(), by, renamed.ID))
		Must(t, f.createCloud(f.Export("other", "a", "one")))
		MustCode(t, f.createCloud(f.Export("hello", "a", "two")), account.CodeInUse)
		Must(t, f.createCloud(f.Export("hello", "b", "two")))
	},
	"cluster id: other endpoints claim none": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		owner := Owner("api")
		owner.Cluster = "one"
		f.BindFor(f.Session(), owner)
		made := f.MakeCloud(f.Export("hello", "a", "one"))
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID))
		Must(t, f.createCloud(f.Export("hello", "a", "two")))
	},
	"cluster id: one in each account": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		f.MakeCloud(f.Export("hello", "a", "one"))
		theirs := f.Export("hello", "a", "two")
		theirs.AccountID = other
		f.MakeCloud(theirs)
		theirs = f.Export("more", "b", "one")
		theirs.AccountID = other
		f.MakeCloud(theirs)
	},
	"cluster id: claimed by many at once": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		const clusters = 8
		errs := make([]error, 2*clusters)
		var all sync.WaitGroup
		for i := range clusters {
			export, session := f.Export("hello", "a", string(rune('s'+i))), f.Session()
			r := f.ExportedPort(session, export, 42)
			all.Go(func() { errs[2*i] = f.createCloud(export) })
			all.Go(func() { _, errs[2*i+1] = f.Store.Bind(t.Context(), r) })
		}
		all.Wait()
		owners := map[string]bool{}
		for _, e := range f.List().Endpoints {
			owners[e.Owner.Cluster] = true
		}
		refused := 0
		for _, err := range errs {
			if err != nil {
				MustCode(t, err, account.CodeInUse)
				refused++
			}
		}
		Equal(t, "clusters with the id", len(owners), 1)
		Equal(t, "refused", refused, 2*clusters-2)
	},
	"cluster id: exports of a vanished cluster are deleted": vanishedCluster,
	"cluster id: tokens of its ServiceAccounts keep exports": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		c := f.NewCluster("prod", "k1")
		Must(t, f.Store.PinCluster(t.Context(), f.AccountID, c.Subjects[2].ID, "there"))
		f.MakeCloud(f.Export("hello", "b", "there"))
		for range 16 {
			f.Store.MarkClusterUsed(c.ID)
			f.Sweep(24 * time.Hour)
		}
		Equal(t, "records while tokens are used", len(f.records()), 1)
		for range 8 {
			f.Sweep(24 * time.Hour)
		}
		Equal(t, "records a week later", len(f.records()), 0)
	},
	"cluster id: an outage deletes no export": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.MakeCloud(f.Export("hello", "a", "one"))
		f.Clock.Step(2 * store.DefaultOwnedGrace)
		f.Restart()
		f.Sweep(time.Hour - time.Second)
		Equal(t, "records before exporters are back", len(f.records()), 1)
		f.Sweep(time.Second)
		Equal(t, "records", len(f.records()), 0)
	},
}

// vanishedCluster deletes the exports of a cluster whose keys were not used for a week: neither
// those of a cluster that is there, nor at once when a key is deleted.
func vanishedCluster(t *testing.T, open Open) {
	f := NewFixture(t, open)
	by := account.Caller{AccountID: f.AccountID}
	keyOf := func(uid string) *account.APIKey {
		return f.NewExporterKey(func(p *account.APIKeyPatch) { p.ClusterUID = &uid })
	}
	use := func(k *account.APIKey) {
		_, err := f.Store.APIKeyBySecret(t.Context(), *k.Token)
		Must(t, err)
	}
	gone, there, rotated := keyOf("gone"), keyOf("there"), keyOf("rotated")
	dead, alive := f.MakeCloud(f.Export("hello", "a", "gone")), f.MakeCloud(f.Export("hello", "b", "there"))
	f.MakeCloud(f.Export("hello", "c", "rotated"))
	session := f.Session()
	Must(t, f.bindPort(session, f.Export("hello", "a", "gone"), 42))
	for range 8 {
		use(gone)
		use(there)
		use(rotated)
		f.Sweep(24 * time.Hour)
	}
	Equal(t, "records while keys are used", len(f.records()), 3)
	use(gone)
	use(rotated)
	f.Sweep(time.Hour)
	Must(t, f.Store.DeleteAPIKey(t.Context(), by, gone.ID))
	Must(t, f.Store.DeleteAPIKey(t.Context(), by, rotated.ID))
	for range 6 {
		use(there)
		f.Sweep(24 * time.Hour)
	}
	Equal(t, "records six days after their keys", len(f.records()), 3)
	rotated = keyOf("rotated")
	use(rotated)
	use(there)
	f.MakeCloud(f.Export("young", "a", "gone"))
	before := f.List().Version
	f.Sweep(24 * time.Hour)
	deleted := f.Expect(before, account.Deleted)[0].Endpoint
	Equal(t, "deleted", deleted.ID, dead.ID)
	Equal(t, "a record that is there", f.Endpoint(alive.ID).ID, alive.ID)
	Equal(t, "records", len(f.records()), 3) // with the young one
	f.EndSession(session)
	for range 8 {
		use(rotated)
		use(there)
		f.Sweep(24 * time.Hour)
	}
	Equal(t, "endpoints", len(f.List().Endpoints), 2)
	Must(t, f.createCloud(f.Export("hello", "a", "another")))
}
