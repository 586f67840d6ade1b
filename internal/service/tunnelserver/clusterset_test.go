// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// exportBind is a bind of a port of the Service that an object of team-a exports.
func exportBind(url, name string) tunnel.Bind {
	b := objectBind(url, "team-a", name)
	b.Binding, b.Owner.Kind = account.BindingClusterset, account.KindServiceExport
	return b
}

// TestBind_ClustersetRights checks that a port of an exported Service is bound by the exporter of
// its cluster alone, by the rule for its object and without one for its URL.
func TestBind_ClustersetRights(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	exporter := l.exporterWith(l.exporterKey("one", "export:team-a/*"), "one")
	bound, err := exporter.Bind(t.Context(), exportBind("tcp://web.team-a.a:42", "web"))
	storetest.Must(t, err)
	ep, err := l.store.Endpoint(t.Context(), l.accountID, bound.EndpointID)
	storetest.Must(t, err)
	storetest.Equal(t, "owner", ep.Owner.String(), "ServiceExport team-a/web of cluster one")
	storetest.Equal(t, "binding and type", ep.Bindings[0]+" "+ep.Type, "clusterset agent")
	with := func(change func(*tunnel.Bind)) tunnel.Bind {
		b := exportBind("tcp://web.team-a.a:43", "web")
		change(&b)
		return b
	}
	for name, c := range map[string]struct {
		by   *agent
		bind tunnel.Bind
		code tunnel.Code
		text string
	}{
		"another namespace": {exporter, with(func(b *tunnel.Bind) {
			b.URL, b.Owner.Namespace = "tcp://web.team-b.a:43", "team-b"
		}), tunnel.CodeForbidden, "no export rule that admits team-b/web"},
		"another Service's URL": {exporter, with(func(b *tunnel.Bind) { b.URL = "tcp://web.team-b.a:43" }),
			tunnel.CodeInvalid, "must be the ServiceExport that the url names"},
		"a name that begins so": {exporter, with(func(b *tunnel.Bind) { b.Owner.Name = "we" }), tunnel.CodeInvalid,
			"must be the ServiceExport that the url names"},
		"an AgentEndpoint": {exporter, with(func(b *tunnel.Bind) { b.Owner.Kind = account.KindAgentEndpoint }),
			tunnel.CodeInvalid, "must be ServiceExport"},
		"a ServiceExport of another binding": {exporter, with(func(b *tunnel.Bind) {
			b.URL, b.Binding = "tcp://web.team-a:43", account.BindingKubernetes
		}), tunnel.CodeInvalid, "must be AgentEndpoint"},
		"the record": {exporter, with(func(b *tunnel.Bind) { b.URL = "service://web.team-a.a" }), tunnel.CodeInvalid,
			"the scheme must be tcp"},
		"http": {exporter, with(func(b *tunnel.Bind) { b.URL = "http://web.team-a.a" }),
			tunnel.CodeInvalid, "tcp"},
		"no cluster": {exporter, with(func(b *tunnel.Bind) { b.URL = "tcp://web.team-a:43" }),
			tunnel.CodeInvalid, "three DNS labels"},
		"a pool": {exporter, with(func(b *tunnel.Bind) { b.PoolingEnabled = true }), tunnel.CodeInvalid,
			"pooling_enabled"},
		"no owner": {exporter, with(func(b *tunnel.Bind) { b.Owner = nil }), tunnel.CodeInvalid, "owner"},
		"an authtoken": {l.agent(), with(func(*tunnel.Bind) {}), tunnel.CodeForbidden,
			"API key with scope exporter"},
		"an authtoken's own": {l.agent(), with(func(b *tunnel.Bind) { b.Owner = nil }), tunnel.CodeForbidden,
			"API key with scope exporter"},
		"another cluster's key": {l.exporter("two"), exportBind("tcp://web.team-a.a:42", "web"), tunnel.CodeURLTaken,
			"cluster one"},
		"another cluster's id": {l.exporter("two"), exportBind("tcp://api.team-a.a:42", "api"), tunnel.CodeURLTaken,
			"the cluster id \"a\" is that of cluster one"},
		"a second id": {exporter, exportBind("tcp://api.team-a.b:42", "api"), tunnel.CodeURLTaken,
			"this cluster exports Services under the cluster id \"a\""},
	} {
		_, err := c.by.Bind(t.Context(), c.bind)
		mustRefuse(t, name, err, c.code, c.text)
	}
	storetest.Equal(t, "endpoints", l.Stats().Endpoints, 1)
}

// TestExporter_ClustersetFollowsExportRules checks that rules for URLs neither keep nor end what an
// exporter has bound for exported Services.
func TestExporter_ClustersetFollowsExportRules(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	key := l.exporterKey("one", "export:*", "bind:*")
	a := l.exporterWith(key, "one")
	_, err := a.Bind(t.Context(), exportBind("tcp://web.team-a.a:42", "web"))
	storetest.Must(t, err)
	narrow := func(rules ...string) {
		_, err := l.store.PatchAPIKey(t.Context(), account.Caller{AccountID: l.accountID}, key.ID,
			account.APIKeyPatch{ACL: &rules})
		storetest.Must(t, err)
		storetest.Must(t, l.ApplyAccess(t.Context(), l.accountID))
	}
	narrow("export:team-a/*", "bind:http://*.b")
	narrow("export:team-a/web")
	_, err = a.Bind(t.Context(), exportBind("tcp://web.team-a.a:43", "web"))
	storetest.Must(t, err)
	narrow("export:team-b/*", "bind:*")
	select {
	case err := <-a.ended:
		mustRefuse(t, "the session", err, tunnel.CodeForbidden, "no export rule that admits team-a/web")
	case <-time.After(testTimeout):
		t.Error("the session goes on")
	}
}

// TestEndpoint_ClustersetByURL checks which endpoint a forwarder's stream gets that names one which
// is gone: that of the URL, of its own account.
func TestEndpoint_ClustersetByURL(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	bound, err := l.exporter("one").Bind(t.Context(), exportBind("tcp://web.team-a.a:42", "web"))
	storetest.Must(t, err)
	header := tunnel.OpenHeader{EndpointID: account.NewID(account.PrefixEndpoint, time.Now()), Scheme: "tcp",
		Host: "web.team-a.a", Port: 42}
	ep, err := l.streams.endpoint(t.Context(), l.accountID, header)
	storetest.Must(t, err)
	storetest.Equal(t, "the endpoint at the URL", ep.ID, bound.EndpointID)
	for what, change := range map[string]func(*tunnel.OpenHeader){
		"no scheme":       func(h *tunnel.OpenHeader) { h.Scheme = "" },
		"another port":    func(h *tunnel.OpenHeader) { h.Port = 43 },
		"another cluster": func(h *tunnel.OpenHeader) { h.Host = "web.team-a.b" },
	} {
		h := header
		change(&h)
		if ep, err := l.streams.endpoint(t.Context(), l.accountID, h); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("%s: %+v, %v", what, ep, err)
		}
	}
	other, err := l.store.CreateAccount(t.Context(), "other")
	storetest.Must(t, err)
	for _, id := range []string{header.EndpointID, bound.EndpointID} {
		header.EndpointID = id
		if ep, err := l.streams.endpoint(t.Context(), other.ID, header); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("from another account: %+v, %v", ep, err)
		}
	}
}

// TestEndpoint_StoredReplacement checks that a server without the agent's session finds what was
// bound over another one in place of an endpoint that is gone, unless that is offline.
func TestEndpoint_StoredReplacement(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	a := r.agent(0)
	r.servers[0].setCluster(a.ID(), testCluster)
	id := a.bind(ownedBind("api")).EndpointID
	header := tunnel.OpenHeader{EndpointID: account.NewID(account.PrefixEndpoint, time.Now()), Scheme: "http",
		Host: "api.demo", Port: 80}
	ep, err := r.servers[1].streams.endpoint(t.Context(), r.accountID, header)
	storetest.Must(t, err)
	storetest.Equal(t, "the endpoint at the URL", ep.ID, id)
	a.stop()
	r.legs[0].awaitLeave(t)
	if ep, err := r.servers[1].streams.endpoint(t.Context(), r.accountID, header); account.CodeOf(err) !=
		account.CodeNotFound {
		t.Errorf("an offline one: %+v, %v", ep, err)
	}
}

// TestServesForwarders_ByBinding checks which endpoints can be opened from a cluster.
func TestServesForwarders_ByBinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ, binding, scheme string
		want                 bool
	}{
		{account.TypeAgent, account.BindingKubernetes, "http", true},
		{account.TypeCloud, account.BindingKubernetes, "tcp", true},
		{account.TypeAgent, account.BindingClusterset, "tcp", true},
		{account.TypeCloud, account.BindingClusterset, account.SchemeService, false},
		{account.TypeAgent, account.BindingInternal, "tcp", false},
		{account.TypeAgent, account.BindingPublic, "https", false},
	} {
		ep := account.Endpoint{Type: c.typ, Bindings: []string{c.binding}, Scheme: c.scheme}
		if got := servesForwarders(&ep); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
