// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// ownerRows tests how long the rows of an owner live, and which rows replicas that come and go
// have.
var ownerRows = map[string]func(*testing.T, Open){
	"owner: rows kept for a week": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.Session(), f.Session()
		one, two := f.BindFor(first, Owner("api")).Endpoint, f.BindFor(second, Owner("api")).Endpoint
		agent := f.Session()
		f.Bind(agent, "http://plain.demo")
		for _, session := range []string{first, second, agent} {
			f.EndSession(session)
		}
		f.Sweep(store.DefaultOwnedGrace - 10*time.Second)
		Equal(t, "rows before a week", f.ids(), "("+one.ID+") ("+two.ID+")")
		f.Sweep(10 * time.Second)
		Equal(t, "rows after a week", f.ids(), "")
		Equal(t, "id within the reservation", f.BindFor(f.Session(), Owner("api")).Endpoint.ID, one.ID)
	},
	"owner: normal grace beside an online row": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Session()
		one, two := f.BindFor(first, Owner("api")).Endpoint, f.BindFor(f.Session(), Owner("api")).Endpoint
		f.Clock.Step(time.Millisecond)
		other := f.Request(f.Session(), "http://other.demo")
		other.Owner = Owner("api") // the object's URL was another one
		elsewhere, err := f.Store.Bind(t.Context(), other)
		Must(t, err)
		f.EndSession(other.SessionID)
		f.EndSession(first)
		f.Sweep(store.DefaultGrace - 10*time.Second)
		Equal(t, "rows within the grace", len(f.List().Endpoints), 3)
		f.Sweep(10 * time.Second)
		Equal(t, "rows after the grace", f.ids(), two.ID+" ("+elsewhere.Endpoint.ID+")")
		back := f.BindFor(f.Session(), Owner("api"))
		Equal(t, "id of a replica that is back", back.Endpoint.ID, one.ID)
		Equal(t, "oldest", back.OwnerEndpointID, two.ID) // the first was made anew
	},
	"owner: others of a pool do not end the grace": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		r := f.OwnedRequest(f.Session(), Owner("api"))
		r.PoolingEnabled = true
		one, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		f.Clock.Step(time.Millisecond)
		r.SessionID, r.Owner = f.Session(), Owner("web")
		other, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		f.EndSession(one.Endpoint.TunnelSession.ID)
		f.Sweep(24 * time.Hour)
		Equal(t, "rows", f.ids(), "("+one.Endpoint.ID+") "+other.Endpoint.ID)
	},
	"owner: rows of replicas that are about to be back": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.Session(), f.Session()
		one, two := f.BindFor(first, Owner("api")).Endpoint, f.BindFor(second, Owner("api")).Endpoint
		f.EndSession(first)
		f.EndSession(second)
		f.Sweep(24 * time.Hour)
		Equal(t, "the first's id", f.BindFor(f.Session(), Owner("api")).Endpoint.ID, one.ID)
		f.Sweep(store.DefaultGrace - time.Second) // the second replica starts later
		Equal(t, "rows", f.ids(), one.ID+" ("+two.ID+")")
		Equal(t, "the second's id", f.BindFor(f.Session(), Owner("api")).Endpoint.ID, two.ID)
	},
	"owner: grace begins anew with the server": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one := f.BindFor(f.Session(), Owner("api")).Endpoint
		f.Clock.Step(2 * store.DefaultOwnedGrace)
		f.Restart()
		f.Sweep(store.DefaultOwnedGrace - time.Second)
		Equal(t, "rows", f.ids(), "("+one.ID+")")
	},
	"owner: long grace of all": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.Grace = 2 * store.DefaultOwnedGrace })
		session := f.Session()
		one := f.BindFor(session, Owner("api")).Endpoint
		f.EndSession(session)
		f.Sweep(2*store.DefaultOwnedGrace - time.Second)
		Equal(t, "rows", f.ids(), "("+one.ID+")")
	},
	"owner: rolling update with surge": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		replicas := []string{f.Session(), f.Session()}
		one := f.BindFor(replicas[0], Owner("api")).Endpoint
		f.BindFor(replicas[1], Owner("api"))
		for range 5 {
			for i := range replicas {
				next := f.Session() // up before the old one goes
				got := f.BindFor(next, Owner("api"))
				Equal(t, "oldest", got.OwnerEndpointID, one.ID)
				Equal(t, "projection", got.Endpoint.ProjectionID, one.ID)
				f.EndSession(replicas[i])
				replicas[i] = next
				f.Clock.Step(time.Minute)
			}
			if n := len(f.List().Endpoints); n > 3 {
				t.Fatalf("%d rows of two replicas: %s", n, f.ids())
			}
		}
		f.Sweep(store.DefaultGrace)
		if n := len(f.List().Endpoints); n != 2 || strings.Contains(f.ids(), "(") {
			t.Errorf("%d rows: %s", n, f.ids())
		}
	},
	"owner: rolling update without surge": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		replicas := []string{f.Session(), f.Session()}
		one, two := f.BindFor(replicas[0], Owner("api")).Endpoint, f.BindFor(replicas[1], Owner("api")).Endpoint
		for range 3 {
			for i := range replicas {
				f.EndSession(replicas[i])
				f.Sweep(time.Minute)
				replicas[i] = f.Session()
				got := f.BindFor(replicas[i], Owner("api"))
				Equal(t, "id", got.Endpoint.ID, []string{one.ID, two.ID}[i])
			}
		}
		Equal(t, "rows", f.ids(), one.ID+" "+two.ID)
	},
	"owner: an unbind takes rows of replicas that are gone along": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		gone, first, second := f.Session(), f.Session(), f.Session()
		f.BindFor(gone, Owner("api"))
		one, two := f.BindFor(first, Owner("api")).Endpoint, f.BindFor(second, Owner("api")).Endpoint
		other := f.Request(gone, "http://other.demo")
		f.Clock.Step(time.Millisecond)
		other.Owner = Owner("web")
		elsewhere, err := f.Store.Bind(t.Context(), other)
		Must(t, err)
		f.EndSession(gone)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, one.ID, first))
		Equal(t, "rows after the first unbind", f.ids(), two.ID+" ("+elsewhere.Endpoint.ID+")")
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, two.ID, second))
		Equal(t, "rows after the last", f.ids(), "("+elsewhere.Endpoint.ID+")")
	},
	"owner: ids reserved after an unbind": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.Session(), f.Session()
		one, two := f.BindFor(first, Owner("api")).Endpoint, f.BindFor(second, Owner("api")).Endpoint
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, one.ID, first))
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, two.ID, second))
		stranger := f.BindFor(second, Owner("web")).Endpoint
		if stranger.ID == one.ID || stranger.ID == two.ID {
			t.Fatal("another object got a reserved id")
		}
		Equal(t, "projection", stranger.ProjectionID, one.ID)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, stranger.ID, second))
		Equal(t, "the first again", f.BindFor(first, Owner("api")).Endpoint.ID, one.ID)
		Equal(t, "the second again", f.BindFor(second, Owner("api")).Endpoint.ID, two.ID)
	},
	"owner: offline rows can be deleted": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID, PrincipalID: f.TokenID}
		session, agent := f.Session(), f.Session()
		one, plain := f.BindFor(session, Owner("api")).Endpoint, f.Bind(agent, "http://plain.demo").Endpoint
		err := f.Store.DeleteEndpoint(t.Context(), by, one.ID)
		MustCode(t, err, account.CodeInUse)
		if !strings.Contains(err.Error(), "tunnel session "+session+" holds it for AgentEndpoint team-a/api") {
			t.Errorf("online: %v", err)
		}
		f.EndSession(session)
		f.EndSession(agent)
		MustCode(t, f.Store.DeleteEndpoint(t.Context(), by, plain.ID), account.CodeInvalid)
		before := f.List().Version
		Must(t, f.Store.DeleteEndpoint(t.Context(), by, one.ID))
		f.Expect(before, account.Deleted)
		Equal(t, "id again", f.BindFor(f.Session(), Owner("api")).Endpoint.ID, one.ID)
		_, err = f.Store.PatchEndpoint(t.Context(), by, one.ID, account.EndpointPatch{}, account.PolicyFacts{})
		MustCode(t, err, account.CodeInvalid)
		if !strings.Contains(err.Error(), "AgentEndpoint team-a/api") {
			t.Errorf("patch: %v", err)
		}
	},
	"owner: changed policy is that of all its rows": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second := f.Session(), f.Session()
		withPolicy := func(session, text string) (*account.BindResult, error) {
			r := f.OwnedRequest(session, Owner("api"))
			r.PoolingEnabled, r.TrafficPolicy = true, text
			if text != "" {
				r.PolicyFacts = account.PolicyFacts{Digest: text}
			}
			return f.Store.Bind(t.Context(), r)
		}
		one, err := withPolicy(first, "a")
		Must(t, err)
		two, err := withPolicy(second, "a")
		Must(t, err)
		Equal(t, "replaced by the same", two.PolicyReplaced, false)
		changed, err := withPolicy(second, "b")
		Must(t, err)
		Equal(t, "replaced", changed.PolicyReplaced, true)
		Equal(t, "the other's policy", f.Endpoint(one.Endpoint.ID).TrafficPolicy, "b")
		third, err := withPolicy(f.Session(), "c") // a new replica knows the newest object
		Must(t, err)
		Equal(t, "replaced by a new row", third.PolicyReplaced, true)
		stranger := f.Request(f.SessionOf("in-1"), poolURL)
		stranger.PoolingEnabled, stranger.TrafficPolicy = true, "c"
		stranger.PolicyFacts = account.PolicyFacts{Digest: "c"}
		_, err = f.Store.Bind(t.Context(), stranger)
		Must(t, err)
		_, err = withPolicy(first, "d") // not for another member of the pool
		MustCode(t, err, account.CodeURLTaken)
		Equal(t, "the first's policy", f.Endpoint(one.Endpoint.ID).TrafficPolicy, "c")
	},
}

// ownedCloud tests endpoints of type cloud that have an owner.
var ownedCloud = map[string]func(*testing.T, Open){
	"owner: of a cloud endpoint": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		owner := Owner("shop")
		e := f.Cloud("http://shop.demo")
		e.Owner = owner
		mustSay(t, f.createCloud(e), account.CodeInvalid, "owner.kind", "must be CloudEndpoint")
		owner.Kind = account.KindCloudEndpoint
		made := f.MakeCloud(e)
		Equal(t, "owner", *f.Endpoint(made.ID).Owner, *owner)
		mustSay(t, f.createCloud(e), account.CodeURLTaken, "CloudEndpoint team-a/shop", made.ID, "has it already")
		uid := "uid-2"
		patched, err := f.patchCloud(made.ID, account.EndpointPatch{OwnerUID: &uid})
		Must(t, err)
		Equal(t, "uid", patched.Owner.UID, uid)
		Equal(t, "uid in the store", f.Endpoint(made.ID).Owner.UID, uid)
		r := f.Request(f.SessionOf("in-1"), "http://shop.demo")
		_, err = f.Store.Bind(t.Context(), r)
		mustSay(t, err, account.CodeURLTaken, "is taken by CloudEndpoint team-a/shop of cluster "+clusterUID)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID))
		other := e
		other.Owner = &account.Owner{Cluster: clusterUID, Kind: account.KindCloudEndpoint, Namespace: "team-a",
			Name: "b",
			UID:  "uid-3"}
		if id := f.MakeCloud(other).ID; id == made.ID {
			t.Error("another object got the reserved id")
		} else {
			Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, id))
		}
		Equal(t, "id again", f.MakeCloud(e).ID, made.ID)
	},
	"owner: of cloud endpoints that pool": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		e := f.Cloud("http://shop.demo")
		e.PoolingEnabled = true
		e.Owner = Owner("shop")
		e.Owner.Kind = account.KindCloudEndpoint
		one := f.MakeCloud(e)
		mustSay(t, f.createCloud(e), account.CodeURLTaken, "has it already")
		other := e
		other.Owner = Owner("store")
		other.Owner.Kind = account.KindCloudEndpoint
		two := f.MakeCloud(other)
		f.Clock.Step(time.Millisecond)
		e.Owner = nil
		f.MakeCloud(e)
		off := false
		_, err := f.patchCloud(one.ID, account.EndpointPatch{PoolingEnabled: &off})
		mustSay(t, err, account.CodeURLTaken, two.ID, "CloudEndpoint team-a/store")
	},
	"owner: cloud endpoint beside an object's agents": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.BindFor(f.Session(), Owner("api"))
		e := f.Cloud(poolURL)
		e.PoolingEnabled = true
		mustSay(t, f.createCloud(e), account.CodeURLTaken, "is taken by AgentEndpoint team-a/api")
	},
}
