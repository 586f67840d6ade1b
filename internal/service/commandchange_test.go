// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// awaitServers waits as commands do after their change of the account.
func awaitServers(t *testing.T, a *servicetest.Tenant, want int) {
	t.Helper()
	applied, err := a.Store.AwaitServers(servicetest.Context(t), a.Account)
	if err != nil || applied.Servers != want || len(applied.Missing) > 0 {
		t.Fatalf("%+v, %v", applied, err)
	}
}

// TestReplicas_CommandsWaitForAllServers deletes an authtoken and revokes a domain as commands do:
// in another process, with the store alone.
func TestReplicas_CommandsWaitForAllServers(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one := servicetest.StartPublic(t, g.options)
	g.first = one.Server
	one.RegisterOperator()
	two := g.start(func(o *service.Options) { o.Public = one.Options.Public })
	awaitPeers(1, one.Server, two)
	a := one.Tenant()
	token := one.CreateAuthtoken("bind:*")
	agent := one.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://a.demo:1"},
		servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo)))
	bound := servicetest.Receive(t, agent.Bound, "bind")
	f := two.StartForwarder()
	f.OpenEcho(bound)
	err := a.Store.DeleteAuthtoken(servicetest.Context(t), account.Caller{AccountID: a.Account}, token.ID)
	must.Succeed(t, err)
	awaitServers(t, a, 2)
	if code := f.OpenRefused(servicetest.OpenHeader(t, bound)); code != tunnel.RefusedOffline {
		t.Errorf("a stream after the command: %v", code)
	}
	checkRevokedDomain(t, one, a, 2)
}

// TestServer_CommandsWaitForIt does the same with a server that is alone.
func TestServer_CommandsWaitForIt(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	checkRevokedDomain(t, w, w.Tenant(), 1)
}

// checkRevokedDomain revokes the domain of an agent's and of a cloud endpoint.
func checkRevokedDomain(t *testing.T, w *servicetest.PublicServer, a *servicetest.Tenant, servers int) {
	t.Helper()
	w.Bind(account.BindingPublic, "https://app.example.com", func(http.ResponseWriter, *http.Request) {})
	a.Cloud(account.BindingPublic, "https://cloud.example.com", "", a.Answer(299, "canned"))
	expect := func(when string, app, cloud int) {
		t.Helper()
		for url, want := range map[string]int{"https://app.example.com": app, "https://cloud.example.com": cloud} {
			if status, _ := w.GetPage(url); status != want {
				t.Errorf("%s %s: %d, want %d", url, when, status, want)
			}
		}
	}
	expect("at first", http.StatusOK, 299)
	domains, err := a.Store.ListDomains(servicetest.Context(t), a.Account)
	if err != nil || len(domains) == 0 {
		t.Fatalf("%v, %v", domains, err)
	}
	for _, d := range domains {
		must.Succeed(t, a.Store.RevokeDomain(servicetest.Context(t), a.Account, d.Pattern))
	}
	awaitServers(t, a, servers)
	expect("after the command", http.StatusNotFound, http.StatusNotFound)
}
