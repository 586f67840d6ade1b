// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// databaseLink leads one service to the database until it is cut.
type databaseLink struct {
	url string

	mu     sync.Mutex
	broken bool
	conns  []net.Conn
}

// linkDatabase makes a link to the group's database.
func (g *replicaGroup) linkDatabase() *databaseLink {
	g.t.Helper()
	u, err := url.Parse(g.database)
	must.Succeed(g.t, err)
	const socket = ".s.PGSQL.5432"
	dir, query := g.t.TempDir(), u.Query()
	to := filepath.Join(query.Get("host"), socket)
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	must.Succeed(g.t, err)
	link := &databaseLink{url: u.String()}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if link.add(c) {
				relays.Go(func() { relayTo(c, to) })
			}
		}
	})
	g.t.Cleanup(func() {
		_ = l.Close()
		link.cut()
		relays.Wait()
	})
	return link
}

func (l *databaseLink) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		_ = c.Close()
		return false
	}
	l.conns = append(l.conns, c)
	return true
}

func (l *databaseLink) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for _, c := range l.conns {
		_ = c.Close()
	}
}

func (l *databaseLink) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken, l.conns = false, nil
}

// pairOfReplicas are two replicas, of which the second reaches the database through a link, and
// endpoints that a forwarder and the public reach through the second.
type pairOfReplicas struct {
	t                       *testing.T
	one                     *servicetest.PublicServer
	two                     *servicetest.Server
	link                    *databaseLink // the second replica's
	forwarder               *servicetest.Forwarder
	page                    *servicetest.PublicServer // the second replica's public listener
	deleted, patched, stays tunnel.Bound              // cloud endpoints
	token                   account.Authtoken         // an agent's
	bound                   tunnel.Bound              // the agent's endpoint
}

func newPairOfReplicas(t *testing.T) *pairOfReplicas {
	t.Helper()
	g := newReplicaGroup(t)
	p := &pairOfReplicas{t: t, one: servicetest.StartPublic(t, g.options)}
	g.first = p.one.Server
	p.one.RegisterOperator()
	p.link = g.linkDatabase()
	p.two = g.start(func(o *service.Options) {
		o.DatabaseURL, o.Public, o.HealthAddr = p.link.url, p.one.Options.Public, "127.0.0.1:0"
	})
	awaitPeers(1, p.one.Server, p.two)
	a := p.one.Tenant()
	p.forwarder = p.two.StartForwarder()
	answer := a.Answer(200, "hello")
	cloud := func(url string) tunnel.Bound { return a.Cloud(account.BindingKubernetes, url, "", answer) }
	p.deleted, p.patched, p.stays = cloud("http://deleted.demo"), cloud("http://patched.demo"),
		cloud("http://stays.demo")
	a.Cloud(account.BindingPublic, "https://cloud.example.com", "", answer)
	p.token = p.one.CreateAuthtoken("bind:*")
	agent := p.two.StartAgentWith(*p.token.Token, tunnel.Bind{URL: "tcp://agent.demo:1"},
		servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo)))
	p.bound = servicetest.Receive(t, agent.Bound, "bind")
	p.forwarder.OpenEcho(p.bound)
	p.page = &servicetest.PublicServer{Server: p.two, Roots: p.one.Roots}
	return p
}

// public returns the status of the public endpoint at the second replica.
func (p *pairOfReplicas) public() int {
	status, _ := p.page.GetPage("https://cloud.example.com/")
	return status
}

// expectServed checks that the second replica serves the public endpoint and others.
func (p *pairOfReplicas) expectServed(when string, all ...tunnel.Bound) {
	p.t.Helper()
	for _, b := range all {
		if status, _ := p.forwarder.Get(b); status != http.StatusOK {
			p.t.Errorf("%s, %s: %d", b.URL, when, status)
		}
	}
	if status := p.public(); status != http.StatusOK {
		p.t.Errorf("the public endpoint, %s: %d", when, status)
	}
}

// expectRefused checks that the second replica refuses a changed endpoint.
func (p *pairOfReplicas) expectRefused(b tunnel.Bound) {
	p.t.Helper()
	if code := p.forwarder.OpenRefused(servicetest.OpenHeader(p.t, b)); code != tunnel.RefusedDraining {
		p.t.Errorf("%s after the change: %v", b.URL, code)
	}
}

// TestReplicas_ChangesReachReplicaWithoutStore takes the database from one of two replicas: what is
// deleted and changed through the other is not served by it any more when the calls return.
func TestReplicas_ChangesReachReplicaWithoutStore(t *testing.T) {
	t.Parallel()
	const deny = "on_http_request:\n- actions:\n  - {type: deny, config: {status_code: 418}}\n"
	p := newPairOfReplicas(t)
	p.expectServed("at first", p.deleted, p.patched, p.stays)

	p.link.cut()
	p.expectServed("without the database", p.deleted, p.patched, p.stays)
	p.one.RequireStatus("DELETE", "/endpoints/"+p.deleted.EndpointID, nil, http.StatusNoContent)
	p.expectRefused(p.deleted)
	p.one.RequireStatus("PATCH", "/endpoints/"+p.patched.EndpointID, map[string]any{"traffic_policy": deny},
		http.StatusOK)
	p.expectRefused(p.patched)
	p.expectServed("after changes of others", p.stays)
	a := p.one.Tenant()
	must.Succeed(t, a.Store.RevokeDomain(servicetest.Context(t), a.Account, "*.example.com"))
	command, end := context.WithCancel(servicetest.Context(t))
	defer end()
	go func() { _, _ = a.Store.AwaitServers(command, a.Account) }() // until the replica is fenced
	servicetest.Eventually(t, "the revoked domain is gone", func() bool {
		return p.public() == http.StatusServiceUnavailable
	})
	p.one.RequireStatus("DELETE", "/credentials/"+p.token.ID, nil, http.StatusNoContent)
	p.expectRefused(p.bound)
	servicetest.Eventually(t, "the replica is not ready", func() bool {
		return readiness(t, "http://"+p.two.Addrs.Health.String()+"/readyz") == http.StatusServiceUnavailable
	})
	if status := readiness(t, "http://"+p.one.Addrs.Metrics.String()+"/readyz"); status != http.StatusOK {
		t.Errorf("readiness of the other replica: %d", status)
	}

	p.link.heal()
	servicetest.Eventually(t, "the changes are read", func() bool {
		patched := p.answered(p.patched)
		if patched == http.StatusOK {
			t.Error("the former policy is served")
		}
		return p.answered(p.stays) == http.StatusOK && patched == 418 && p.public() == http.StatusNotFound
	})
}

// answered returns the status of an endpoint at the second replica; 0 if that refuses the stream.
func (p *pairOfReplicas) answered(b tunnel.Bound) int {
	tr := p.forwarder.Transport(b)
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, b.URL, nil))
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func readiness(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}
