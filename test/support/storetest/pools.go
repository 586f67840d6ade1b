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

// pools tests that a URL is shared only by endpoints that all pool, each with a row of its own.
var pools = map[string]func(*testing.T, Open){
	"pool: shared only if all pool": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		for _, c := range poolRules {
			f.AccountID, f.TokenID = f.NewAccount(c.name) // the same URL in each: accounts never pool together
			c.check(t, f)
		}
	},
	"pool: restarted member keeps its row": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.SessionOf("in-1"), f.SessionOf("in-2")
		one, two := f.Join(first, poolURL).Endpoint, f.Join(second, poolURL).Endpoint
		f.EndSession(first)
		f.EndSession(second)
		third := f.Join(f.SessionOf("in-3"), poolURL).Endpoint
		if third.ID == one.ID || third.ID == two.ID {
			t.Fatalf("the new member got %s of a sibling that is offline", third.ID)
		}
		Equal(t, "the second's id", f.Join(f.SessionOf("in-2"), poolURL).Endpoint.ID, two.ID)
		Equal(t, "the first's status", f.Endpoint(one.ID).Status, account.StatusOffline)
		Equal(t, "the first's id", f.Join(f.SessionOf("in-1"), poolURL).Endpoint.ID, one.ID)
		Equal(t, "members", len(f.List().Endpoints), 3)
	},
	"pool: named member found by its name": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		r := f.Request(f.SessionOf("in-1"), poolURL)
		r.PoolingEnabled, r.Name = true, "east"
		east, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		other := f.Join(f.SessionOf("in-1"), poolURL).Endpoint // the same machine, without the name
		f.EndSession(r.SessionID)
		r.SessionID = f.SessionOf("in-2")
		again, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "id", again.Endpoint.ID, east.Endpoint.ID)
		r.Name, r.SessionID = "in-1", f.SessionOf("in-3") // no name is an instance id
		named, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		if named.Endpoint.ID == other.ID {
			t.Fatal("a name took the row of an instance")
		}
	},
	"pool: resume secret of its own row only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.SessionOf("in-1"), f.SessionOf("in-2")
		one, two := f.Join(first, poolURL), f.Join(second, poolURL)
		r := f.Request(f.SessionOf("in-2"), poolURL)
		r.PoolingEnabled, r.ResumeSecret = true, one.ResumeSecret
		_, err := f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeURLTaken)
		r.ResumeSecret = two.ResumeSecret
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "id", got.Endpoint.ID, two.Endpoint.ID)
		Equal(t, "took from", got.ReplacedSessionID, second)
		Equal(t, "the first's holder", f.Endpoint(one.Endpoint.ID).TunnelSession.ID, first)
	},
	"pool: concurrent binds get a row each": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		beside, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, beside.Close()) }()
		const members = 16
		var all sync.WaitGroup
		got := make([]*account.BindResult, members)
		for i := range members {
			r := f.Request(f.SessionOf(account.NewID("in", f.Clock.Now())), poolURL)
			r.PoolingEnabled = true
			through := []*store.Store{f.Store, beside}[i%2]
			all.Go(func() {
				var err error
				if got[i], err = through.Bind(t.Context(), r); err != nil {
					t.Errorf("binding member %d: %v", i, err)
				}
			})
		}
		all.Wait()
		listed := f.List().Endpoints
		Equal(t, "rows", len(listed), members)
		ids, projections := map[string]bool{}, map[string]bool{}
		for i, e := range listed {
			Equal(t, "pooling", e.PoolingEnabled, true)
			ids[e.ID], projections[e.ProjectionID] = true, true
			ids[got[i].Endpoint.ID] = true
		}
		Equal(t, "different ids", len(ids), members)
		Equal(t, "different projection ids", len(projections), 1)
	},
	"pool: projection id and reserved ids stay": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.SessionOf("in-1"), f.SessionOf("in-2")
		one, two := f.Join(first, poolURL).Endpoint, f.Join(second, poolURL).Endpoint
		Equal(t, "the second's projection", two.ProjectionID, one.ID)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, one.ID, first))
		f.Expect(two.ResourceVersion, account.Deleted)
		f.Clock.Step(store.DefaultReserve - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		third := f.Join(f.SessionOf("in-3"), poolURL).Endpoint
		if third.ID == one.ID {
			t.Fatal("a new member got the id that is reserved for the first")
		}
		Equal(t, "the third's projection", third.ProjectionID, one.ID)
		Equal(t, "the first's id", f.Join(first, poolURL).Endpoint.ID, one.ID)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, one.ID, first))
		f.Clock.Step(2 * store.DefaultReserve) // longer than any reservation, and the hostname is in use
		Must(t, f.Store.Sweep(t.Context()))
		back := f.Join(first, poolURL).Endpoint
		Equal(t, "new id", back.ID != one.ID, true)
		Equal(t, "projection", back.ProjectionID, one.ID)
	},
	"pool: grace of one member": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.SessionOf("in-1")
		one, two := f.Join(first, poolURL).Endpoint, f.Join(f.SessionOf("in-2"), poolURL).Endpoint
		f.EndSession(first)
		f.Clock.Step(store.DefaultGrace)
		Must(t, f.Store.Sweep(t.Context()))
		_, err := f.Store.Endpoint(t.Context(), f.AccountID, one.ID)
		MustCode(t, err, account.CodeNotFound)
		Equal(t, "the other", f.Endpoint(two.ID).Status, account.StatusOnline)
	},
}

const poolURL = "http://api.demo"

// poolRule is a row of the table: the endpoints of a URL, a new bind, and its outcome.
type poolRule struct {
	name     string
	existing []member
	lost     bool // the sessions of the existing have ended
	bind     member
	url      string // of the bind; "" = that of the existing
	code     account.Code
	messages []string // parts of the refusal
	id       int      // index of the existing endpoint whose id the bind gets; -1 = a new one
}

// member is an agent.
type member struct {
	instance, name string
	pools          bool
}

var poolRules = []poolRule{
	{name: "none pools", existing: []member{{instance: "in-1"}}, bind: member{instance: "in-2"},
		code:     account.CodeURLTaken,
		messages: []string{"is taken by tunnel session", "--pooling-enabled"}},
	{name: "only the new one pools", existing: []member{{instance: "in-1"}},
		bind:     member{instance: "in-2", pools: true},
		code:     account.CodeURLTaken,
		messages: []string{"does not share it", "start it with --pooling-enabled"}},
	{name: "only the old one pools", existing: []member{{instance: "in-1", pools: true}},
		bind:     member{instance: "in-2"},
		code:     account.CodeURLTaken,
		messages: []string{"shared by a pool (endpoints: 1, online: 1)", "join it with --pooling-enabled"}},
	{name: "the old one pools and is offline", existing: []member{{instance: "in-1", pools: true}}, lost: true,
		bind: member{instance: "in-2"}, code: account.CodeURLTaken,
		messages: []string{"(endpoints: 1, online: 0)", "--pooling-enabled"}},
	{name: "both pool", existing: []member{{instance: "in-1", pools: true}},
		bind: member{instance: "in-2", pools: true},
		id:   -1},
	{name: "both pool under one name", existing: []member{{instance: "in-1", name: "a", pools: true}},
		bind: member{instance: "in-2", name: "a", pools: true},
		code: account.CodeURLTaken, messages: []string{"is taken by tunnel session", "another --name"}},
	{name: "the same instance, online", existing: []member{{instance: "in-1", pools: true}},
		bind: member{instance: "in-1", pools: true},
		code: account.CodeURLTaken, messages: []string{"another --name"}},
	{name: "the same instance, online, stops pooling", existing: []member{{instance: "in-1", pools: true}},
		bind: member{instance: "in-1"},
		code: account.CodeURLTaken, messages: []string{"share the URL with it by --pooling-enabled"}},
	{name: "the same instance stops pooling", existing: []member{{instance: "in-1", pools: true}}, lost: true,
		bind: member{instance: "in-1"}, id: 0},
	{name: "the same instance stops pooling beside another",
		existing: []member{{instance: "in-1", pools: true}, {instance: "in-2", pools: true}}, lost: true,
		bind: member{instance: "in-1"}, code: account.CodeURLTaken, messages: []string{"(endpoints: 2, online: 0)"}},
	{name: "an offline endpoint's successor pools", existing: []member{{instance: "in-1"}}, lost: true,
		bind: member{instance: "in-2", pools: true}, id: 0},
	{name: "neither name nor instance", bind: member{pools: true}, code: account.CodeInvalid,
		messages: []string{"name", "instance id"}},
	{name: "one host and port has one scheme", existing: []member{{instance: "in-1", pools: true}},
		bind: member{instance: "in-2", pools: true}, url: "tcp://api.demo:80",
		code: account.CodeURLTaken, messages: []string{"one host and port has one scheme"}},
	{name: "another port is another URL", existing: []member{{instance: "in-1", pools: true}},
		bind: member{instance: "in-2"},
		url:  "tcp://api.demo:81", id: -1},
}

func (c *poolRule) check(t *testing.T, f *Fixture) {
	t.Helper()
	bindAs := func(m member, url string) (*account.BindResult, error) {
		r := f.Request(f.SessionOf(m.instance), url)
		r.Name, r.PoolingEnabled = m.name, m.pools
		return f.Store.Bind(t.Context(), r)
	}
	var had []string
	for _, m := range c.existing {
		got, err := bindAs(m, poolURL)
		Must(t, err)
		had = append(had, got.Endpoint.ID)
		if c.lost {
			f.EndSession(got.Endpoint.TunnelSession.ID)
		}
	}
	before := f.List()
	url := poolURL
	if c.url != "" {
		url = c.url
	}
	got, err := bindAs(c.bind, url)
	if account.CodeOf(err) != c.code {
		t.Errorf("%s: %v, want code %q", c.name, err, c.code)
		return
	}
	if err != nil {
		for _, text := range c.messages {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not contain %q", c.name, err, text)
			}
		}
		f.Expect(before.Version) // a refusal changes nothing
		return
	}
	switch {
	case c.id < 0 && len(f.List().Endpoints) != len(had)+1:
		t.Errorf("%s: no new row", c.name)
	case c.id >= 0 && got.Endpoint.ID != had[c.id]:
		t.Errorf("%s: id %s, want %s", c.name, got.Endpoint.ID, had[c.id])
	}
	if got.Endpoint.PoolingEnabled != c.bind.pools || f.Endpoint(got.Endpoint.ID).PoolingEnabled != c.bind.pools {
		t.Errorf("%s: pooling_enabled is not as asked for", c.name)
	}
}
