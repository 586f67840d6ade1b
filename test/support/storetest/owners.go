// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const clusterUID = "1f0c3a52-8d57-4d52-9c1e-0a5b5cf0a001"

// Owner returns the owner of an agent's endpoints that has this name.
func Owner(name string) *account.Owner {
	return &account.Owner{Cluster: clusterUID, Kind: account.KindAgentEndpoint, Namespace: "team-a", Name: name,
		UID: "uid-1"}
}

// OwnedRequest is a bind of poolURL for the owner.
func (f *Fixture) OwnedRequest(session string, owner *account.Owner) account.BindRequest {
	f.T.Helper()
	r := f.Request(session, poolURL)
	r.Owner = owner
	return r
}

// BindFor binds poolURL for the owner, later than whatever was before, and fails the test when it is
// refused.
func (f *Fixture) BindFor(session string, owner *account.Owner) *account.BindResult {
	f.T.Helper()
	f.Clock.Step(time.Millisecond)
	got, err := f.Store.Bind(f.ctx(), f.OwnedRequest(session, owner))
	Must(f.T, err)
	return got
}

// Sweep steps the clock and lets the store sweep.
func (f *Fixture) Sweep(after time.Duration) {
	f.T.Helper()
	f.Clock.Step(after)
	Must(f.T, f.Store.Sweep(f.ctx()))
}

// ids returns the ids of all endpoints with a mark for those that are offline, oldest first.
func (f *Fixture) ids() string {
	f.T.Helper()
	var all []string
	for _, e := range f.List().Endpoints {
		id := e.ID
		if e.Status == account.StatusOffline {
			id = "(" + id + ")"
		}
		all = append([]string{id}, all...)
	}
	return strings.Join(all, " ")
}

// owners tests that the endpoints of an owner share their URL among themselves, and with nothing
// else unless all pool.
var owners = map[string]func(*testing.T, Open){
	"owner: kept with its row": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start := f.List().Version
		got := f.BindFor(f.Session(), Owner("api"))
		Equal(t, "bound", *got.Endpoint.Owner, *Owner("api"))
		Equal(t, "oldest", got.OwnerEndpointID, got.Endpoint.ID)
		Equal(t, "read", *f.Endpoint(got.Endpoint.ID).Owner, *Owner("api"))
		Equal(t, "listed", *f.List().Endpoints[0].Owner, *Owner("api"))
		Equal(t, "event", *f.Expect(start, account.Added)[0].Endpoint.Owner, *Owner("api"))
		if plain := f.Bind(f.Session(), "http://plain.demo"); plain.Endpoint.Owner != nil ||
			plain.OwnerEndpointID != "" {
			t.Errorf("without an owner: %+v", plain)
		}
	},
	"owner: filter by cluster": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		own := f.BindFor(f.Session(), Owner("api")).Endpoint
		f.Bind(f.Session(), "http://plain.demo")
		elsewhere := Owner("api")
		elsewhere.Cluster = "2"
		r := f.Request(f.Session(), "http://other.demo")
		r.Owner = elsewhere
		_, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		page, err := f.Store.ListEndpoints(t.Context(), f.AccountID, account.EndpointFilter{OwnerCluster: clusterUID},
			account.Page{})
		Must(t, err)
		if len(page.Endpoints) != 1 || page.Endpoints[0].ID != own.ID {
			t.Errorf("listed %+v", page.Endpoints)
		}
	},
	"owner: invalid ones refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		for field, change := range map[string]func(*account.Owner){
			"owner.cluster":   func(o *account.Owner) { o.Cluster = "" },
			"owner.kind":      func(o *account.Owner) { o.Kind = account.KindCloudEndpoint },
			"owner.namespace": func(o *account.Owner) { o.Namespace = "Team" },
			"owner.name":      func(o *account.Owner) { o.Name = "a/b" },
			"owner.uid":       func(o *account.Owner) { o.UID = strings.Repeat("x", account.MaxUID+1) },
		} {
			owner := Owner("api.v1")
			change(owner)
			_, err := f.Store.Bind(t.Context(), f.OwnedRequest(session, owner))
			MustCode(t, err, account.CodeInvalid)
			if fields := account.FieldsOf(err); len(fields) != 1 || fields[0].Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	},
	"owner: replicas share the URL": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one, two := f.BindFor(f.Session(), Owner("api")), f.BindFor(f.Session(), Owner("api"))
		if one.Endpoint.ID == two.Endpoint.ID || two.ReplacedSessionID != "" {
			t.Fatalf("the second replica got %+v", two)
		}
		Equal(t, "rows", f.ids(), one.Endpoint.ID+" "+two.Endpoint.ID)
		Equal(t, "projection", two.Endpoint.ProjectionID, one.Endpoint.ID)
		Equal(t, "oldest", two.OwnerEndpointID, one.Endpoint.ID)
		Equal(t, "pooling", two.Endpoint.PoolingEnabled, false)
	},
	"owner: shares with others only if all pool": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		for _, c := range ownerRules {
			f.AccountID, f.TokenID = f.NewAccount(c.name) // accounts never share
			c.check(t, f)
		}
	},
	"owner: takes its offline row": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Session()
		one := f.BindFor(first, Owner("api")).Endpoint
		f.EndSession(first)
		again := Owner("api")
		again.UID = "uid-2" // deleted, and made again under its name
		got := f.BindFor(f.Session(), again).Endpoint
		Equal(t, "id", got.ID, one.ID)
		Equal(t, "uid", got.Owner.UID, "uid-2")
		Equal(t, "uid in the store", f.Endpoint(one.ID).Owner.UID, "uid-2")
	},
	"owner: live session keeps its row": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Session()
		one := f.BindFor(first, Owner("api"))
		second := f.Session()
		r := f.OwnedRequest(second, Owner("api"))
		r.ResumeSecret = account.NewSecret(account.ResumePrefix) // of nothing
		two, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		if two.Endpoint.ID == one.Endpoint.ID || two.ReplacedSessionID != "" {
			t.Fatalf("a wrong resume secret took %+v", two)
		}
		r = f.OwnedRequest(f.Session(), Owner("api"))
		r.ResumeSecret = one.ResumeSecret
		three, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "resumed", three.Endpoint.ID, one.Endpoint.ID)
		Equal(t, "replaced session", three.ReplacedSessionID, first)
		Equal(t, "oldest", three.OwnerEndpointID, one.Endpoint.ID)
	},
	"owner: session binds its row again": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other := f.BindFor(f.Session(), Owner("api"))
		session := f.Session()
		one := f.BindFor(session, Owner("api")).Endpoint
		r := f.OwnedRequest(session, Owner("api")) // the answer with its resume secret was lost
		r.Description = "changed"
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "id", got.Endpoint.ID, one.ID)
		Equal(t, "description", f.Endpoint(one.ID).Description, "changed")
		Equal(t, "rows", f.ids(), other.Endpoint.ID+" "+one.ID)
	},
	"owner: not adopted without one": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		one := f.BindFor(session, Owner("api")).Endpoint
		f.EndSession(session)
		f.Sweep(store.DefaultGrace + time.Second)
		for _, pools := range []bool{false, true} {
			r := f.Request(f.SessionOf("in-1"), poolURL)
			r.PoolingEnabled = pools
			_, err := f.Store.Bind(t.Context(), r)
			MustCode(t, err, account.CodeURLTaken)
			for _, part := range []string{"is taken by AgentEndpoint team-a/api of cluster " + clusterUID,
				"offline since",
				"fairlead api endpoints delete " + one.ID} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		}
		Equal(t, "rows", f.ids(), "("+one.ID+")")
	},
	"owner: does not adopt an agent's": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		agent := f.Bind(session, poolURL).Endpoint
		f.EndSession(session)
		r := f.OwnedRequest(f.Session(), Owner("api"))
		_, err := f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeURLTaken)
		for _, part := range []string{agent.ID + " of an agent", "offline since", "wait until then"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not contain %q", err, part)
			}
		}
		f.Sweep(store.DefaultGrace + time.Second)
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		if got.Endpoint.ID == agent.ID {
			t.Error("the owner got the agent's id")
		}
		Equal(t, "projection", got.Endpoint.ProjectionID, agent.ID)
	},
	"owner: pooling turned on and off": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		sessions := []string{f.Session(), f.Session()}
		bindAll := func(pools bool) {
			t.Helper()
			for _, session := range sessions {
				r := f.OwnedRequest(session, Owner("api"))
				r.PoolingEnabled = pools
				got, err := f.Store.Bind(t.Context(), r)
				Must(t, err)
				Equal(t, "pooling", f.Endpoint(got.Endpoint.ID).PoolingEnabled, pools)
			}
		}
		bindAll(false)
		stranger := f.Request(f.SessionOf("in-1"), poolURL)
		stranger.PoolingEnabled = true
		_, err := f.Store.Bind(t.Context(), stranger)
		MustCode(t, err, account.CodeURLTaken)
		bindAll(true)
		joined, err := f.Store.Bind(t.Context(), stranger)
		Must(t, err)
		Equal(t, "rows", len(f.List().Endpoints), 3)
		r := f.OwnedRequest(sessions[0], Owner("api"))
		_, err = f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeURLTaken)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, joined.Endpoint.ID, stranger.SessionID))
		bindAll(false)
	},
	"owner: concurrent binds get a row each": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		const replicas = 16
		var all sync.WaitGroup
		got := make([]*account.BindResult, replicas)
		for i := range replicas {
			r := f.OwnedRequest(f.Session(), Owner("api"))
			all.Go(func() {
				var err error
				if got[i], err = f.Store.Bind(t.Context(), r); err != nil {
					t.Errorf("bind %d: %v", i, err)
				}
			})
		}
		all.Wait()
		rows := map[string]bool{}
		for _, one := range got {
			rows[one.Endpoint.ID] = true
		}
		Equal(t, "rows", len(rows), replicas)
		Equal(t, "listed", len(f.List().Endpoints), replicas)
	},
	"owner: other account's is not seen": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one := f.BindFor(f.Session(), Owner("api"))
		f.AccountID, f.TokenID = f.NewAccount("other")
		r := f.OwnedRequest(f.Session(), Owner("api"))
		r.ResumeSecret = one.ResumeSecret
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		if got.Endpoint.ID == one.Endpoint.ID || got.ReplacedSessionID != "" || got.OwnerEndpointID != got.Endpoint.ID {
			t.Errorf("got %+v", got)
		}
		MustCode(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, one.Endpoint.ID),
			account.CodeNotFound)
	},
}

// ownerRule is a row of the table: an endpoint that has the URL, a bind with another owner or none,
// and its outcome.
type ownerRule struct {
	name          string
	holder, bind  string // names of owners; "" = none
	holds, pools  bool   // the holder's pooling, and the bind's
	lost          bool   // the holder's session has ended
	refused       bool
	messages      []string // parts of the refusal
	holderCluster string   // "" = clusterUID
}

var ownerRules = []ownerRule{
	{name: "another object", holder: "api", bind: "web", refused: true,
		messages: []string{"is taken by AgentEndpoint team-a/api of cluster " + clusterUID,
			"set poolingEnabled of this " +
				"object and poolingEnabled of that object"}},
	{name: "another object, offline", holder: "api", bind: "web", lost: true, refused: true,
		messages: []string{"AgentEndpoint team-a/api", "which is offline since"}},
	{name: "its name in another cluster", holder: "api", bind: "api", holderCluster: "2", refused: true,
		messages: []string{"AgentEndpoint team-a/api of cluster 2"}},
	{name: "another object, only the holder pools", holder: "api", bind: "web", holds: true, refused: true,
		messages: []string{"set poolingEnabled of this object"}},
	{name: "another object, only the new one pools", holder: "api", bind: "web", pools: true, refused: true,
		messages: []string{"or set poolingEnabled of that object, too"}},
	{name: "another object, both pool", holder: "api", bind: "web", holds: true, pools: true},
	{name: "another object, both pool, offline", holder: "api", bind: "web", holds: true, pools: true, lost: true},
	{name: "an agent beside an object", holder: "api", refused: true,
		messages: []string{"AgentEndpoint team-a/api", "start this agent with --pooling-enabled"}},
	{name: "an agent beside an object, both pool", holder: "api", holds: true, pools: true},
	{name: "an object beside an agent", bind: "api", refused: true,
		messages: []string{"is taken by tunnel session", "start that agent with --pooling-enabled"}},
	{name: "an object beside an agent that pools", bind: "api", holds: true, refused: true,
		messages: []string{"is taken by tunnel session", "set poolingEnabled of this object"}},
	{name: "an object that pools beside an agent", bind: "api", pools: true, refused: true,
		messages: []string{"is taken by tunnel session", "that agent does not share it"}},
	{name: "an object beside an agent, both pool", bind: "api", holds: true, pools: true},
	{name: "an object beside an agent, both pool, offline", bind: "api", holds: true, pools: true, lost: true},
}

func (c *ownerRule) check(t *testing.T, f *Fixture) {
	t.Helper()
	request := func(name, cluster string, pools bool) account.BindRequest {
		r := f.Request(f.SessionOf("in-"+name), poolURL)
		r.PoolingEnabled = pools
		if name != "" {
			if r.Owner = Owner(name); cluster != "" {
				r.Owner.Cluster = cluster
			}
		}
		return r
	}
	holder := request(c.holder, c.holderCluster, c.holds)
	had, err := f.Store.Bind(t.Context(), holder)
	Must(t, err)
	if c.lost {
		f.EndSession(holder.SessionID)
	}
	before := f.List()
	got, err := f.Store.Bind(t.Context(), request(c.bind, "", c.pools))
	if !c.refused {
		if err != nil || got.Endpoint.ID == had.Endpoint.ID || len(f.List().Endpoints) != 2 {
			t.Errorf("%s: %+v, %v, want a new row", c.name, got, err)
		}
		return
	}
	if account.CodeOf(err) != account.CodeURLTaken {
		t.Errorf("%s: %v, want code %s", c.name, err, account.CodeURLTaken)
		return
	}
	for _, text := range c.messages {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not contain %q", c.name, err, text)
		}
	}
	f.Expect(before.Version) // a refusal changes nothing
}
