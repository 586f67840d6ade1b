// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// addToPool adds a member to a pool of cloud endpoints.
func addToPool(a *servicetest.Tenant, binding, url, backendID string) tunnel.Bound {
	a.T.Helper()
	u, err := account.ParseBindingURL(binding, url)
	must.Succeed(a.T, err)
	made, err := a.Store.CreateEndpoint(servicetest.Context(a.T),
		account.Endpoint{AccountID: a.Account, URL: u.String(), Bindings: []string{binding}, Scheme: u.Scheme,
			Host: u.Host,
			Port: u.Port,
			Type: account.TypeCloud, BackendID: backendID,
			EndpointSettings: account.EndpointSettings{PoolingEnabled: true}}, account.PolicyFacts{})
	must.Succeed(a.T, err)
	return tunnel.Bound{EndpointID: made.ID, URL: made.URL}
}

// answers counts what n requests are answered with.
func answers(n int, ask func() string) map[string]int {
	got := map[string]int{}
	for range n {
		got[ask()]++
	}
	return got
}

// TestEdge_PoolSpreadsOverCloudEndpoints checks that the members take turns, whichever member a
// stream names, and from wherever a request comes.
func TestEdge_PoolSpreadsOverCloudEndpoints(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	f, a := w.StartForwarder(), w.Tenant()
	var members []tunnel.Bound
	for _, name := range []string{"a", "b", "c"} {
		backend := a.Answer(200, name)
		members = append(members, addToPool(a, account.BindingKubernetes, "http://pool.demo", backend))
		addToPool(a, account.BindingInternal, "http://pool.internal", backend)
		addToPool(a, account.BindingPublic, "https://pool.example.com", backend)
	}
	through := a.Cloud(account.BindingKubernetes, "http://through.demo",
		"on_http_request:\n  - actions: [{type: forward-internal, config: {url: \"http://pool.internal\"}}]\n", "")
	ask := func(b tunnel.Bound) func() string {
		tr := f.Transport(b)
		return func() string {
			t.Helper()
			return servicetest.ReadAll(t, f.Do(tr, "GET", b.URL+"/x", nil, nil).Body)
		}
	}
	browser := w.NewBrowser()
	want := map[string]int{"a": 3, "b": 3, "c": 3}
	for name, from := range map[string]func() string{
		"a pod, by one member": ask(members[0]), "a pod, by another": ask(members[2]),
		"another endpoint's policy": ask(through),
		"the public": func() string {
			res, err := browser.Get("https://pool.example.com/x")
			must.Succeed(t, err)
			return servicetest.ReadAll(t, res.Body)
		},
	} {
		if got := answers(9, from); !maps.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", name, got, want)
		}
	}
	// A member that has gone takes no request along, also when the stream names it.
	must.Succeed(t, a.Store.DeleteEndpoint(servicetest.Context(t), a.Caller(), members[0].EndpointID))
	gone := func() string {
		h := servicetest.OpenHeader(t, members[0])
		h.Scheme = "http"
		st := f.Open(h)
		_, _ = io.WriteString(st, "GET / HTTP/1.1\r\nHost: pool.demo\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(st), nil)
		must.Succeed(t, err)
		return servicetest.ReadAll(t, res.Body)
	}
	servicetest.Eventually(t, "the others take its turns", func() bool {
		got := answers(4, gone)
		if got["a"]+got["b"]+got["c"] != 4 {
			t.Fatalf("a request was lost: %v", got)
		}
		return got["b"] == 2 && got["c"] == 2
	})
}

// TestEdge_CloudEndpointWithoutBackendUsesPool checks that a member whose backend cannot be reached
// leaves its requests and connections to the others.
func TestEdge_CloudEndpointWithoutBackendUsesPool(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, servicetest.AllowLoopback)
	f, a := r.StartForwarder(), r.Tenant()
	up := namedServer(t, "up").Listener.Addr().String()
	b := addToPool(a, account.BindingKubernetes, "http://pool.demo", a.Static(closedport.Reserve(t)))
	addToPool(a, account.BindingKubernetes, "http://pool.demo", a.Static(up))
	tr := f.Transport(b)
	for range 6 {
		res := f.Do(tr, http.MethodPost, "http://pool.demo/x", nil, nil)
		if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 200 {
			t.Errorf("a request was lost: %d %s", res.StatusCode, body)
		}
	}
	greeting := func(name string) string {
		return servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, name) })
	}
	tcp := addToPool(a, account.BindingKubernetes, "tcp://pool.demo:5432", a.Static(greeting("a")))
	addToPool(a, account.BindingKubernetes, "tcp://pool.demo:5432", a.Static(greeting("b")))
	addToPool(a, account.BindingKubernetes, "tcp://pool.demo:5432", a.Static(closedport.Reserve(t)))
	got := answers(6, func() string {
		st, name := openNamed(f, servicetest.OpenHeader(t, tcp), 1)
		_ = st.CloseWrite()
		return name
	})
	if got["a"]+got["b"] != 6 || got["a"] < 2 || got["b"] < 2 {
		t.Errorf("connections went to %v", got)
	}
}
