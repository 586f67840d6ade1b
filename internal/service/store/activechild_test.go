// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// recordActive records changes of a failover's active child, each "SERVER FROM TO" with ? for a
// child that is not known and - for none.
func recordActive(f *storetest.Fixture, servers map[string]*store.Store, failover string, changes ...string) {
	f.T.Helper()
	child := func(name string) *string {
		if name == "?" {
			return nil
		}
		name = strings.Trim(name, "-")
		return &name
	}
	for _, one := range changes {
		parts := strings.Fields(one)
		storetest.Must(f.T, servers[parts[0]].RecordActiveChild(f.T.Context(), account.ActiveChildChange{
			AccountID: f.AccountID, BackendID: failover, From: child(parts[1]), To: child(parts[2])}))
	}
}

// switchEvents returns the switches of the failover that have events, the oldest first.
func switchEvents(f *storetest.Fixture, failover string) string {
	f.T.Helper()
	page, err := f.Store.AuditEvents(f.T.Context(), f.AccountID,
		account.AuditFilter{Type: account.AuditBackendSwitched, ObjectID: failover}, account.Page{})
	storetest.Must(f.T, err)
	var all []string
	for _, e := range slices.Backward(page.Events) {
		all = append(all, e.Details["from"]+">"+e.Details["to"])
	}
	return strings.Join(all, " ")
}

// TestRecordActiveChild_OneEventPerSwitch records what several replicas find of one failover.
func TestRecordActiveChild_OneEventPerSwitch(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	servers := map[string]*store.Store{}
	for _, id := range []string{"one", "two", "three"} {
		servers[id] = startReplica(t, opt.DatabaseURL, id).Store
	}
	for name, c := range map[string]struct {
		changes []string
		want    string
	}{
		"first known": {[]string{"one ? a", "two ? a"}, ""},
		"all find the same": {[]string{"one ? a", "two ? a", "three ? a", "one a b", "two a b", "three a b",
			"two b a", "one b a", "three b a"}, "a>b b>a"},
		"none is up":  {[]string{"one ? a", "two ? a", "one a -", "two a -", "two - a", "one - a"}, "a> >a"},
		"one is late": {[]string{"one ? a", "two ? a", "one a b", "one b c", "two a b", "two b c"}, "a>b b>c"},
		"one differs": {[]string{"one ? a", "two ? a", "three ? a", "one a b", // and stays there
			"two a b", "three a b", "two b a", "three b a"}, "a>b b>a"},
		"one differs, and the others switch elsewhere": {[]string{"one ? a", "two ? a", "one a b", "two a c", "two c a",
			"two a c", "one b a"}, "a>b b>a"},
		"one has begun anew": {[]string{"one ? a", "two ? a", "one a b", "two a b", "two b ?", "two ? a", "two a b",
			"one b a"}, "a>b b>a"},
		"all have begun anew": {[]string{"one ? a", "two ? a", "one a b", "two a b", "one b ?", "two b ?", "two ? a",
			"two a b", "one ? a", "one a b"}, "a>b a>b"},
		"the one that differed has forgotten": {[]string{"one ? a", "two ? a", "one a b", "one b ?", "two a c"},
			"a>b b>c"},
		"the other switches later": {[]string{"one ? a", "two ? a", "one a b", "one b ?", "two a b"},
			"a>b"},
		"the first known child was not written": {[]string{"two ? a", "one a b"}, "a>b"},
		"a switch was not written":              {[]string{"one ? a", "two ? a", "one b c"}, "a>c"},
	} {
		t.Run(name, func(t *testing.T) {
			g := *f
			g.T = t
			failover := g.Failover(g.Static().ID, g.HTTPResponse().ID).ID
			recordActive(&g, servers, failover, c.changes...)
			storetest.Equal(t, "events", switchEvents(&g, failover), c.want)
		})
	}
}

// TestRecordActiveChild_DropsDepartedReplica holds that what a replica found ends with it, and that
// nothing is recorded about a deleted failover.
func TestRecordActiveChild_DropsDepartedReplica(t *testing.T) {
	t.Parallel()
	f, opt := postgresFixture(t, postgres.Server(t).URL(t))
	one, two := startReplica(t, opt.DatabaseURL, "one"), startReplica(t, opt.DatabaseURL, "two")
	servers := map[string]*store.Store{"one": one.Store, "two": two.Store}
	failover := f.Failover(f.Static().ID, f.HTTPResponse().ID).ID
	recordActive(f, servers, failover, "one ? a", "two ? a", "two a b")
	active := func(accountID string, want map[string]map[string]string) {
		t.Helper()
		got, err := f.Store.ActiveChildren(t.Context(), accountID, []string{failover, "bkdfo-none"})
		storetest.Must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("active children: (-want +got)\n%s", diff)
		}
	}
	active(f.AccountID, map[string]map[string]string{failover: {"one": "a", "two": "b"}})
	other, _ := f.NewAccount("other")
	active(other, map[string]map[string]string{})
	storetest.Must(t, two.Leave(t.Context()))
	active(f.AccountID, map[string]map[string]string{failover: {"one": "a"}})
	recordActive(f, servers, failover, "one a c")
	storetest.Equal(t, "events", switchEvents(f, failover), "a>b b>c")
	storetest.Must(t, f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: f.AccountID},
		account.BackendFailover, failover))
	recordActive(f, servers, failover, "one c a")
	storetest.Equal(t, "events", switchEvents(f, failover), "a>b b>c")
	active(f.AccountID, map[string]map[string]string{})
}

// TestRecordActiveChild_OneServer holds that a server that is alone writes each of its switches.
func TestRecordActiveChild_OneServer(t *testing.T) {
	t.Parallel()
	f := storetest.NewFixture(t, func(o store.Options) (*store.Store, error) {
		o.DataDir = t.TempDir()
		return store.Open(t.Context(), o)
	})
	failover := f.Failover(f.Static().ID, f.HTTPResponse().ID).ID
	recordActive(f, map[string]*store.Store{"it": f.Store}, failover, "it ? a", "it a b", "it b ?", "it ? a", "it a b")
	storetest.Equal(t, "events", switchEvents(f, failover), "a>b a>b")
}
