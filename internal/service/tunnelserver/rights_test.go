// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

const (
	testBackend = "bkdst-06gvhcq2s01qv18avutpa9ljkg"
	otherPolicy = "to bkdst-06gvhcq2s01qv18avutpa9ljk0"
)

// newExporterService is a service whose policies forward to the backends and internal hosts that
// they name.
func newExporterService(t *testing.T) *testService {
	t.Helper()
	l := newTestService(t, "bind:*")
	l.rights.checkPolicy = func(policy, _, _ string) (account.PolicyFacts, error) {
		facts := account.PolicyFacts{Digest: policy}
		for word := range strings.FieldsSeq(policy) {
			switch {
			case strings.HasPrefix(word, "bkd"):
				facts.Backends = append(facts.Backends, word)
			case word == "*" || strings.HasSuffix(word, ".internal"):
				facts.InternalHosts = append(facts.InternalHosts, word)
			}
		}
		return facts, nil
	}
	l.binder.checkPolicy = l.rights.checkPolicy
	return l
}

// exporterKey makes a key with the scope exporter for the cluster, which may be "".
func (l *testService) exporterKey(cluster string, acl ...string) *account.APIKey {
	l.t.Helper()
	p := account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeExporter}, ClusterUID: &cluster}
	if len(acl) > 0 {
		p.ACL = &acl
	}
	key, err := l.store.CreateAPIKey(l.t.Context(), account.Caller{AccountID: l.accountID}, p)
	storetest.Must(l.t, err)
	return key
}

// exporterWith connects an exporter of the cluster with the key.
func (l *testService) exporterWith(key *account.APIKey, cluster string) *agent {
	l.t.Helper()
	return l.agentWith(tunnel.Hello{Role: tunnel.RoleAgent, Token: *key.Token, ClusterUID: cluster})
}

// objectBind is a bind for the object.
func objectBind(url, namespace, name string) tunnel.Bind {
	return tunnel.Bind{URL: url, UpstreamURL: "http://localhost:1",
		Owner: &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: namespace, Name: name, UID: "u-" + name}}
}

// mustRefuse fails unless the error is a refusal with the code and the texts.
func mustRefuse(t *testing.T, what string, err error, code tunnel.Code, texts ...string) {
	t.Helper()
	var refused *tunnel.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(refused.Msg, text) {
			t.Errorf("%s: %q lacks %q", what, refused.Msg, text)
		}
	}
}

func TestHello_ExporterBelongsToCluster(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	pinned, free := l.exporterKey("one"), l.exporterKey("")
	_, admin, err := l.store.IssueAPIKey(t.Context(), l.accountID, "", nil, nil)
	storetest.Must(t, err)
	for _, c := range []struct {
		name, token, cluster string
		role                 tunnel.Role
		code                 tunnel.Code
		text                 string
	}{
		{"its cluster", *pinned.Token, "one", tunnel.RoleAgent, "", ""},
		{"another cluster", *pinned.Token, "two", tunnel.RoleAgent, tunnel.CodeForbidden,
			"make a key for each cluster"},
		{"no cluster", *pinned.Token, "", tunnel.RoleAgent, tunnel.CodeForbidden, "give the agent an authtoken"},
		{"no UID", *free.Token, "a b", tunnel.RoleAgent, tunnel.CodeInvalid, "cluster_uid"},
		{"a forwarder", *free.Token, "one", tunnel.RoleForwarder, tunnel.CodeForbidden, "connect rule"},
		{"the first cluster", *free.Token, "three", tunnel.RoleAgent, "", ""},
		{"the first cluster again", *free.Token, "three", tunnel.RoleAgent, "", ""},
		{"the second cluster", *free.Token, "one", tunnel.RoleAgent, tunnel.CodeForbidden, "belongs to cluster three"},
		{"a key of another scope", admin, "one", tunnel.RoleAgent, tunnel.CodeForbidden, "with the scope admin"},
		{"an unknown key", "flk_x", "one", tunnel.RoleAgent, tunnel.CodeBadToken, "API key is not known"},
		{"an authtoken that names a cluster", l.token, "one", tunnel.RoleAgent, "", ""},
	} {
		_, err := l.Hello(t.Context(), tunnel.Hello{Role: c.role, Token: c.token, ClusterUID: c.cluster}, nil)
		if c.code == "" {
			storetest.Must(t, err)
		} else {
			mustRefuse(t, c.name, err, c.code, c.text)
		}
	}
}

// TestHello_AssignsKeyToOneCluster lets two clusters present a key at the same time.
func TestHello_AssignsKeyToOneCluster(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	for range 8 {
		key := l.exporterKey("")
		var all sync.WaitGroup
		var failed [2]error
		for i := range failed {
			all.Go(func() {
				_, failed[i] = l.Hello(t.Context(), tunnel.Hello{Role: tunnel.RoleAgent, Token: *key.Token,
					ClusterUID: fmt.Sprintf("cluster-%d", i)}, nil)
			})
		}
		all.Wait()
		loser := failed[0]
		if loser == nil {
			loser = failed[1]
		}
		if failed[0] != nil && failed[1] != nil {
			t.Fatalf("both clusters are refused: %v, %v", failed[0], failed[1])
		}
		mustRefuse(t, "the second cluster", loser, tunnel.CodeForbidden, "make a key for each cluster")
	}
}

func TestBind_ExporterRights(t *testing.T) {
	t.Parallel()
	l := newExporterService(t)
	key := l.exporterKey("one", "export:team-a/*", "bind:http://*.team-a", "bind:tcp://*.team-a:*",
		"backend:"+testBackend, "internal:x.internal")
	exporter, other := l.exporterWith(key, "one"), l.agent()
	policy := func(b tunnel.Bind, text string) tunnel.Bind { b.TrafficPolicy = text; return b }
	mine := objectBind("http://web.team-a", "team-a", "web")
	bare := mine
	bare.Owner = nil
	for name, c := range map[string]struct {
		by   *agent
		bind tunnel.Bind
		text string
	}{
		"another namespace": {exporter, objectBind("http://web.team-a", "team-b", "web"),
			"no export rule that admits team-b/web"},
		"a namespace that begins so": {exporter, objectBind("http://web.team-a", "team-ab", "web"), "no export rule"},
		"another URL": {exporter, objectBind("http://web.team-b", "team-a", "web"),
			"no bind rule that admits http://web.team-b"},
		"no owner":        {exporter, bare, "has no owner"},
		"another backend": {exporter, policy(mine, otherPolicy), "no backend rule"},
		"another internal host": {exporter, policy(mine, "to y.internal"),
			"no internal rule that admits y.internal"},
		"any internal host": {exporter, policy(mine, "to *"), "internal:*"},
		"labels": {exporter, tunnel.Bind{Labels: map[string]string{"app": "api"}, UpstreamURL: "tcp://localhost:1"},
			"no labelled tunnels"},
		"an authtoken with an owner": {other, mine, "scope exporter"},
	} {
		_, err := c.by.Bind(t.Context(), c.bind)
		mustRefuse(t, name, err, tunnel.CodeForbidden, c.text)
	}
	storetest.Equal(t, "endpoints", l.Stats().Endpoints, 0)
	bound, err := exporter.Bind(t.Context(), policy(mine, "to x.internal"))
	storetest.Must(t, err)
	e, err := l.store.Endpoint(t.Context(), l.accountID, bound.EndpointID)
	storetest.Must(t, err)
	storetest.Equal(t, "owner", e.Owner.String(), "AgentEndpoint team-a/web of cluster one")
	storetest.Equal(t, "principal", e.Principal.ID, key.ID)
}

// TestExporter_ChangedKeyEndsSessions holds that the session of an exporter ends with its key, and
// when the key's rules no longer admit what it has bound.
func TestExporter_ChangedKeyEndsSessions(t *testing.T) {
	t.Parallel()
	by := func(l *testService) account.Caller { return account.Caller{AccountID: l.accountID} }
	patch := func(p account.APIKeyPatch) func(*testService, string) error {
		return func(l *testService, id string) error {
			_, err := l.store.PatchAPIKey(l.t.Context(), by(l), id, p)
			return err
		}
	}
	acl := func(rules ...string) func(*testService, string) error {
		return patch(account.APIKeyPatch{ACL: &rules})
	}
	soon := func(l *testService, id string) error {
		at := time.Now().Add(time.Second)
		return patch(account.APIKeyPatch{Expiry: account.ExpiryPatch{Set: true, At: &at}})(l, id)
	}
	for name, c := range map[string]struct {
		change func(*testService, string) error
		code   tunnel.Code // "" = the session goes on
		text   string
	}{
		"deleted": {func(l *testService, id string) error { return l.store.DeleteAPIKey(l.t.Context(), by(l), id) },
			tunnel.CodeTokenRevoked, "API key was deleted"},
		"expired": {soon, tunnel.CodeTokenRevoked, "has expired"},
		"another scope": {patch(account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeRead}}),
			tunnel.CodeTokenRevoked, "API key"},
		"a narrower export": {acl("export:b/*", "bind:*", "backend:*"), tunnel.CodeForbidden, "no export rule"},
		"a narrower bind": {acl("export:*", "bind:http://*.b", "backend:*"), tunnel.CodeForbidden,
			"no bind rule"},
		"a narrower backend":       {acl("export:*", "bind:*"), tunnel.CodeForbidden, "no backend rule"},
		"rules that admit it, too": {acl("export:a/*", "bind:http://*.a", "backend:bkdst-*"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newExporterService(t)
			key := l.exporterKey("one", "export:*", "bind:*", "backend:*")
			a := l.exporterWith(key, "one")
			leaf, err := l.store.CreateBackend(t.Context(), by(l), account.Backend{Kind: account.BackendStatic,
				Static: &account.StaticAddress{Address: "db.example.com:5432"}})
			storetest.Must(t, err)
			b := objectBind("http://web.a", "a", "web")
			b.TrafficPolicy = "to " + leaf.ID
			_, err = a.Bind(t.Context(), b)
			storetest.Must(t, err)
			storetest.Must(t, c.change(l, key.ID))
			if c.code == "" {
				storetest.Must(t, l.ApplyAccess(t.Context(), l.accountID))
				_, err := a.Bind(t.Context(), objectBind("http://more.b", "a", "more"))
				mustRefuse(t, "a bind by the new rules", err, tunnel.CodeForbidden, "no bind rule")
				return
			}
			select {
			case err := <-a.ended:
				mustRefuse(t, "the session", err, c.code, c.text)
			case <-time.After(testTimeout):
				t.Error("the session goes on")
			}
		})
	}
}
