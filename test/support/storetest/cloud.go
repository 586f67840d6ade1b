// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// Cloud describes an endpoint of type cloud in the first account.
func (f *Fixture) Cloud(url string) account.Endpoint {
	f.T.Helper()
	u, err := account.ParseEndpointURL(url)
	Must(f.T, err)
	return account.Endpoint{AccountID: f.AccountID, URL: u.String(), Scheme: u.Scheme, Host: u.Host, Port: u.Port,
		Bindings: []string{account.BindingKubernetes}}
}

// MakeCloud makes one.
func (f *Fixture) MakeCloud(e account.Endpoint) *account.Endpoint {
	f.T.Helper()
	made, err := f.Store.CreateEndpoint(f.ctx(), e, FactsOf(e.TrafficPolicy))
	Must(f.T, err)
	return made
}

// FactsOf are those of a policy that is nothing but the ids of backends, or another text.
func FactsOf(policy string) account.PolicyFacts {
	facts := account.PolicyFacts{Digest: policy}
	for _, kind := range account.BackendKinds() {
		if account.ValidID(kind.IDPrefix(), policy) {
			facts.Backends = []string{policy}
		}
	}
	return facts
}

func (f *Fixture) createCloud(e account.Endpoint) error {
	_, err := f.Store.CreateEndpoint(f.ctx(), e, FactsOf(e.TrafficPolicy))
	return err
}

func (f *Fixture) patchCloud(id string, p account.EndpointPatch) (*account.Endpoint, error) {
	var facts account.PolicyFacts
	if p.TrafficPolicy != nil {
		facts = FactsOf(*p.TrafficPolicy)
	}
	return f.Store.PatchEndpoint(f.ctx(), account.Caller{AccountID: f.AccountID}, id, p, facts)
}

// cloudEndpoints tests endpoints of type cloud, which have no agent.
var cloudEndpoints = map[string]func(*testing.T, Open){
	"cloud endpoint: patch of an older state": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.MakeCloud(f.Cloud("http://shop.demo"))
		patch := func(metadata string, expected time.Time) (*account.Endpoint, error) {
			f.Clock.Step(time.Second)
			return f.patchCloud(made.ID, account.EndpointPatch{Metadata: &metadata, ExpectedUpdatedAt: &expected})
		}
		first, err := patch("first", made.UpdatedAt)
		Must(t, err)
		for _, same := range []string{"second", "first"} { // also one that changes nothing
			_, err = patch(same, made.UpdatedAt)
			Equal(t, "code", account.CodeOf(err), account.CodeChanged)
		}
		Equal(t, "metadata", f.Endpoint(made.ID).Metadata, "first")
		_, err = patch("second", first.UpdatedAt)
		Must(t, err)
	},
	"policies of all accounts: page by page": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.MakeCloud(f.Cloud("http://plain.demo"))
		e := f.Cloud("http://one.demo")
		e.TrafficPolicy = "p"
		one := f.MakeCloud(e)
		e.URL, e.Host = "http://two.demo", "two.demo"
		f.Clock.Step(time.Second) // ids are in the order of time
		two := f.MakeCloud(e)
		for after, want := range map[string]string{"": one.ID, one.ID: two.ID, two.ID: ""} {
			got, err := f.Store.PoliciesAfter(t.Context(), after, 1)
			Must(t, err)
			switch {
			case want == "":
				Equal(t, "policies after the last", len(got), 0)
			case len(got) != 1 || got[0].ID != want || got[0].AccountID != f.AccountID || got[0].Scheme != "http" ||
				got[0].Bindings[0] != account.BindingKubernetes || got[0].TrafficPolicy != "p":
				t.Errorf("policies after %q: %+v, want %s", after, got, want)
			}
		}
	},
	"cloud endpoint: create, stay online, delete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.List().Version
		e := f.Cloud("http://shop.demo")
		e.Description, e.Metadata, e.Name, e.Principal = "d", "m", "n", &account.Ref{ID: "ak-1"}
		made := f.MakeCloud(e)
		got := f.Endpoint(made.ID)
		if got.Type != account.TypeCloud || got.Status != account.StatusOnline || got.TunnelSession != nil ||
			got.OfflineSince != nil || got.Principal.ID != "ak-1" ||
			got.URL != "http://shop.demo" || got.HostPort != "shop.demo:80" || got.ProjectionID != got.ID ||
			got.Description+got.Metadata+got.Name != "dmn" || got.UpstreamURL != "" {
			t.Fatalf("made %+v", got)
		}
		added := f.Expect(before, account.Added)[0]
		Equal(t, "added", added.Endpoint.ID, made.ID)
		f.Restart()
		f.Clock.Step(10 * store.DefaultGrace)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "status", f.Endpoint(made.ID).Status, account.StatusOnline)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID))
		f.Expect(added.ResourceVersion, account.Deleted)
		MustCode(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID),
			account.CodeNotFound)
	},
	"cloud endpoint: id reserved for its URL": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.MakeCloud(f.Cloud("http://shop.demo"))
		other := f.Bind(f.Session(), "tcp://shop.demo:81").Endpoint
		Equal(t, "one projection per hostname", other.ProjectionID, made.ID)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID))
		f.Clock.Step(store.DefaultReserve - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		session := f.Session()
		agent := f.Bind(session, "http://shop.demo").Endpoint
		Equal(t, "the agent's id", agent.ID, made.ID)
		Equal(t, "its type", agent.Type, account.TypeAgent)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, agent.ID, session))
		Equal(t, "the next one's id", f.MakeCloud(f.Cloud("http://shop.demo")).ID, made.ID)
	},
	"cloud endpoint: no URL shared with agents": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		mine := f.Bind(session, "http://agent.demo").Endpoint
		made := f.MakeCloud(f.Cloud("http://shop.demo"))
		before := f.List().Version
		for _, url := range []string{"http://shop.demo", "tcp://shop.demo:80"} {
			for _, pools := range []bool{false, true} {
				r := f.Request(session, url)
				r.PoolingEnabled, r.Name = pools, "n"
				_, err := f.Store.Bind(t.Context(), r)
				mustSay(t, err, account.CodeURLTaken, made.ID)
			}
		}
		taken := f.Cloud("http://agent.demo")
		mustSay(t, f.createCloud(taken), account.CodeURLTaken, mine.ID, "is online")
		taken.PoolingEnabled = true
		mustSay(t, f.createCloud(taken), account.CodeURLTaken, mine.ID)
		mustSay(t, f.createCloud(f.Cloud("tcp://agent.demo:80")), account.CodeURLTaken, "one scheme")
		mustSay(t, f.createCloud(f.Cloud("http://shop.demo")), account.CodeURLTaken, made.ID, "pooling_enabled")
		f.Expect(before)
		f.EndSession(session)
		mustSay(t, f.createCloud(taken), account.CodeURLTaken, mine.ID, "is offline since")
	},
	"cloud pool: one policy": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		backend := f.Static().ID
		pooled := func(name, policy, backend string) account.Endpoint {
			e := f.Cloud("http://shop.demo")
			e.PoolingEnabled, e.Name, e.TrafficPolicy, e.BackendID = true, name, policy, backend
			return e
		}
		one := f.MakeCloud(pooled("a", "p", backend))
		two := f.MakeCloud(pooled("", "p", backend))
		Equal(t, "projection", two.ProjectionID, one.ID)
		f.MakeCloud(pooled("", "p", backend))
		mustSay(t, f.createCloud(pooled("a", "p", backend)), account.CodeURLTaken, one.ID, `name "a"`)
		mustSay(t, f.createCloud(pooled("b", "q", backend)), account.CodeURLTaken, "same traffic_policy")
		mustSay(t, f.createCloud(pooled("b", "p", "")), account.CodeURLTaken, "all of them a backend_id or none")
		other := f.Static().ID
		Equal(t, "backend", f.MakeCloud(pooled("c", "p", other)).BackendID, other)
		_, err := f.patchCloud(two.ID, account.EndpointPatch{TrafficPolicy: new("q")})
		mustSay(t, err, account.CodeURLTaken, "same traffic_policy")
		_, err = f.patchCloud(two.ID, account.EndpointPatch{BackendID: new("")})
		mustSay(t, err, account.CodeURLTaken, "all of them a backend_id or none")
		_, err = f.patchCloud(two.ID, account.EndpointPatch{BackendID: &other})
		Must(t, err)
		_, err = f.patchCloud(two.ID, account.EndpointPatch{PoolingEnabled: new(false)})
		mustSay(t, err, account.CodeURLTaken, "pooling_enabled")
		alone := f.MakeCloud(f.Cloud("http://alone.demo"))
		_, err = f.patchCloud(alone.ID, account.EndpointPatch{PoolingEnabled: new(true)})
		Must(t, err)
		joins := f.Cloud("http://alone.demo")
		joins.PoolingEnabled = true
		f.MakeCloud(joins)
	},
	"cloud endpoint: patch changes named fields only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		e := f.Cloud("http://shop.demo")
		e.Description, e.TrafficPolicy, e.BackendID = "d", "p", f.Static().ID
		made := f.MakeCloud(e)
		f.Clock.Step(time.Minute)
		for _, same := range []account.EndpointPatch{{},
			{Description: new("d"), Metadata: new(""), TrafficPolicy: new("p"),
				BackendID: &e.BackendID, PoolingEnabled: new(false)}} {
			got, err := f.patchCloud(made.ID, same)
			Must(t, err)
			Equal(t, "updated", got.UpdatedAt, made.UpdatedAt)
			Equal(t, "policy", got.TrafficPolicy, "p")
			f.Expect(made.ResourceVersion)
		}
		for name, p := range map[string]account.EndpointPatch{"description": {Description: new("e")},
			"policy": {TrafficPolicy: new("q")}, "backend": {BackendID: new("")}} {
			at := f.List().Version
			got, err := f.patchCloud(made.ID, p)
			Must(t, err)
			f.Expect(at, account.Modified)
			Equal(t, name+" updated", got.UpdatedAt, f.Clock.Now())
		}
		got := f.Endpoint(made.ID)
		Equal(t, "result", got.Description+got.TrafficPolicy+got.BackendID, "eq")
	},
	"agent endpoint: no patch, no delete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		mine := f.Bind(f.Session(), "http://api.demo").Endpoint
		_, err := f.patchCloud(mine.ID, account.EndpointPatch{Description: new("x")})
		mustSay(t, err, account.CodeInvalid, "is an agent's")
		mustSay(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, mine.ID),
			account.CodeInvalid,
			"Ctrl-C")
	},
	"endpoint limit: both types together": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxEndpoints = 2 })
		f.MakeCloud(f.Cloud("http://a.demo"))
		f.Bind(f.Session(), "http://b.demo")
		MustCode(t, f.createCloud(f.Cloud("http://c.demo")), account.CodeLimit)
	},
	"cloud endpoint: same URL in two accounts": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		mine := f.MakeCloud(f.Cloud("http://shop.demo"))
		other, _ := f.NewAccount("other")
		e := f.Cloud("http://shop.demo")
		e.AccountID = other
		theirs := f.MakeCloud(e)
		Equal(t, "one id", mine.ID == theirs.ID, false)
		_, err := f.patchCloud(theirs.ID, account.EndpointPatch{Description: new("x")})
		MustCode(t, err, account.CodeNotFound)
		MustCode(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, theirs.ID),
			account.CodeNotFound)
		e.AccountID = "ac-none"
		MustCode(t, f.createCloud(e), account.CodeNotFound)
	},
}
