// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// trustedCluster is a cluster whose ServiceAccounts the account of a service trusts.
type trustedCluster struct {
	*account.Cluster
	t      testing.TB
	store  *store.Store
	by     account.Caller
	signer *accounttest.TokenSigner
	base   string
}

func newTrustedCluster(t testing.TB, r *servicetest.Server) *trustedCluster {
	t.Helper()
	c := &trustedCluster{t: t, store: r.OpenStore(), signer: accounttest.NewTokenSigner(t, "k-1", "ES256"),
		base: r.Addrs.BaseURL}
	accounts, err := c.store.ListAccounts(t.Context())
	must.Succeed(t, err)
	c.by.AccountID = accounts[0].ID
	c.create()
	return c
}

// create makes the cluster known.
func (c *trustedCluster) create() {
	c.t.Helper()
	p := storetest.ClusterPatch(c.t, "prod", "unused")
	set := c.signer.KeySet(c.t)
	p.JWKS = &set
	var err error
	c.Cluster, err = c.store.CreateCluster(servicetest.Context(c.t), c.by, p)
	must.Succeed(c.t, err)
}

// token returns a token of a ServiceAccount that lives for a while from now on.
func (c *trustedCluster) token(name string, life time.Duration) string {
	claims := accounttest.Claims(account.TokenAudience(c.base, c.by.AccountID), "fairlead", name, "u-"+name, time.Now())
	claims["iat"], claims["nbf"] = time.Now().Add(life-time.Hour).Unix(), time.Now().Add(life-time.Hour).Unix()
	claims["exp"] = time.Now().Add(life).Unix()
	return c.signer.Token(c.t, claims)
}

func (c *trustedCluster) patch(p account.ClusterPatch) {
	c.t.Helper()
	_, err := c.store.PatchCluster(servicetest.Context(c.t), c.by, c.ID, p)
	must.Succeed(c.t, err)
}

// inCluster makes an agent an exporter of a cluster.
func inCluster(token string) func(*tunnel.ClientConfig) {
	return func(cfg *tunnel.ClientConfig) {
		cfg.Hello = func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClusterUID: "uid-1", InstanceID: "exporter"}
		}
	}
}

// exportBind is a bind for the object of a cluster.
func exportBind(url string) tunnel.Bind {
	return tunnel.Bind{URL: url, Owner: &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: "team", Name: "api",
		UID: "u-api"}}
}

// callWith sends a request with another API key and returns the answer.
func callWith(r *servicetest.Server, key, method, path string, in any) *http.Response {
	r.T.Helper()
	req := r.NewAPIRequest(method, path, in)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := r.NewAPITransport().RoundTrip(req)
	must.Succeed(r.T, err)
	r.T.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// tokenUsers are clients with tokens of a cluster that have something open.
type tokenUsers struct {
	exporter  *servicetest.Agent
	forwarder *servicetest.Forwarder
	sessions  map[string]*tunnel.Session
	stream    *tunnel.Stream
	ends      chan string // gets what has ended
}

// startTokenUsers opens a watch and an exporter's session at one server, and a forwarder's session
// with a stream to the exporter at another one.
func (c *trustedCluster) startTokenUsers(one, other *servicetest.Server) *tokenUsers {
	c.t.Helper()
	u := &tokenUsers{ends: make(chan string, 4)}
	u.exporter = one.StartAgentWith(c.token("exporter", time.Hour), exportBind("tcp://api.team:1"),
		servicetest.RelayTo(servicetest.ServeTCP(c.t, servicetest.Echo)),
		inCluster(c.token("exporter", time.Hour)))
	bound := servicetest.Receive(c.t, u.exporter.Bound, "bind")
	u.forwarder = other.StartForwarderAs(c.token("forwarder", time.Hour), other.RegisterOperator())
	u.stream = u.forwarder.OpenEcho(bound)
	var list struct {
		ResourceVersion string `json:"resource_version"`
	}
	if status := one.CallAPI("GET", "/endpoints", nil, &list); status != http.StatusOK {
		c.t.Fatalf("list: %d", status)
	}
	watch := callWith(one, c.token("manager", time.Hour), "GET",
		"/endpoints?watch=true&resource_version="+list.ResourceVersion, nil)
	if watch.StatusCode != http.StatusOK {
		c.t.Fatalf("watch: %s", watch.Status)
	}
	go func() {
		for lines := bufio.NewScanner(watch.Body); lines.Scan(); {
		}
		u.ends <- "watch"
	}()
	go func() {
		_, _ = u.stream.Read(make([]byte, 1))
		u.ends <- "stream"
	}()
	u.sessions = map[string]*tunnel.Session{}
	for what, client := range map[string]*tunnel.Client{"exporter's session": u.exporter.Client,
		"forwarder's session": u.forwarder.Client} {
		s, err := client.Wait(servicetest.Context(c.t))
		must.Succeed(c.t, err)
		u.sessions[what] = s
		go func() {
			<-s.Done()
			u.ends <- what
		}()
	}
	return u
}

// told returns how many of the sessions were told why they ended. A client that does not read for a
// second, on a busy machine, only sees its connection end, and is refused from then on.
func (u *tokenUsers) told(t testing.TB) (n int) {
	t.Helper()
	for what, s := range u.sessions {
		var told *tunnel.Error
		if errors.As(s.Err(), &told) {
			wantCode(t, what, told, tunnel.CodeTokenRevoked, "no longer trusted")
			n++
		}
	}
	return n
}

// awaitEnds waits until everything has ended, and returns after how long which.
func (u *tokenUsers) awaitEnds(t testing.TB, began time.Time) (after map[string]time.Duration) {
	t.Helper()
	after = make(map[string]time.Duration)
	timeout := time.After(30 * time.Second)
	for len(after) < 4 {
		var what string
		select {
		case what = <-u.ends:
		case <-timeout:
			t.Fatalf("after 30 s only these have ended: %v", after)
		}
		after[what] = time.Since(began).Round(time.Millisecond)
	}
	return after
}

// TestClusterTokens_EndWhenRemoved removes the cluster, its subjects or their key with two servers
// that have connections of each kind: over the API, and in the store, as a server does whose change
// does not reach the others.
func TestClusterTokens_EndWhenRemoved(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (one, other *servicetest.Server){
		"one server on SQLite": func(t *testing.T) (one, other *servicetest.Server) {
			r := servicetest.Start(t)
			return r, r
		},
		"two on PostgreSQL": func(t *testing.T) (one, other *servicetest.Server) {
			g := newReplicaGroup(t)
			one, other = g.start(), g.start()
			awaitPeers(1, one, other)
			return one, other
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, other := start(t)
			c := newTrustedCluster(t, one)
			subjects := storetest.ClusterPatch(t, "prod", "unused").Subjects
			keys, told := c.signer.KeySet(t), 0
			for _, removal := range []struct {
				what        string
				remove, add func()
			}{
				{"key", func() {
					next := accounttest.NewTokenSigner(t, "k-2", "ES256").KeySet(t)
					c.patch(account.ClusterPatch{JWKS: &next})
				}, func() { c.patch(account.ClusterPatch{JWKS: &keys}) }},
				{"subjects", func() { c.patch(account.ClusterPatch{Subjects: &[]account.SubjectPatch{}}) },
					func() { c.patch(account.ClusterPatch{Subjects: subjects}) }},
				{"cluster over the API", func() {
					other.RequireStatus("DELETE", "/clusters/"+c.ID, nil, http.StatusNoContent)
				}, func() { c.create() }},
				{"cluster", func() {
					must.Succeed(t, c.store.DeleteCluster(servicetest.Context(t), c.by, c.ID))
				}, func() {}},
			} {
				users := c.startTokenUsers(one, other)
				began := time.Now()
				removal.remove()
				after := users.awaitEnds(t, began)
				t.Logf("the %s removed: %v", removal.what, after)
				for what, d := range after {
					if d > 15*time.Second { // a second on an idle machine
						t.Errorf("the %s ended after %s", what, d)
					}
				}
				told += users.told(t)
				removal.add()
			}
			if told == 0 {
				t.Error("no session was told why it ended")
			}
		})
	}
}

func TestClusterTokens_AreAPIKeys(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	c := newTrustedCluster(t, r)
	for _, call := range []struct {
		who, method, path string
		in                any
		want              int
		code              account.Code
	}{
		{"manager", "GET", "/endpoints", nil, http.StatusOK, ""},
		{"manager", "POST", "/kubernetes_operators", map[string]any{"description": "x",
			"enabled_features": []string{"bindings"}}, http.StatusCreated, ""},
		{"manager", "POST", "/api_keys", map[string]any{}, http.StatusForbidden, account.CodeScope},
		{"exporter", "POST", "/api_keys", map[string]any{}, http.StatusForbidden, account.CodeScope},
		{"forwarder", "GET", "/endpoints", nil, http.StatusForbidden, account.CodeScope},
		{"other", "GET", "/endpoints", nil, http.StatusUnauthorized, account.CodeUnknownCredential},
	} {
		res := callWith(r, c.token(call.who, time.Hour), call.method, call.path, call.in)
		if body := servicetest.ReadAll(t, res.Body); res.StatusCode != call.want ||
			!strings.Contains(body, string(call.code)) {
			t.Errorf("%s %s %s: %s %s", call.who, call.method, call.path, res.Status, body)
		}
	}
	res := callWith(r, c.token("manager", -time.Second), "GET", "/endpoints", nil)
	if body := servicetest.ReadAll(t, res.Body); !strings.Contains(body, string(account.CodeExpired)) {
		t.Errorf("an expired token: %s", body)
	}
}

func TestClusterTokens_RefusedHellos(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	c := newTrustedCluster(t, r)
	for name, h := range map[string]struct {
		token string
		code  tunnel.Code
		text  string
	}{
		"operator": {c.token("manager", time.Hour), tunnel.CodeForbidden, "opens no tunnel sessions"},
		"unknown":  {c.token("other", time.Hour), tunnel.CodeBadToken, "is no subject of cluster prod"},
		"expired":  {c.token("exporter", -time.Second), tunnel.CodeUnavailable, "the token expired at"},
		"agent":    {c.token("forwarder", time.Hour), tunnel.CodeForbidden, "has no bind rule"},
	} {
		t.Run(name, func(t *testing.T) {
			downs := make(chan error, 64)
			a := r.StartAgentWith("", exportBind("tcp://api.team:1"), nil, inCluster(h.token),
				func(cfg *tunnel.ClientConfig) { cfg.OnDown = func(err error, _ time.Duration) { downs <- err } })
			ended := a.Ended
			if !h.code.Final() {
				ended = downs
			}
			wantCode(t, name, servicetest.Receive(t, ended, "refusal"), h.code, h.text)
		})
	}
}

// TestClusterTokens_HandOverKeys hands over a key with the token of each role, and uses it.
func TestClusterTokens_HandOverKeys(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	c := newTrustedCluster(t, r)
	next := accounttest.NewTokenSigner(t, "k-2", "ES256")
	handOver := func(credential string) int {
		return callWith(r, credential, "POST", "/cluster_keys", map[string]any{"jwks": next.KeySet(t)}).StatusCode
	}
	for _, name := range []string{"forwarder", "exporter"} {
		if status := handOver(c.token(name, time.Hour)); status != http.StatusForbidden {
			t.Errorf("%s: status %d", name, status)
		}
	}
	if status := handOver(r.APIKey); status != http.StatusForbidden {
		t.Errorf("an API key: status %d", status)
	}
	first := c.signer
	c.signer = next
	if status := handOver(c.token("manager", time.Hour)); status != http.StatusUnauthorized {
		t.Errorf("a token of the key itself: status %d", status)
	}
	c.signer = first
	if status := handOver(c.token("manager", time.Hour)); status != http.StatusOK {
		t.Fatalf("a token of a key that is trusted: status %d", status)
	}
	c.signer = next
	if res := callWith(r, c.token("manager", time.Hour), "GET", "/endpoints", nil); res.StatusCode != http.StatusOK {
		t.Errorf("a token of the new key: %s", res.Status)
	}
}
