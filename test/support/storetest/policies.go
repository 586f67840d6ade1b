// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// backendUsers tests references to backends: used ones are not deleted, unusable ones are refused.
var backendUsers = map[string]func(*testing.T, Open){
	"used backend: delete refused with the user's id": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		leaf := f.Static()
		group := f.Failover(leaf.ID)
		e := f.Cloud("http://shop.demo")
		e.BackendID = group.ID
		shop := f.MakeCloud(e)
		e = f.Cloud("http://policy.demo")
		e.TrafficPolicy = group.ID
		byPolicy := f.MakeCloud(e)
		r := f.Request(f.Session(), "http://agent.demo")
		r.TrafficPolicy, r.PolicyFacts = leaf.ID, FactsOf(leaf.ID)
		agent, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		drop := func(b *account.Backend) error {
			return f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: f.AccountID}, b.Kind, b.ID)
		}
		mustSay(t, drop(leaf), account.CodeInUse, "failover "+group.ID, agent.Endpoint.ID)
		mustSay(t, drop(group), account.CodeInUse, shop.ID, "http://shop.demo", byPolicy.ID)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, shop.ID))
		_, err = f.patchCloud(byPolicy.ID, account.EndpointPatch{TrafficPolicy: new("p")})
		Must(t, err)
		Must(t, drop(group))
		mustSay(t, drop(leaf), account.CodeInUse, agent.Endpoint.ID)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, agent.Endpoint.ID, r.SessionID))
		Must(t, drop(leaf))
		MustCode(t, drop(leaf), account.CodeNotFound)
	},
	"unknown and foreign backends: same refusal": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		theirs, err := f.newBackend(other, account.BackendStatic, account.BackendPatch{Address: new("a:1")})
		Must(t, err)
		made := f.MakeCloud(f.Cloud("http://mine.demo"))
		session := f.Session()
		var texts []string
		for _, id := range []string{theirs.ID, account.NewID("bkdst", f.Clock.Now())} {
			own, byPolicy := f.Cloud("http://shop.demo"), f.Cloud("http://shop.demo")
			own.BackendID, byPolicy.TrafficPolicy = id, id
			r := f.Request(session, "http://agent.demo")
			r.TrafficPolicy, r.PolicyFacts = id, FactsOf(id)
			_, patch := f.patchCloud(made.ID, account.EndpointPatch{BackendID: &id})
			_, bind := f.Store.Bind(t.Context(), r)
			text := ""
			for _, err := range []error{f.createCloud(own), f.createCloud(byPolicy), patch, bind} {
				mustSay(t, err, account.CodeInvalid, "names no backend of this account")
				text += strings.ReplaceAll(err.Error(), id, "ID")
			}
			texts = append(texts, text)
		}
		Equal(t, "one text", texts[0], texts[1])
	},
	"backend_id: short form of a forward-backend action": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		id := f.Static().ID
		e := f.Cloud("http://shop.demo")
		e.BackendID, e.TrafficPolicy = id, id
		mustSay(t, f.createCloud(e), account.CodeInvalid, "backend_id", "forward-backend")
		e.BackendID = ""
		made := f.MakeCloud(e)
		_, err := f.patchCloud(made.ID, account.EndpointPatch{BackendID: &id})
		mustSay(t, err, account.CodeInvalid, "forward-backend")
		_, err = f.patchCloud(made.ID, account.EndpointPatch{BackendID: &id, TrafficPolicy: new("limits only")})
		Must(t, err)
		_, err = f.patchCloud(made.ID, account.EndpointPatch{TrafficPolicy: &id})
		mustSay(t, err, account.CodeInvalid, "forward-backend")
		_, err = f.patchCloud(made.ID, account.EndpointPatch{TrafficPolicy: &id, BackendID: new("")})
		Must(t, err)
	},
	"tcp endpoint: no http_response below it": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		answer, leaf := f.HTTPResponse(), f.Static()
		mixed, plain := f.Failover(leaf.ID, answer.ID), f.Failover(leaf.ID)
		e := f.Cloud("tcp://db.demo:5432")
		for _, id := range []string{answer.ID, mixed.ID} {
			e.BackendID, e.TrafficPolicy = id, ""
			mustSay(t, f.createCloud(e), account.CodeInvalid, "http_response")
			e.BackendID, e.TrafficPolicy = "", id
			mustSay(t, f.createCloud(e), account.CodeInvalid, "http_response")
			r := f.Request(f.Session(), "tcp://agent.demo:1")
			r.TrafficPolicy, r.PolicyFacts = id, FactsOf(id)
			_, err := f.Store.Bind(t.Context(), r)
			mustSay(t, err, account.CodeInvalid, "http_response")
		}
		e.BackendID, e.TrafficPolicy = f.Failover(plain.ID).ID, ""
		made := f.MakeCloud(e)
		_, err := f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendFailover,
			plain.ID,
			account.BackendPatch{Children: &[]string{leaf.ID, answer.ID}})
		mustSay(t, err, account.CodeInvalid, "http_response", made.ID, "tcp://db.demo:5432")
		http := f.Cloud("http://shop.demo")
		http.BackendID = mixed.ID
		f.MakeCloud(http)
	},
}

const secretPolicy = "on_http_request: [] # hush-hush"

// policies tests traffic policies, which are stored sealed.
var policies = map[string]func(*testing.T, Open){
	"policy: shown by a read of one endpoint only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start := f.List().Version
		e := f.Cloud("http://shop.demo")
		e.TrafficPolicy = secretPolicy
		made := f.MakeCloud(e)
		r := f.Request(f.Session(), "http://agent.demo")
		r.TrafficPolicy, r.PolicyFacts = secretPolicy, FactsOf(secretPolicy)
		bound, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		for _, id := range []string{made.ID, bound.Endpoint.ID} {
			Equal(t, "policy", f.Endpoint(id).TrafficPolicy, secretPolicy)
		}
		_, err = f.patchCloud(made.ID, account.EndpointPatch{Description: new("x")})
		Must(t, err)
		f.EndSession(r.SessionID)
		f.Restart()
		Equal(t, "policy after a restart", f.Endpoint(bound.Endpoint.ID).TrafficPolicy, secretPolicy)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID))
		shown, err := json.Marshal([]any{f.List(), f.Since(start)})
		Must(t, err)
		if bytes.Contains(shown, []byte("hush")) {
			t.Fatalf("a list or an event shows the policy: %s", shown)
		}
	},
	"policy: set and removed by binds": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		r := f.Request(f.Session(), "http://api.demo")
		r.TrafficPolicy, r.PolicyFacts = "p", FactsOf("p")
		first, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		r.ResumeSecret = first.ResumeSecret
		again, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		f.Expect(first.Endpoint.ResourceVersion) // no difference
		r.ResumeSecret, r.TrafficPolicy, r.PolicyFacts = again.ResumeSecret, "q", FactsOf("q")
		changed, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		f.Expect(first.Endpoint.ResourceVersion, account.Modified)
		Equal(t, "policy", f.Endpoint(changed.Endpoint.ID).TrafficPolicy, "q")
		r.ResumeSecret, r.TrafficPolicy, r.PolicyFacts = changed.ResumeSecret, "", account.PolicyFacts{}
		_, err = f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "policy", f.Endpoint(changed.Endpoint.ID).TrafficPolicy, "")
		r.TrafficPolicy = "p"
		_, err = f.Store.Bind(t.Context(), r)
		mustSay(t, err, account.CodeInvalid, "must be checked")
	},
	"pool: one policy, replaced on request": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		join := func(instance, policy string, replace bool) (*account.BindResult, error) {
			r := f.Request(f.SessionOf(instance), poolURL)
			r.PoolingEnabled, r.TrafficPolicy, r.PolicyFacts, r.ReplacePoolPolicy = true, policy, FactsOf(policy),
				replace
			return f.Store.Bind(t.Context(), r)
		}
		one, err := join("in-1", "p", false)
		Must(t, err)
		two, err := join("in-2", "p", true)
		Must(t, err)
		f.Expect(two.Endpoint.ResourceVersion)
		for _, other := range []string{"", "q"} {
			_, err = join("in-3", other, false)
			mustSay(t, err, account.CodeURLTaken, "another traffic policy", "--replace-pool-policy")
		}
		at := f.List().Version
		backend := f.Static()
		three, err := join("in-3", backend.ID, true)
		Must(t, err)
		f.Expect(at, account.Modified, account.Modified, account.Added)
		for _, id := range []string{one.Endpoint.ID, two.Endpoint.ID, three.Endpoint.ID} {
			Equal(t, "policy", f.Endpoint(id).TrafficPolicy, backend.ID)
		}
		err = f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: f.AccountID}, backend.Kind, backend.ID)
		mustSay(t, err, account.CodeInUse, one.Endpoint.ID, two.Endpoint.ID, three.Endpoint.ID)
	},
	"policy: another key refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		wrong, err := seal.New(bytes.Repeat([]byte{8}, seal.KeySize))
		Must(t, err)
		opt := f.opt
		opt.Key = wrong
		beside, err := open(opt)
		Must(t, err)
		defer func() { Must(t, beside.Close()) }()
		Must(t, beside.CheckKey(t.Context())) // nothing is sealed yet
		e := f.Cloud("http://shop.demo")
		e.TrafficPolicy = secretPolicy
		made := f.MakeCloud(e)
		Must(t, f.Store.CheckKey(t.Context()))
		mustSay(t, beside.CheckKey(t.Context()), account.CodeInvalid, "--secret-key-file")
		_, err = beside.Endpoint(t.Context(), f.AccountID, made.ID)
		MustCode(t, err, account.CodeInternal)
	},
	"key: another one refused where users or revocations are found by it": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		wrong, err := seal.New(bytes.Repeat([]byte{8}, seal.KeySize))
		Must(t, err)
		opt := f.opt
		opt.Key = wrong
		beside, err := open(opt)
		Must(t, err)
		defer func() { Must(t, beside.Close()) }()
		Must(t, f.Store.CheckKey(t.Context()))
		Must(t, beside.CheckKey(t.Context())) // nothing is lost with the key of an empty store
		Must(t, f.Store.CheckKey(t.Context()))
		session := f.Login("alice", "s1")
		mustSay(t, beside.CheckKey(t.Context()), account.CodeInvalid, "identities are sealed", "--secret-key-file")
		f.revoke(account.RevokeSelector{SessionID: session.ID})
		mustSay(t, beside.CheckKey(t.Context()), account.CodeInvalid, "users are found")
		f.revoke(account.RevokeSelector{UserID: session.Identity.ID})
		mustSay(t, beside.CheckKey(t.Context()), account.CodeInvalid, "revocations are found")
		Must(t, f.Store.CheckKey(t.Context()))
	},
	"policy: refused without a key": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.Key = nil })
		e := f.Cloud("http://shop.demo")
		e.TrafficPolicy = secretPolicy
		MustCode(t, f.createCloud(e), account.CodeInternal)
		f.MakeCloud(f.Cloud("http://shop.demo"))
	},
}
