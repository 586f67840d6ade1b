// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// tenant makes cloud endpoints and backends in the service's own account, straight in its store.
type tenant struct {
	t       *testing.T
	store   *store.Store
	account string
}

func (r *testServer) tenant() *tenant {
	r.t.Helper()
	sealed, err := r.opt.secretKey()
	if err != nil {
		r.t.Fatal(err)
	}
	st, err := store.Open(testContext(r.t), store.Options{DataDir: r.opt.DataDir, Key: sealed})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = st.Close() })
	key, err := st.APIKeyBySecret(testContext(r.t), r.apiKey)
	if err != nil {
		r.t.Fatal(err)
	}
	return &tenant{r.t, st, key.AccountID}
}

func (a *tenant) caller() account.Caller { return account.Caller{AccountID: a.account} }

// cloud makes a cloud endpoint and returns it as a forwarder would name it.
func (a *tenant) cloud(binding, url, policy, backendID string) tunnel.Bound {
	a.t.Helper()
	u, err := account.ParseBindingURL(binding, url)
	if err != nil {
		a.t.Fatal(err)
	}
	e := account.Endpoint{AccountID: a.account, URL: u.String(), Bindings: []string{binding}, Scheme: u.Scheme,
		Host: u.Host, Port: u.Port,
		Type: account.TypeCloud, TrafficPolicy: policy, BackendID: backendID}
	made, err := a.store.CreateEndpoint(testContext(a.t), e, a.facts(policy, u.Scheme, binding))
	if err != nil {
		a.t.Fatal(err)
	}
	return tunnel.Bound{EndpointID: made.ID, URL: made.URL}
}

func (a *tenant) facts(policy, scheme, binding string) account.PolicyFacts {
	a.t.Helper()
	if policy == "" {
		return account.PolicyFacts{}
	}
	facts, err := compilePolicy(policy, scheme, binding)
	if err != nil {
		a.t.Fatal(err)
	}
	return facts
}

func (a *tenant) patch(b tunnel.Bound, p account.EndpointPatch) {
	a.t.Helper()
	var facts account.PolicyFacts
	if p.TrafficPolicy != nil {
		facts = a.facts(*p.TrafficPolicy, "http", account.BindingKubernetes)
	}
	if _, err := a.store.PatchEndpoint(testContext(a.t), a.caller(), b.EndpointID, p, facts); err != nil {
		a.t.Fatal(err)
	}
}

func (a *tenant) backend(b account.Backend) string {
	a.t.Helper()
	b.AccountID = a.account
	made, err := a.store.CreateBackend(testContext(a.t), a.caller(), b)
	if err != nil {
		a.t.Fatal(err)
	}
	return made.ID
}

func (a *tenant) answer(status int, body string) string {
	return a.backend(account.Backend{Kind: account.BackendHTTPResponse,
		Response: &account.HTTPResponse{StatusCode: status, Body: body, Headers: map[string]string{"X-Canned": "yes"}}})
}

func (a *tenant) static(address string) string {
	return a.backend(account.Backend{Kind: account.BackendStatic, Static: &account.StaticAddress{Address: address}})
}

func (a *tenant) group(labels map[string]string) string {
	return a.backend(account.Backend{Kind: account.BackendTunnelGroup, Labels: labels})
}

func (a *tenant) failover(children ...string) string {
	return a.backend(account.Backend{Kind: account.BackendFailover, Children: children})
}

// namedServer is an upstream that answers with its name and the Host that it was asked by.
func namedServer(t *testing.T, name string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", name, r.Host, r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// get asks over a connection of its own.
func (f *testForwarder) get(b tunnel.Bound) (int, string) {
	f.t.Helper()
	tr := f.transport(b)
	defer tr.CloseIdleConnections()
	res := f.do(tr, "GET", "http://hello.demo/x", nil, nil)
	return res.StatusCode, readAll(f.t, res.Body)
}

const onlyShop = `on_http_request:
  - expressions: ["!(conn.pod.namespace == 'shop')"]
    actions: [{type: deny}]
`

func TestPolicy_AdmitsOnePodOnly(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	up := namedServer(t, "up")
	agent := r.startAgentWith(r.authtoken, tunnel.Bind{URL: "http://hello.demo", UpstreamProtocol: "http1",
		TrafficPolicy: onlyShop}, relayTo(up.Listener.Addr().String()))
	bound := receive(t, agent.bound, "bind")
	cloud := a.cloud(account.BindingKubernetes, "http://cloud.demo", onlyShop, a.answer(200, "canned"))
	tcpRule := strings.Replace(onlyShop, "on_http_request", "on_tcp_connect", 1)
	tcpAgent := r.startAgentWith(r.authtoken, tunnel.Bind{URL: "tcp://db.demo:5432", TrafficPolicy: tcpRule},
		relayTo(serveTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "hi") })))
	tcp := receive(t, tcpAgent.bound, "tcp bind")
	pod := func(namespace string) *tunnel.PodIdentity {
		return &tunnel.PodIdentity{Namespace: namespace, Name: "web-1", ServiceAccount: "web"}
	}
	for name, c := range map[string]struct {
		pod   *tunnel.PodIdentity
		admit bool
	}{
		"the pod": {pod("shop"), true}, "another": {pod("evil"), false}, "an unknown": {nil, false},
		"one without a namespace": {pod(""), false},
		"one whose name is cut":   {pod("shop" + strings.Repeat("x", 300)), false},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(b tunnel.Bound) (int, string) {
				h := openHeader(t, b)
				h.Pod = c.pod
				st := f.open(h)
				if b == tcp {
					got, err := io.ReadAll(st)
					if err != nil {
						return 403, err.Error()
					}
					return 200, string(got)
				}
				_, _ = io.WriteString(st,
					"GET / HTTP/1.1\r\nHost: hello.demo\r\nFairlead-Pod-Namespace: shop\r\nConnection: close\r\n\r\n")
				answer := readAll(t, st)
				status := 0
				_, _ = fmt.Sscanf(answer, "HTTP/1.1 %d", &status)
				return status, answer
			}
			for _, b := range []tunnel.Bound{bound, cloud, tcp} {
				want := map[bool]int{true: 200, false: 403}[c.admit]
				if status, body := ask(b); status != want {
					t.Errorf("%s: %d, want %d: %s", b.URL, status, want, body)
				}
			}
		})
	}
}

func TestPolicy_IgnoresPodClaimedByAgentToken(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	a := r.tenant()
	r.startForwarder() // registers the operator
	_, secret, err := a.store.IssueAuthtoken(testContext(t), a.account, "a developer's", []string{"bind:*"})
	if err != nil {
		t.Fatal(err)
	}
	posing := r.startForwarderAs(secret, r.operatorID)
	if err := receive(t, posing.ended, "end of the session"); err == nil ||
		!strings.Contains(err.Error(), "connect rule") {
		t.Errorf("a session that poses as a forwarder ended with %v", err)
	}
	// And as an agent it opens no streams, whatever pod it says it is.
	ag := r.startAgentWith(secret, tunnel.Bind{URL: "http://hello.demo", UpstreamProtocol: "http1",
		TrafficPolicy: onlyShop},
		refuseStream)
	bound := receive(t, ag.bound, "bind")
	s, err := ag.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	h := openHeader(t, bound)
	h.Pod = &tunnel.PodIdentity{Namespace: "shop"}
	st, err := s.Open(testContext(t), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.WaitOpened(testContext(t)); err == nil {
		t.Error("an agent's session has opened a stream to an endpoint")
	}
}

func TestEdge_SetsIdentityHeadersItself(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	p := newEdgePath(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	})
	st := p.forwarder.open(openHeader(t, p.bound))
	_, _ = io.WriteString(st,
		"POST / HTTP/1.1\r\nHost: hello.demo\r\nFairlead-User: a\r\nfairlead_user: b\r\nFAIRLEAD-User_Email: "+
			"c\r\nFairleading: kept\r\n"+
			"Trailer: Fairlead-User, X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nFairlead-User: "+
			"d\r\nFairlead_email: e\r\nX-Sum: 1\r\n\r\n")
	r := receive(t, got, "request")
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name := range h {
			if lower := strings.ToLower(name); strings.HasPrefix(lower, "fairlead-") || strings.HasPrefix(lower, "fairlead_") {
				t.Errorf("the upstream got %s: %v", name, h[name])
			}
		}
	}
	if r.Header.Get("Fairleading") != "kept" || r.Trailer.Get("X-Sum") != "1" {
		t.Errorf("the upstream got %v, trailers %v", r.Header, r.Trailer)
	}
}

func TestPolicy_ChangeHoldsOnOpenConnections(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	one, two := a.answer(200, "one"), a.answer(200, "two")
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "", one)
	tr := f.transport(b)
	tr.MaxConnsPerHost = 1
	ask := func() (string, bool) {
		res := f.do(tr, "GET", "http://cloud.demo/", nil, nil)
		return fmt.Sprint(res.StatusCode, " ", readAll(t, res.Body)), res.Close
	}
	becomes := func(want string) {
		t.Helper()
		eventually(t, "the answer is "+want, func() bool {
			got, last := ask()
			if last {
				t.Fatal("the connection was not kept")
			}
			return strings.HasPrefix(got, want)
		})
	}
	becomes("200 one")
	a.patch(b, account.EndpointPatch{BackendID: &two})
	becomes("200 two")
	deny := "on_http_request: [{actions: [{type: deny}]}]"
	a.patch(b, account.EndpointPatch{TrafficPolicy: &deny})
	becomes("403 ")
	none := ""
	a.patch(b, account.EndpointPatch{TrafficPolicy: &none, BackendID: &none})
	becomes("503 ")
	if got, _ := ask(); !strings.Contains(got, string(account.CodeNoTarget)) {
		t.Errorf("an endpoint without a target answers %s", got)
	}
	if err := a.store.DeleteEndpoint(testContext(t), a.caller(), b.EndpointID); err != nil {
		t.Fatal(err)
	}
	becomes("404 ")
}

func TestEdge_LimitsInternalForwards(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	forward := func(to string) string {
		return "on_http_request: [{actions: [{type: add-headers, config: {headers: {X-Hop: 'yes'}}}, {type: " +
			"forward-internal, config: {url: '" + to + "'}}]}]"
	}
	hop := func(n int) string { return fmt.Sprintf("http://hop%d.internal", n) }
	up := namedServer(t, "end")
	last := r.startAgentWith(r.authtoken,
		tunnel.Bind{Binding: account.BindingInternal, URL: hop(8), UpstreamProtocol: "http1"},
		relayTo(up.Listener.Addr().String()))
	receive(t, last.bound, "bind of the last")
	for n := range 8 {
		a.cloud(account.BindingInternal, hop(n), forward(hop(n+1)), "")
	}
	eight := a.cloud(account.BindingKubernetes, "http://eight.demo", forward(hop(1)), "")
	nine := a.cloud(account.BindingKubernetes, "http://nine.demo", forward(hop(0)), "")
	a.cloud(account.BindingInternal, "http://a.internal", forward("http://b.internal"), "")
	a.cloud(account.BindingInternal, "http://b.internal", forward("http://a.internal"), "")
	circle := a.cloud(account.BindingKubernetes, "http://circle.demo", forward("http://a.internal"), "")
	nowhere := a.cloud(account.BindingKubernetes, "http://nowhere.demo", forward("http://missing.internal"), "")
	if status, body := f.get(eight); status != 200 || body != "end hello.demo /x" {
		t.Errorf("eight hops: %d %s", status, body)
	}
	for _, c := range []struct {
		b      tunnel.Bound
		status int
		code   account.Code
	}{{nine, 508, account.CodeLoop}, {circle, 508, account.CodeLoop}, {nowhere, 503, account.CodeNoInternal}} {
		if status, body := f.get(c.b); status != c.status || !strings.Contains(body, string(c.code)) {
			t.Errorf("%s: %d %s", c.b.URL, status, body)
		}
	}
}

func TestPolicy_InternalEndpointRunsItsOwn(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	other, err := a.store.CreateAccount(testContext(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	stranger := &tenant{t, a.store, other.ID}
	stranger.cloud(account.BindingInternal, "http://theirs.internal", "", stranger.answer(200, "theirs"))
	a.cloud(account.BindingInternal, "http://ours.internal",
		"on_http_request: [{actions: [{type: custom-response, config: {status_code: 418, body: 'internal says no'}}]}]", "")
	to := func(name string) string {
		return "on_http_request: [{actions: [{type: forward-internal, config: {url: 'http://" + name + ".internal'}}]}]"
	}
	if status, body := f.get(a.cloud(account.BindingKubernetes, "http://one.demo", to("ours"), "")); status != 418 ||
		body != "internal says no" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := f.get(a.cloud(account.BindingKubernetes, "http://two.demo", to("theirs"), "")); status != 503 ||
		!strings.Contains(body, string(account.CodeNoInternal)) {
		t.Errorf("another account's internal endpoint: %d %s", status, body)
	}
}

func TestPolicy_ChangeHoldsForWholePool(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f := r.startForwarder()
	serve := relayTo(namedServer(t, "up").Listener.Addr().String())
	bind := func(name, policy string, replace bool) tunnel.Bound {
		b := tunnel.Bind{URL: "http://hello.demo", Name: name, PoolingEnabled: true, UpstreamProtocol: "http1",
			TrafficPolicy: policy, ReplacePoolPolicy: replace}
		return receive(t, r.startAgentWith(r.authtoken, b, serve).bound, "bind of "+name)
	}
	first := bind("a", "", false)
	if status, _ := f.get(first); status != 200 {
		t.Fatalf("status %d", status)
	}
	bind("b", onlyShop, true)
	for range 6 {
		if status, _ := f.get(first); status != 403 {
			t.Errorf("a member of the pool answers %d", status)
		}
	}
}

func TestEdge_ForwardsTCPToInternalEndpoints(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	forward := func(to string) string {
		return "on_tcp_connect: [{actions: [{type: forward-internal, config: {url: '" + to + "'}}]}]"
	}
	last := r.startAgentWith(r.authtoken, tunnel.Bind{Binding: account.BindingInternal, URL: "tcp://db.internal:5432"},
		relayTo(serveTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
	receive(t, last.bound, "bind of the internal endpoint")
	a.cloud(account.BindingInternal, "tcp://hop.internal:1", forward("tcp://db.internal:5432"), "")
	st := f.open(openHeader(t, a.cloud(account.BindingKubernetes, "tcp://cloud.demo:5432", forward("tcp://hop.internal:1"),
		"")))
	_, _ = io.WriteString(st, "through two")
	_ = st.CloseWrite()
	if got := readAll(t, st); got != "through two" {
		t.Errorf("came back: %q", got)
	}
	a.cloud(account.BindingInternal, "tcp://circle.internal:1", forward("tcp://circle.internal:1"), "")
	if got := f.openRefused(openHeader(t,
		a.cloud(account.BindingKubernetes, "tcp://circle.demo:1", forward("tcp://circle.internal:1"), ""))); got !=
		tunnel.RefusedOffline {
		t.Errorf("a circle: %v", got)
	}
}
