// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/testenv/closedport"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// pooled makes a member of a pool of cloud endpoints.
func (a *tenant) pooled(binding, url, backendID string) tunnel.Bound {
	a.t.Helper()
	u, err := account.ParseBindingURL(binding, url)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := a.store.CreateEndpoint(testContext(a.t),
		account.Endpoint{AccountID: a.account, URL: u.String(), Bindings: []string{binding}, Scheme: u.Scheme, Host: u.Host,
			Port: u.Port,
			Type: account.TypeCloud, BackendID: backendID, PoolingEnabled: true}, account.PolicyFacts{})
	if err != nil {
		a.t.Fatal(err)
	}
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

// Whichever member a stream names, and from wherever a request comes: the members take turns.
func TestEdge_PoolSpreadsOverCloudEndpoints(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	f, a := w.startForwarder(), w.tenant()
	var members []tunnel.Bound
	for _, name := range []string{"a", "b", "c"} {
		backend := a.answer(200, name)
		members = append(members, a.pooled(account.BindingKubernetes, "http://pool.demo", backend))
		a.pooled(account.BindingInternal, "http://pool.internal", backend)
		a.pooled(account.BindingPublic, "https://pool.example.com", backend)
	}
	through := a.cloud(account.BindingKubernetes, "http://through.demo",
		"on_http_request:\n  - actions: [{type: forward-internal, config: {url: \"http://pool.internal\"}}]\n", "")
	ask := func(b tunnel.Bound) func() string {
		tr := f.transport(b)
		return func() string {
			t.Helper()
			return readAll(t, f.do(tr, "GET", "http://hello.demo/x", nil, nil).Body)
		}
	}
	browser := w.newBrowser()
	want := map[string]int{"a": 3, "b": 3, "c": 3}
	for name, from := range map[string]func() string{
		"a pod, by one member": ask(members[0]), "a pod, by another": ask(members[2]),
		"another endpoint's policy": ask(through),
		"the public": func() string {
			res, err := browser.Get("https://pool.example.com/x")
			if err != nil {
				t.Fatal(err)
			}
			return readAll(t, res.Body)
		},
	} {
		if got := answers(9, from); !maps.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", name, got, want)
		}
	}
	// A member that has gone takes no request along, also when the stream names it.
	if err := a.store.DeleteEndpoint(testContext(t), a.caller(), members[0].EndpointID); err != nil {
		t.Fatal(err)
	}
	gone := func() string {
		h := openHeader(t, members[0])
		h.Scheme = "http"
		st := f.open(h)
		_, _ = io.WriteString(st, "GET / HTTP/1.1\r\nHost: hello.demo\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(st), nil)
		if err != nil {
			t.Fatal(err)
		}
		return readAll(t, res.Body)
	}
	eventually(t, "the others take its turns", func() bool {
		got := answers(4, gone)
		if got["a"]+got["b"]+got["c"] != 4 {
			t.Fatalf("a request was lost: %v", got)
		}
		return got["b"] == 2 && got["c"] == 2
	})
}

// A member whose backend cannot be reached leaves its requests and connections to the others.
func TestEdge_CloudEndpointWithoutBackendUsesPool(t *testing.T) {
	t.Parallel()
	r := startServer(t, allowLoopback)
	f, a := r.startForwarder(), r.tenant()
	up := namedServer(t, "up").Listener.Addr().String()
	b := a.pooled(account.BindingKubernetes, "http://pool.demo", a.static(closedport.Reserve(t)))
	a.pooled(account.BindingKubernetes, "http://pool.demo", a.static(up))
	tr := f.transport(b)
	for range 6 {
		res := f.do(tr, http.MethodPost, "http://hello.demo/x", nil, nil)
		if body := readAll(t, res.Body); res.StatusCode != 200 {
			t.Errorf("a request was lost: %d %s", res.StatusCode, body)
		}
	}
	greeting := func(name string) string {
		return serveTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, name) })
	}
	tcp := a.pooled(account.BindingKubernetes, "tcp://pool.demo:5432", a.static(greeting("a")))
	a.pooled(account.BindingKubernetes, "tcp://pool.demo:5432", a.static(greeting("b")))
	a.pooled(account.BindingKubernetes, "tcp://pool.demo:5432", a.static(closedport.Reserve(t)))
	got := answers(6, func() string {
		st, name := f.openNamed(openHeader(t, tcp), 1)
		_ = st.CloseWrite()
		return name
	})
	if got["a"]+got["b"] != 6 || got["a"] < 2 || got["b"] < 2 {
		t.Errorf("connections went to %v", got)
	}
}
