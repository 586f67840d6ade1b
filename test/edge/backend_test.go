// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// startLabelledAgent brings a labelled tunnel online.
func startLabelledAgent(r *servicetest.Server, app string, serve string) *servicetest.Agent {
	r.T.Helper()
	a := r.StartAgentWith(r.Authtoken, tunnel.Bind{Labels: map[string]string{"app": app}, UpstreamProtocol: "http1"},
		servicetest.RelayTo(serve))
	servicetest.Receive(r.T, a.Bound, "tunnel of "+app)
	return a
}

// expectActive checks the active child of a failover backend that the API returns.
func expectActive(r *servicetest.Server, failover, want string) {
	r.T.Helper()
	var got struct {
		Active string `json:"active_backend"`
	}
	if status := r.CallAPI("GET", "/backends/failover/"+failover, nil, &got); status != 200 || got.Active != want {
		r.T.Errorf("the API answers %d, active_backend %q, want %q", status, got.Active, want)
	}
}

func TestEdge_FailoverServesHTTPFromFirstChildUp(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, servicetest.AllowLoopback)
	f, a := r.StartForwarder(), r.Tenant()
	inGroup := namedServer(t, "group").Listener.Addr().String()
	behind := namedServer(t, "static").Listener.Addr().String()
	group, static := a.Group(map[string]string{"app": "api"}), a.Static(behind)
	order := a.Failover(group, static, a.Answer(299, "canned"))
	tr := f.Transport(a.Cloud(account.BindingKubernetes, "http://cloud.demo", "", order))
	ask := func() string {
		t.Helper()
		res := f.Do(tr, "GET", "http://cloud.demo/x", nil, nil)
		body := servicetest.ReadAll(t, res.Body)
		if res.StatusCode >= 300 {
			t.Errorf("a request failed: %d %s", res.StatusCode, body)
		}
		return body
	}
	if got := ask(); got != "static "+behind+" /x" { // with the address' own host
		t.Errorf("without a tunnel: %q", got)
	}
	expectActive(r, order, static)
	first := startLabelledAgent(r, "api", inGroup)
	servicetest.Eventually(t, "the group serves", func() bool { return ask() == "group cloud.demo /x" })
	expectActive(r, order, group)
	first.Stop()
	servicetest.Eventually(t, "the static address serves again", func() bool {
		return strings.HasPrefix(ask(), "static ")
	})
	servicetest.Eventually(t, "the switches are recorded", func() bool {
		var list struct{ Events []account.AuditEvent }
		r.CallAPI("GET", "/events?type=backend.switched&object_id="+order, nil, &list)
		return len(list.Events) >= 2 && list.Events[0].Details["from"] == group &&
			list.Events[0].Details["to"] == static
	})
	expectActive(r, order, static)
	startLabelledAgent(r, "api", inGroup) // it recovers
	servicetest.Eventually(t, "the group serves again", func() bool { return strings.HasPrefix(ask(), "group ") })
}

func TestEdge_HTTPResponseBackendAnswers(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	tr := f.Transport(a.Cloud(account.BindingKubernetes, "http://canned.demo", "", a.Answer(299, "canned")))
	res := f.Do(tr, "POST", "http://canned.demo/", strings.NewReader("body"), nil)
	if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 299 || body != "canned" ||
		res.Header.Get("X-Canned") != "yes" || res.Header.Get("Content-Length") != "6" {
		t.Errorf("a canned answer: %d %q %v", res.StatusCode, body, res.Header)
	}
	if res := f.Do(tr, "HEAD", "http://canned.demo/", nil, nil); res.StatusCode != 299 ||
		servicetest.ReadAll(t, res.Body) != "" {
		t.Errorf("a canned answer to HEAD: %d", res.StatusCode)
	}
}

func TestEdge_RetriesWithinTunnelGroup(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	var asked atomic.Int32
	bad := r.StartAgentWith(r.Authtoken,
		tunnel.Bind{Labels: map[string]string{"app": "api"}, UpstreamProtocol: "http1"},
		countStreams(&asked, refuseStream))
	servicetest.Receive(t, bad.Bound, "the tunnel that refuses")
	group := a.Group(map[string]string{"app": "api"})
	b := a.Cloud(account.BindingKubernetes, "http://cloud.demo", "", a.Failover(group, a.Answer(200, "canned")))
	if status, body := f.Get(b); status != 200 || body != "canned" {
		t.Errorf("a group that refuses: %d %s", status, body)
	}
	startLabelledAgent(r, "api", namedServer(t, "good").Listener.Addr().String())
	for range 8 {
		if status, body := f.Get(b); status != 200 || body != "good cloud.demo /x" {
			t.Errorf("a group of which one refuses: %d %s", status, body)
		}
	}
	if asked.Load() < 2 {
		t.Errorf("the one that refuses was asked %d times", asked.Load())
	}
}

func TestEdge_FailoverServesTCPFromFirstChildUp(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, servicetest.AllowLoopback)
	f, a := r.StartForwarder(), r.Tenant()
	namedTCP := func(name string) string {
		return servicetest.ServeTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, name)
			_, _ = io.Copy(c, c)
			_ = c.CloseWrite()
		})
	}
	closed := a.Static(closedport.Reserve(t))
	b := a.Cloud(account.BindingKubernetes, "tcp://cloud.demo:5432", "",
		a.Failover(a.Group(map[string]string{"app": "db"}), closed, a.Static(namedTCP("static:"))))
	exchange := func() string {
		st := f.Open(servicetest.OpenHeader(t, b))
		_, _ = io.WriteString(st, "ping")
		_ = st.CloseWrite()
		return servicetest.ReadAll(t, st)
	}
	for range 2 {
		if got := exchange(); got != "static:ping" {
			t.Errorf("past a closed port: %q", got)
		}
	}
	tun := startLabelledAgent(r, "db", namedTCP("group:"))
	servicetest.Eventually(t, "the group serves", func() bool { return exchange() == "group:ping" })
	held, name := openNamed(f, servicetest.OpenHeader(t, b), 6)
	if name != "group:" {
		t.Fatalf("the connection went to %q", name)
	}
	other := startLabelledAgent(r, "db", namedTCP("second:"))
	if !echoes(held) {
		t.Error("a connection broke because another tunnel came")
	}
	other.Stop()
	tun.Stop()
	servicetest.Eventually(t, "the address serves again", func() bool { return exchange() == "static:ping" })
	alone := a.Cloud(account.BindingKubernetes, "tcp://alone.demo:1", "", closed)
	if got := f.OpenRefused(servicetest.OpenHeader(t, alone)); got != tunnel.RefusedUpstream {
		t.Errorf("without a child that is up: %v", got)
	}
}

func TestEdge_RefusesStaticAddressesOfOwnNetwork(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	for i, address := range []string{namedServer(t, "loopback").Listener.Addr().String(), "169.254.169.254:80",
		"[::1]:80",
		"[::ffff:127.0.0.1]:80", "10.0.0.1:80"} {
		b := a.Cloud(account.BindingKubernetes, fmt.Sprintf("http://s%d.demo", i), "", a.Static(address))
		if status, body := f.Get(b); status != 503 || !strings.Contains(body, string(account.CodeNoChild)) ||
			strings.Contains(body, address) {
			t.Errorf("%s: %d %s", address, status, body)
		}
	}
}

func TestEdge_FailoverUnderLoadFailsNoRequest(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, servicetest.AllowLoopback)
	f, a := r.StartForwarder(), r.Tenant()
	first := namedServer(t, "first").Listener.Addr().String()
	b := a.Cloud(account.BindingKubernetes, "http://cloud.demo", "",
		a.Failover(a.Group(map[string]string{"app": "api"}),
			a.Static(namedServer(t, "second").Listener.Addr().String())))
	tun := startLabelledAgent(r, "api", first)
	stop := make(chan struct{})
	var served sync.Map
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			tr := f.Transport(b)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				res := f.Do(tr, http.MethodGet, "http://cloud.demo/x", nil, nil)
				body := servicetest.ReadAll(t, res.Body)
				if res.StatusCode != 200 {
					t.Errorf("a request failed: %d %s", res.StatusCode, body)
					return
				}
				name, _, _ := strings.Cut(body, " ")
				served.Store(name, true)
			}
		})
	}
	seen := func(name string) func() bool {
		served.Clear()
		return func() bool { _, ok := served.Load(name); return ok }
	}
	servicetest.Eventually(t, "the first serves", seen("first"))
	tun.Stop()
	servicetest.Eventually(t, "the second serves", seen("second"))
	startLabelledAgent(r, "api", first)
	servicetest.Eventually(t, "the first serves again", seen("first"))
	close(stop)
	load.Wait()
}
