// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// allLive is a store for which all sessions are live whenever they are compared.
type allLive struct{ account.Logins }

func (allLive) LiveSessionIDs(_ context.Context, ids []string) (map[string]bool, error) {
	live := make(map[string]bool)
	for _, id := range ids {
		live[id] = true
	}
	return live, nil
}

// keepCompared keeps comparisons with the store from ending what a test revokes, or what the lease bounds
// while the store is slow.
func keepCompared(o *service.Options) {
	o.SetWrapLoginStore(func(l account.Logins) account.Logins { return allLive{l} })
}

// startLoginReplicas starts two replicas with a public edge. Agents, the API client of the load and
// the upstream are at the first, people at the second.
func startLoginReplicas(
	t *testing.T, changeSecond func(*service.Options),
) (c *sessionLoad, second *servicetest.Server) {
	t.Helper()
	g := newReplicaGroup(t)
	c = startSessionLoad(t, g.options, keepCompared)
	g.first = c.Server
	c.RegisterOperator()
	second = g.start(func(o *service.Options) {
		o.Public, o.LoginAllow = c.Options.Public, c.Options.LoginAllow
	}, changeSecond)
	c.edge = second.Addrs.HTTPS
	awaitPeers(1, c.Server, second)
	return c, second
}

// TestReplicas_RevocationIsTrueWhenAnswered revokes through one replica what another one serves.
func TestReplicas_RevocationIsTrueWhenAnswered(t *testing.T) {
	t.Parallel()
	c, second := startLoginReplicas(t, keepCompared)
	api := c.adminClient()
	for i, kind := range []string{"websocket http1", "events http2", "download http1"} {
		c.revokeOne(t, func(method, path string) (int, error) {
			status, err := api(method, path)
			n := metric(second, `fairlead_server_application_requests_cut_total{reason="other server"}`)
			if n != float64(i+1) {
				t.Errorf("%s: the other replica has cut %v requests when the call is answered", kind, n)
			}
			return status, err
		}, kind, loadURL)
	}
}

// silentComparisons is a store that does not answer comparisons of sessions while it is silent.
type silentComparisons struct {
	account.Logins
	silent  *atomic.Bool
	goingOn <-chan struct{} // closed when it answers again
}

func (s silentComparisons) LiveSessionIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	if s.silent.Load() {
		<-s.goingOn
		return nil, errors.New("no comparison")
	}
	return s.Logins.LiveSessionIDs(ctx, ids)
}

// TestReplicas_LeaseEndsWithoutComparison keeps a replica from comparing people's sessions with the
// store: it ends what they have open, although nothing moves on it, and refuses new requests until
// it has compared again.
func TestReplicas_LeaseEndsWithoutComparison(t *testing.T) {
	t.Parallel()
	const length = 5 * time.Second
	var silent atomic.Bool
	goingOn := make(chan struct{})
	answer := sync.OnceFunc(func() { silent.Store(false); close(goingOn) })
	c, second := startLoginReplicas(t, func(o *service.Options) {
		o.Replica.Lease = length
		o.SetWrapLoginStore(func(l account.Logins) account.Logins { return silentComparisons{l, &silent, goingOn} })
	})
	t.Cleanup(answer) // before the servers stop
	open := c.open("websocket http1", c.addSession("alice", loadURL), nil)
	defer close(open.more)
	began := time.Now()
	silent.Store(true)
	e := servicetest.Receive(t, open.over, "end of the websocket")
	if took := time.Since(began); took > length+time.Second || e.err == nil || strings.Contains(e.got, after) {
		t.Errorf("after %v the client has %q, %v", took, tail(e.got), e.err)
	}
	r, err := http.NewRequestWithContext(servicetest.Context(t), "GET", loadURL+"/hello", nil)
	must.Succeed(t, err)
	r.Header.Set("Cookie", open.as.cookie)
	r.Header.Set("Accept", "text/html")
	res, err := c.http2().Do(r)
	must.Succeed(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("a new request: %d %v", res.StatusCode, res.Header)
	}
	if n := metric(second, `fairlead_server_application_requests_cut_total{reason="lease"}`); n != 1 {
		t.Errorf("%v requests are counted", n)
	}
	if n := strings.Count(second.Log.String(), "what they had open was ended"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	answer()
	servicetest.Eventually(t, "people are served again", func() bool { return c.status(open.as) == http.StatusOK })
}

// TestReplicas_DeleteAuthtokenIsTrueWhenAnswered deletes an agent's authtoken through the replica
// that does not have its session.
func TestReplicas_DeleteAuthtokenIsTrueWhenAnswered(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	token := one.CreateAuthtoken("bind:*")
	agent := one.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://a.demo:1"},
		servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo)))
	bound := servicetest.Receive(t, agent.Bound, "bind")
	f := one.StartForwarder()
	f.OpenEcho(bound)
	two.RequireStatus("DELETE", "/credentials/"+token.ID, nil, http.StatusNoContent)
	if code := f.OpenRefused(servicetest.OpenHeader(t, bound)); code != tunnel.RefusedOffline {
		t.Errorf("a stream after the answer: %v", code)
	}
	wantCode(t, "agent", servicetest.Receive(t, agent.Ended, "end of the agent"), tunnel.CodeTokenRevoked, "deleted")
}

// TestReplicas_ChangeOfExporterKeyIsTrueWhenAnswered deletes an exporter's API key, and narrows its
// rules, through the replica that does not have its session.
func TestReplicas_ChangeOfExporterKeyIsTrueWhenAnswered(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	f := one.StartForwarder()
	for name, c := range map[string]struct {
		change func(path string)
		code   tunnel.Code
		text   string
	}{
		"deleted": {func(path string) { two.RequireStatus("DELETE", path, nil, http.StatusNoContent) },
			tunnel.CodeTokenRevoked, "API key was deleted"},
		"narrowed": {func(path string) {
			two.RequireStatus("PATCH", path, map[string]any{"acl": []string{"export:b/*", "bind:*"}}, http.StatusOK)
		}, tunnel.CodeForbidden, "no export rule that admits a/web"},
	} {
		var key account.APIKey
		one.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}}, &key)
		agent := one.StartAgentWith(*key.Token, tunnel.Bind{URL: "tcp://" + name + ".demo:1",
			Owner: &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: "a", Name: "web", UID: "u"}},
			servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo)), func(c *tunnel.ClientConfig) {
				hello := c.Hello
				c.Hello = func() tunnel.Hello {
					h := hello()
					h.ClusterUID = "one"
					return h
				}
			})
		bound := servicetest.Receive(t, agent.Bound, "bind")
		f.OpenEcho(bound)
		c.change("/api_keys/" + key.ID)
		if code := f.OpenRefused(servicetest.OpenHeader(t, bound)); code != tunnel.RefusedOffline {
			t.Errorf("%s: a stream after the answer: %v", name, code)
		}
		wantCode(t, name, servicetest.Receive(t, agent.Ended, "end of the exporter"), c.code, c.text)
	}
}

// TestReplicas_DeleteKeyEndsWatches deletes an API key through the replica that does not have its
// watch.
func TestReplicas_DeleteKeyEndsWatches(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	var key account.APIKey
	one.CreateObject("/api_keys", map[string]any{"scopes": []string{"read"}}, &key)
	var list struct {
		Version string `json:"resource_version"`
	}
	one.CallAPI("GET", "/endpoints", nil, &list)
	r := one.NewAPIRequest("GET", "/endpoints?watch=true&resource_version="+list.Version, nil)
	r.Header.Set("Authorization", "Bearer "+*key.Token)
	res, err := one.NewAPITransport().RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("watch: %v, %v", res, err)
	}
	defer res.Body.Close()
	two.RequireStatus("DELETE", "/api_keys/"+key.ID, nil, http.StatusNoContent)
	bindHello(one)
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); !errors.Is(err, io.EOF) || line != "" {
		t.Errorf("the watch goes on with %q, %v", line, err)
	}
}

// TestReplicas_EndpointChangesAreTrueWhenAnswered changes and deletes a cloud endpoint and its
// backend through one replica, while another one serves it.
func TestReplicas_EndpointChangesAreTrueWhenAnswered(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	checkEndpointChanges(t, one, two)
}

// TestServer_EndpointChangesAreTrueWhenAnswered does the same with a server that is alone.
func TestServer_EndpointChangesAreTrueWhenAnswered(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	checkEndpointChanges(t, r, r)
}

func checkEndpointChanges(t *testing.T, serving, writing *servicetest.Server) {
	t.Helper()
	var backend, endpoint struct{ ID, URL string }
	serving.CreateObject("/backends/http_response", map[string]any{"status_code": 201}, &backend)
	serving.CreateObject("/endpoints", map[string]any{"url": "http://cloud.demo", "backend_id": backend.ID}, &endpoint)
	bound := tunnel.Bound{EndpointID: endpoint.ID, URL: endpoint.URL}
	f := serving.StartForwarder()
	tr := f.Transport(bound) // one connection
	expect := func(when string, want int) {
		t.Helper()
		res := f.Do(tr, "GET", endpoint.URL, nil, nil)
		if _, _ = io.Copy(io.Discard, res.Body); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", when, res.StatusCode, want)
		}
	}
	expect("at first", 201)
	for status := 202; status < 222; status++ {
		writing.RequireStatus("PATCH", "/backends/http_response/"+backend.ID, map[string]any{"status_code": status},
			http.StatusOK)
		expect("with another backend", status)
	}
	writing.RequireStatus("PATCH", "/endpoints/"+endpoint.ID, map[string]any{"traffic_policy": `on_http_request:
- actions:
  - {type: deny, config: {status_code: 418}}
`}, http.StatusOK)
	expect("with a policy", 418)
	writing.RequireStatus("DELETE", "/endpoints/"+endpoint.ID, nil, http.StatusNoContent)
	expect("deleted", http.StatusNotFound)
}
