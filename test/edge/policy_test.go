// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// namedServer is an upstream that answers with its name and the Host that it was asked by.
func namedServer(t *testing.T, name string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", name, r.Host, r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv
}

const onlyShop = `on_http_request:
  - expressions: ["!(conn.pod.namespace == 'shop')"]
    actions: [{type: deny}]
`

func TestPolicy_AdmitsOnePodOnly(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	up := namedServer(t, "up")
	agent := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo", UpstreamProtocol: "http1",
		TrafficPolicy: onlyShop}, servicetest.RelayTo(up.Listener.Addr().String()))
	bound := servicetest.Receive(t, agent.Bound, "bind")
	cloud := a.Cloud(account.BindingKubernetes, "http://cloud.demo", onlyShop, a.Answer(200, "canned"))
	tcpRule := strings.Replace(onlyShop, "on_http_request", "on_tcp_connect", 1)
	tcpAgent := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "tcp://db.demo:5432", TrafficPolicy: tcpRule},
		servicetest.RelayTo(servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "hi") })))
	tcp := servicetest.Receive(t, tcpAgent.Bound, "tcp bind")
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
				h := servicetest.OpenHeader(t, b)
				h.Pod = c.pod
				st := f.Open(h)
				if b == tcp {
					got, err := io.ReadAll(st)
					if err != nil {
						return 403, err.Error()
					}
					return 200, string(got)
				}
				_, _ = fmt.Fprintf(st,
					"GET / HTTP/1.1\r\nHost: %s\r\nFairlead-Pod-Namespace: shop\r\nConnection: close\r\n\r\n", h.Host)
				answer := servicetest.ReadAll(t, st)
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
	r := servicetest.Start(t)
	a := r.Tenant()
	r.StartForwarder() // registers the operator
	_, secret, err := a.Store.IssueAuthtoken(servicetest.Context(t), a.Account, "a developer's", []string{"bind:*"})
	must.Succeed(t, err)
	posing := r.StartForwarderAs(secret, r.OperatorID)
	if err := servicetest.Receive(t, posing.Ended, "end of the session"); err == nil ||
		!strings.Contains(err.Error(), "connect rule") {
		t.Errorf("a session that poses as a forwarder ended with %v", err)
	}
	// And as an agent it opens no streams, whatever pod it claims to be.
	ag := r.StartAgentWith(secret, tunnel.Bind{URL: "http://hello.demo", UpstreamProtocol: "http1",
		TrafficPolicy: onlyShop},
		refuseStream)
	bound := servicetest.Receive(t, ag.Bound, "bind")
	s, err := ag.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	h := servicetest.OpenHeader(t, bound)
	h.Pod = &tunnel.PodIdentity{Namespace: "shop"}
	st, err := s.Open(servicetest.Context(t), h)
	must.Succeed(t, err)
	if err := st.WaitOpened(servicetest.Context(t)); err == nil {
		t.Error("an agent's session has opened a stream to an endpoint")
	}
}

func TestEdge_SetsIdentityHeadersItself(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	})
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st,
		"POST / HTTP/1.1\r\nHost: hello.demo\r\nFairlead-User: a\r\nfairlead_user: b\r\nFAIRLEAD-User_Email: "+
			"c\r\nFairleading: kept\r\n"+
			"Trailer: Fairlead-User, X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nFairlead-User: "+
			"d\r\nFairlead_email: e\r\nX-Sum: 1\r\n\r\n")
	r := servicetest.Receive(t, got, "request")
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name := range h {
			if lower := strings.ToLower(name); strings.HasPrefix(lower, "fairlead-") ||
				strings.HasPrefix(lower, "fairlead_") {
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
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	one, two := a.Answer(200, "one"), a.Answer(200, "two")
	b := a.Cloud(account.BindingKubernetes, "http://cloud.demo", "", one)
	tr := f.Transport(b)
	tr.MaxConnsPerHost = 1
	ask := func() (string, bool) {
		res := f.Do(tr, "GET", "http://cloud.demo/", nil, nil)
		return fmt.Sprint(res.StatusCode, " ", servicetest.ReadAll(t, res.Body)), res.Close
	}
	becomes := func(want string) {
		t.Helper()
		servicetest.Eventually(t, "the answer is "+want, func() bool {
			got, last := ask()
			if last {
				t.Fatal("the connection was not kept")
			}
			return strings.HasPrefix(got, want)
		})
	}
	becomes("200 one")
	a.Patch(b, account.EndpointPatch{BackendID: &two})
	becomes("200 two")
	deny := "on_http_request: [{actions: [{type: deny}]}]"
	a.Patch(b, account.EndpointPatch{TrafficPolicy: &deny})
	becomes("403 ")
	none := ""
	a.Patch(b, account.EndpointPatch{TrafficPolicy: &none, BackendID: &none})
	becomes("503 ")
	if got, _ := ask(); !strings.Contains(got, string(account.CodeNoTarget)) {
		t.Errorf("an endpoint without a target answers %s", got)
	}
	must.Succeed(t, a.Store.DeleteEndpoint(servicetest.Context(t), a.Caller(), b.EndpointID))
	becomes("404 ")
}

func TestEdge_LimitsInternalForwards(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	forward := func(to string) string {
		return "on_http_request: [{actions: [{type: add-headers, config: {headers: {X-Hop: 'yes'}}}, {type: " +
			"forward-internal, config: {url: '" + to + "'}}]}]"
	}
	hop := func(n int) string { return fmt.Sprintf("http://hop%d.internal", n) }
	up := namedServer(t, "end")
	last := r.StartAgentWith(r.Authtoken,
		tunnel.Bind{Binding: account.BindingInternal, URL: hop(8), UpstreamProtocol: "http1"},
		servicetest.RelayTo(up.Listener.Addr().String()))
	servicetest.Receive(t, last.Bound, "bind of the last")
	for n := range 8 {
		a.Cloud(account.BindingInternal, hop(n), forward(hop(n+1)), "")
	}
	eight := a.Cloud(account.BindingKubernetes, "http://eight.demo", forward(hop(1)), "")
	nine := a.Cloud(account.BindingKubernetes, "http://nine.demo", forward(hop(0)), "")
	a.Cloud(account.BindingInternal, "http://a.internal", forward("http://b.internal"), "")
	a.Cloud(account.BindingInternal, "http://b.internal", forward("http://a.internal"), "")
	circle := a.Cloud(account.BindingKubernetes, "http://circle.demo", forward("http://a.internal"), "")
	nowhere := a.Cloud(account.BindingKubernetes, "http://nowhere.demo", forward("http://missing.internal"), "")
	if status, body := f.Get(eight); status != 200 || body != "end eight.demo /x" {
		t.Errorf("eight hops: %d %s", status, body)
	}
	for _, c := range []struct {
		b      tunnel.Bound
		status int
		code   account.Code
	}{{nine, 508, account.CodeLoop}, {circle, 508, account.CodeLoop}, {nowhere, 503, account.CodeNoInternal}} {
		if status, body := f.Get(c.b); status != c.status || !strings.Contains(body, string(c.code)) {
			t.Errorf("%s: %d %s", c.b.URL, status, body)
		}
	}
}

func TestPolicy_InternalEndpointRunsItsOwn(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	other, err := a.Store.CreateAccount(servicetest.Context(t), "other")
	must.Succeed(t, err)
	stranger := &servicetest.Tenant{T: t, Store: a.Store, Account: other.ID}
	stranger.Cloud(account.BindingInternal, "http://theirs.internal", "", stranger.Answer(200, "theirs"))
	a.Cloud(account.BindingInternal, "http://ours.internal",
		"on_http_request: [{actions: [{type: custom-response, config: {status_code: 418, body: 'refused by "+
			"internal'}}]}]",
		"")
	to := func(name string) string {
		return "on_http_request: [{actions: [{type: forward-internal, config: {url: 'http://" + name + ".internal'}}]}]"
	}
	if status, body := f.Get(a.Cloud(account.BindingKubernetes, "http://one.demo", to("ours"), "")); status != 418 ||
		body != "refused by internal" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := f.Get(a.Cloud(account.BindingKubernetes, "http://two.demo", to("theirs"), "")); status != 503 ||
		!strings.Contains(body, string(account.CodeNoInternal)) {
		t.Errorf("another account's internal endpoint: %d %s", status, body)
	}
}

func TestPolicy_ChangeHoldsForWholePool(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	serve := servicetest.RelayTo(namedServer(t, "up").Listener.Addr().String())
	bind := func(name, policy string, replace bool) tunnel.Bound {
		b := tunnel.Bind{URL: "http://hello.demo", Name: name, PoolingEnabled: true, UpstreamProtocol: "http1",
			TrafficPolicy: policy, ReplacePoolPolicy: replace}
		return servicetest.Receive(t, r.StartAgentWith(r.Authtoken, b, serve).Bound, "bind of "+name)
	}
	first := bind("a", "", false)
	if status, _ := f.Get(first); status != 200 {
		t.Fatalf("status %d", status)
	}
	bind("b", onlyShop, true)
	for range 6 {
		if status, _ := f.Get(first); status != 403 {
			t.Errorf("a member of the pool answers %d", status)
		}
	}
}

func TestEdge_ForwardsTCPToInternalEndpoints(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	forward := func(to string) string {
		return "on_tcp_connect: [{actions: [{type: forward-internal, config: {url: '" + to + "'}}]}]"
	}
	last := r.StartAgentWith(r.Authtoken, tunnel.Bind{Binding: account.BindingInternal, URL: "tcp://db.internal:5432"},
		servicetest.RelayTo(servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
	servicetest.Receive(t, last.Bound, "bind of the internal endpoint")
	a.Cloud(account.BindingInternal, "tcp://hop.internal:1", forward("tcp://db.internal:5432"), "")
	st := f.Open(servicetest.OpenHeader(t,
		a.Cloud(account.BindingKubernetes, "tcp://cloud.demo:5432", forward("tcp://hop.internal:1"),
			"")))
	_, _ = io.WriteString(st, "through two")
	_ = st.CloseWrite()
	if got := servicetest.ReadAll(t, st); got != "through two" {
		t.Errorf("came back: %q", got)
	}
	a.Cloud(account.BindingInternal, "tcp://circle.internal:1", forward("tcp://circle.internal:1"), "")
	if got := f.OpenRefused(servicetest.OpenHeader(t,
		a.Cloud(account.BindingKubernetes, "tcp://circle.demo:1", forward("tcp://circle.internal:1"), ""))); got !=
		tunnel.RefusedOffline {
		t.Errorf("a circle: %v", got)
	}
}
