// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

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
	"github.com/fairlead-dev/fairlead/internal/testenv/closedport"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// startLabelledAgent brings a labelled tunnel online.
func (r *testServer) startLabelledAgent(app string, serve string) *testAgent {
	r.t.Helper()
	a := r.startAgentWith(r.authtoken, tunnel.Bind{Labels: map[string]string{"app": app}, UpstreamProtocol: "http1"},
		relayTo(serve))
	receive(r.t, a.bound, "tunnel of "+app)
	return a
}

func TestEdge_FailoverServesHTTPFromFirstChildUp(t *testing.T) {
	t.Parallel()
	r := startServer(t, allowLoopback)
	f, a := r.startForwarder(), r.tenant()
	inGroup := namedServer(t, "group").Listener.Addr().String()
	behind := namedServer(t, "static").Listener.Addr().String()
	group, static, canned := a.group(map[string]string{"app": "api"}), a.static(behind), a.answer(299, "canned")
	order := a.failover(group, static, canned)
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "", order)
	tr := f.transport(b)
	ask := func() string {
		t.Helper()
		res := f.do(tr, "GET", "http://hello.demo/x", nil, nil)
		body := readAll(t, res.Body)
		if res.StatusCode >= 300 {
			t.Errorf("a request failed: %d %s", res.StatusCode, body)
		}
		return body
	}
	if got := ask(); got != "static "+behind+" /x" { // with the address' own host
		t.Errorf("without a tunnel: %q", got)
	}
	serving := func(want string) {
		t.Helper()
		var got struct {
			Active string `json:"active_backend"`
		}
		if status := r.callAPI("GET", "/backends/failover/"+order, nil, &got); status != 200 || got.Active != want {
			t.Errorf("the API says %d, active_backend %q, want %q", status, got.Active, want)
		}
	}
	serving(static)
	first := r.startLabelledAgent("api", inGroup)
	eventually(t, "the group serves", func() bool { return ask() == "group hello.demo /x" })
	serving(group)
	first.stop()
	eventually(t, "the static address serves again", func() bool { return strings.HasPrefix(ask(), "static ") })
	eventually(t, "the switches are told", func() bool {
		var list struct{ Events []account.AuditEvent }
		r.callAPI("GET", "/events?type=backend.switched&object_id="+order, nil, &list)
		return len(list.Events) >= 2 && list.Events[0].Details["from"] == group && list.Events[0].Details["to"] == static
	})
	var failover struct {
		Active string `json:"active_backend"`
	}
	if r.callAPI("GET", "/backends/failover/"+order, nil, &failover); failover.Active != static {
		t.Errorf("the active child is %q, not %s", failover.Active, static)
	}
	r.startLabelledAgent("api", inGroup) // it recovers
	eventually(t, "the group serves again", func() bool { return strings.HasPrefix(ask(), "group ") })
	unlabelled := a.cloud(account.BindingKubernetes, "http://canned.demo", "", canned)
	res := f.do(f.transport(unlabelled), "POST", "http://hello.demo/", strings.NewReader("body"), nil)
	if body := readAll(t, res.Body); res.StatusCode != 299 || body != "canned" || res.Header.Get("X-Canned") != "yes" ||
		res.Header.Get("Content-Length") != "6" {
		t.Errorf("a canned answer: %d %q %v", res.StatusCode, body, res.Header)
	}
	if res := f.do(f.transport(unlabelled), "HEAD", "http://hello.demo/", nil, nil); res.StatusCode != 299 ||
		readAll(t, res.Body) != "" {
		t.Errorf("a canned answer to HEAD: %d", res.StatusCode)
	}
}

func TestEdge_RetriesWithinTunnelGroup(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	var asked atomic.Int32
	bad := r.startAgentWith(r.authtoken, tunnel.Bind{Labels: map[string]string{"app": "api"}, UpstreamProtocol: "http1"},
		countStreams(&asked, refuseStream))
	receive(t, bad.bound, "the tunnel that refuses")
	group := a.group(map[string]string{"app": "api"})
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "", a.failover(group, a.answer(200, "canned")))
	if status, body := f.get(b); status != 200 || body != "canned" {
		t.Errorf("a group that refuses: %d %s", status, body)
	}
	r.startLabelledAgent("api", namedServer(t, "good").Listener.Addr().String())
	for range 8 {
		if status, body := f.get(b); status != 200 || body != "good hello.demo /x" {
			t.Errorf("a group of which one refuses: %d %s", status, body)
		}
	}
	if asked.Load() < 2 {
		t.Errorf("the one that refuses was asked %d times", asked.Load())
	}
}

func TestEdge_FailoverServesTCPFromFirstChildUp(t *testing.T) {
	t.Parallel()
	r := startServer(t, allowLoopback)
	f, a := r.startForwarder(), r.tenant()
	says := func(name string) string {
		return serveTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, name)
			_, _ = io.Copy(c, c)
			_ = c.CloseWrite()
		})
	}
	closed := a.static(closedport.Reserve(t))
	b := a.cloud(account.BindingKubernetes, "tcp://cloud.demo:5432", "",
		a.failover(a.group(map[string]string{"app": "db"}), closed, a.static(says("static:"))))
	talk := func() string {
		st := f.open(openHeader(t, b))
		_, _ = io.WriteString(st, "ping")
		_ = st.CloseWrite()
		return readAll(t, st)
	}
	for range 2 {
		if got := talk(); got != "static:ping" {
			t.Errorf("past a closed port: %q", got)
		}
	}
	tun := r.startLabelledAgent("db", says("group:"))
	eventually(t, "the group serves", func() bool { return talk() == "group:ping" })
	held, name := f.openNamed(openHeader(t, b), 6)
	if name != "group:" {
		t.Fatalf("the connection went to %q", name)
	}
	other := r.startLabelledAgent("db", says("second:"))
	if !echoes(held) {
		t.Error("a connection broke because another tunnel came")
	}
	other.stop()
	tun.stop()
	eventually(t, "the address serves again", func() bool { return talk() == "static:ping" })
	alone := a.cloud(account.BindingKubernetes, "tcp://alone.demo:1", "", closed)
	if got := f.openRefused(openHeader(t, alone)); got != tunnel.RefusedUpstream {
		t.Errorf("without anybody: %v", got)
	}
}

func TestEdge_RefusesStaticAddressesOfOwnNetwork(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	for i, address := range []string{namedServer(t, "loopback").Listener.Addr().String(), "169.254.169.254:80", "[::1]:80",
		"[::ffff:127.0.0.1]:80", "10.0.0.1:80"} {
		b := a.cloud(account.BindingKubernetes, fmt.Sprintf("http://s%d.demo", i), "", a.static(address))
		if status, body := f.get(b); status != 503 || !strings.Contains(body, string(account.CodeNoChild)) ||
			strings.Contains(body, address) {
			t.Errorf("%s: %d %s", address, status, body)
		}
	}
}

func TestEdge_FailoverUnderLoadFailsNoRequest(t *testing.T) {
	t.Parallel()
	r := startServer(t, allowLoopback)
	f, a := r.startForwarder(), r.tenant()
	first := namedServer(t, "first").Listener.Addr().String()
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "",
		a.failover(a.group(map[string]string{"app": "api"}), a.static(namedServer(t, "second").Listener.Addr().String())))
	tun := r.startLabelledAgent("api", first)
	stop := make(chan struct{})
	var served sync.Map
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			tr := f.transport(b)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				res := f.do(tr, http.MethodGet, "http://hello.demo/x", nil, nil)
				body := readAll(t, res.Body)
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
	eventually(t, "the first serves", seen("first"))
	tun.stop()
	eventually(t, "the second serves", seen("second"))
	r.startLabelledAgent("api", first)
	eventually(t, "the first serves again", seen("first"))
	close(stop)
	load.Wait()
}
