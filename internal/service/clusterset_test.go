// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// bindExported binds tcp://hello.demo.a:42 by an exporter that has a session with r only. Its
// upstream answers a request with its name.
func bindExported(r *servicetest.Server, name string) (*servicetest.Agent, tunnel.Bound) {
	r.T.Helper()
	var key account.APIKey
	r.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}, "cluster_uid": "one",
		"acl": []string{"export:demo/*"}}, &key)
	upstream := servicetest.ServeHTTP(r.T, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	})
	b := tunnel.Bind{URL: "tcp://hello.demo.a:42", Binding: account.BindingClusterset, UpstreamURL: "tcp://" + upstream,
		Owner: &tunnel.Owner{Kind: account.KindServiceExport, Namespace: "demo", Name: "hello", UID: "1"}}
	a := r.StartAgentWith(*key.Token, b, servicetest.RelayTo(upstream), func(c *tunnel.ClientConfig) {
		hello := c.Hello
		c.Hello = func() tunnel.Hello {
			h := hello()
			h.ClusterUID = "one"
			return h
		}
	})
	return a, servicetest.Receive(r.T, a.Bound, "bind")
}

// TestReplicas_RelayExportedPorts calls a port of an exported Service through a replica that the
// exporter has no session with, also by the id of an endpoint that is gone, and after the exporter
// has gone from one replica to the other.
func TestReplicas_RelayExportedPorts(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	first, bound := bindExported(one, "first")
	gone := bound
	gone.EndpointID = account.NewID(account.PrefixEndpoint, time.Now())
	named := func(f *servicetest.Forwarder, b tunnel.Bound, want string) {
		t.Helper()
		h := servicetest.OpenHeader(t, b)
		h.Scheme = "tcp"
		st := f.Open(h)
		_, _ = io.WriteString(st, "GET / HTTP/1.0\r\n\r\n")
		if answer := servicetest.ReadAll(t, st); len(answer) < len(want) || answer[len(answer)-len(want):] != want {
			t.Errorf("%s answered %q, want %s", b.EndpointID, answer, want)
		}
	}
	near, far := one.StartForwarder(), two.StartForwarder()
	for _, f := range []*servicetest.Forwarder{near, far} {
		named(f, bound, "first")
		named(f, gone, "first")
	}
	if got := metric(two, `fairlead_server_relayed_streams_total{direction="out"}`); got < 2 {
		t.Errorf("%v streams were relayed", got)
	}
	first.Stop()
	servicetest.Eventually(t, "the end of the first session", func() bool {
		return far.OpenRefused(servicetest.OpenHeader(t, bound)) == tunnel.RefusedOffline
	})
	_, again := bindExported(two, "second")
	if again.EndpointID != bound.EndpointID {
		t.Errorf("the next replica of the exporter got %s, not the row %s", again.EndpointID, bound.EndpointID)
	}
	for _, f := range []*servicetest.Forwarder{near, far} {
		named(f, bound, "second")
	}
}

// TestForwarder_CannotOpenRecordOfExport checks that what a cluster exports is no endpoint that a
// connection can be made to, by its id and by its URL.
func TestForwarder_CannotOpenRecordOfExport(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	tenant := r.Tenant()
	u := account.ServiceExportURL("hello", "demo", "a")
	e := account.Endpoint{AccountID: tenant.Account, URL: u.String(), Bindings: []string{account.BindingClusterset},
		Scheme: u.Scheme, Host: u.Host, Port: u.Port, Type: account.TypeCloud,
		Owner: &account.Owner{Cluster: "one", Kind: account.KindServiceExport, Namespace: "demo", Name: "hello",
			UID: "1"},
		ServiceExport: &account.ServiceExport{Type: account.ExportClusterSetIP, SessionAffinity: "None",
			Ports: []account.ServiceExportPort{{Name: "tcp", Protocol: "TCP", Port: 42}}}}
	made, err := tenant.Store.CreateEndpoint(servicetest.Context(t), e, account.PolicyFacts{})
	must.Succeed(t, err)
	f := r.StartForwarder()
	gone := account.NewID(account.PrefixEndpoint, time.Now())
	for _, id := range []string{made.ID, gone} {
		for _, scheme := range []string{"", "tcp", "http", account.SchemeService} {
			h := tunnel.OpenHeader{EndpointID: id, Scheme: scheme, Host: u.Host, ClientAddr: servicetest.PodAddr}
			if code := f.OpenRefused(h); code != tunnel.RefusedUnknownEndpoint {
				t.Errorf("%s as %q: %s", id, scheme, code)
			}
		}
	}
}
