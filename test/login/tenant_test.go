// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// tenant is an account of the service, with an upstream.
type tenant struct {
	testing.TB
	n                 int32
	id                string
	apiKey, authtoken string
	upstream          *upstream
}

var tenants atomic.Int32

func newTenant(t testing.TB) *tenant {
	t.Helper()
	inputs.Record(t, "../idp")
	ctx := timeoutContext(t)
	a := &tenant{TB: t, n: tenants.Add(1), upstream: newUpstream(t)}
	created, err := env.store.CreateAccount(ctx, fmt.Sprint("tenant-", a.n))
	must.Succeed(t, err)
	a.id = created.ID
	_, a.apiKey, err = env.store.IssueAPIKey(ctx, a.id, "", nil, nil)
	must.Succeed(t, err)
	_, a.authtoken, err = env.store.IssueAuthtoken(ctx, a.id, "", nil)
	must.Succeed(t, err)
	return a
}

// action is an action of a traffic policy.
type action struct {
	Type   string         `json:"type"`
	Config map[string]any `json:"config,omitempty"`
}

// rule is a rule of a traffic policy.
type rule struct {
	Expressions []string `json:"expressions,omitempty"`
	Actions     []action `json:"actions"`
}

func policy(t testing.TB, rules ...rule) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"on_http_request": rules})
	must.Succeed(t, err)
	return string(b)
}

// always returns a rule without expressions.
func always(actions ...action) rule { return rule{Actions: actions} }

// secretPrefix begins every client secret at the providers; no log may contain it.
const secretPrefix = "secret-of-client-"

func secretOf(clientID string) string { return secretPrefix + clientID }

// site is an endpoint.
type site struct {
	host, url string
	id        string
	*tenant
}

func (a *tenant) site(name string) *site {
	s := &site{tenant: a, host: fmt.Sprintf("%s-%d.%s", name, a.n, domain)}
	s.url = "https://" + s.host
	return s
}

// oidcSite serves a site of a new tenant behind a login through the shared Dex.
func oidcSite(t testing.TB, name string) *site {
	t.Helper()
	s := newTenant(t).site(name)
	return s.serve(always(s.oidc(env.provider("dex"), "oidc")))
}

// oidc registers a client with the provider, and returns an openid-connect action for it.
func (s *site) oidc(p *provider, authID string, more ...map[string]any) action {
	s.Helper()
	client := s.register(p, authID)
	config := map[string]any{"auth_id": authID, "issuer_url": p.Issuer, "client_id": client,
		"client_secret": secretOf(client), "scopes": []string{"openid", "profile", "email", "groups"}}
	for _, m := range more {
		for k, v := range m {
			config[k] = v
		}
	}
	return action{Type: "openid-connect", Config: config}
}

// register creates the client of a login action at the provider and returns its id.
func (s *site) register(p *provider, authID string) string {
	s.Helper()
	id := s.host + "-" + authID
	p.control(s.TB, "PUT", "/clients",
		map[string]any{"id": id, "secret": secretOf(id), "redirect_uris": []string{s.loginURL(authID, "callback")},
			"backchannel_logout_uri": s.loginURL(authID, "logout")}, nil)
	return id
}

// loginURL returns one of the login action's own URLs.
func (s *site) loginURL(authID, name string) string {
	return s.url + "/_fairlead/" + authID + "/" + name
}

// serve binds the site to the tenant's upstream until the test ends.
func (s *site) serve(rules ...rule) *site {
	s.Helper()
	s.grant()
	return s.bindWith("public", rules...)
}

// grant grants the host to the tenant.
func (s *site) grant() {
	s.Helper()
	if _, err := env.store.GrantDomain(timeoutContext(s.TB), s.tenant.id, s.host); err != nil {
		s.Fatal(err)
	}
}

func (s *site) bindWith(binding string, rules ...rule) *site {
	s.Helper()
	bind := tunnel.Bind{URL: s.url, Binding: binding, UpstreamURL: "http://localhost:1", UpstreamProtocol: "http1"}
	if len(rules) > 0 {
		bind.TrafficPolicy = policy(s.TB, rules...)
	}
	s.id = s.bind(bind).EndpointID
	return s
}

func (a *tenant) bind(b tunnel.Bind) tunnel.Bound {
	a.Helper()
	agent := a.service().StartAgent(b, a.upstream.addr)
	select {
	case bound := <-agent.Bound:
		return bound
	case err := <-agent.Ended:
		a.Fatalf("binding %s: %v", b.URL, err)
	case <-time.After(maxWait):
		a.Fatalf("%s was not bound", b.URL)
	}
	panic("unreachable")
}

// service returns the service, as the tenant calls it.
func (a *tenant) service() *servicetest.Server {
	return &servicetest.Server{T: a.TB, Addrs: env.at, APIKey: a.apiKey, Authtoken: a.authtoken}
}

// api calls the account API and returns the status; out may be nil.
func (a *tenant) api(method, path string, in, out any) int {
	a.Helper()
	return a.service().CallAPI(method, path, in, out)
}
