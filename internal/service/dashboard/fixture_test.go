// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	mine   = "ac-00000000000000000000000001"
	theirs = "ac-00000000000000000000000002"
)

// id returns the ID of an object of that age, the same at each call: newer IDs sort later.
func (f *fake) id(prefix string, age time.Duration, n int) string {
	end := sha256.Sum256(fmt.Append(nil, prefix, n))
	return account.NewID(prefix, ago(f, age))[:len(prefix)+10] + hex.EncodeToString(end[:])[:17]
}

// newFake is a company's account: shops, databases, people, some trouble. And one thing of each
// kind that belongs to another account.
func newFake(now time.Time) *fake {
	f := &fake{now: now, owner: map[string]string{}, secrets: map[string]string{}, signIns: map[string]signedIn{},
		active:  map[string]string{},
		visited: map[string][]account.AccessedEndpoint{}, wakes: map[chan struct{}]bool{}}
	f.addCredentials()
	f.addAgents()
	f.addBackends()
	f.addEndpoints()
	f.addOperators()
	f.addPeople()
	f.addEvents()
	f.addClusters()
	f.addTraffic()
	f.addTheirs()
	return f
}

func (f *fake) addCredentials() {
	for i, k := range []struct {
		what, secret string
		scopes       []account.Scope
		age          time.Duration
		expires      time.Duration
	}{
		{"Anna, platform team", "flk_admin", []account.Scope{account.ScopeAdmin}, 90 * 24 * time.Hour, 0},
		{"Grafana", "flk_read", []account.Scope{account.ScopeRead}, 60 * 24 * time.Hour, 0},
		{"Security desk", "flk_identities", []account.Scope{account.ScopeIdentities}, 41 * 24 * time.Hour,
			200 * 24 * time.Hour},
		{"Cluster eu-1", "flk_operator", []account.Scope{account.ScopeOperator}, 30 * 24 * time.Hour, 0},
		{"Migration in autumn", "flk_old", []account.Scope{account.ScopeAdmin}, 20 * 24 * time.Hour,
			3 * 24 * time.Hour},
	} {
		key := account.APIKey{ID: f.id(account.PrefixAPIKey, k.age, i+1), AccountID: mine, Description: k.what,
			Scopes: k.scopes, CreatedAt: ago(f, k.age)}
		if k.expires > 0 {
			key.ExpiresAt = new(f.now.Add(k.expires))
		}
		if i < 4 {
			key.LastUsedAt = new(ago(f, time.Duration(i*i)*7*time.Minute))
		}
		f.keys, f.owner[key.ID], f.secrets[k.secret] = append(f.keys, key), mine, key.ID
	}
	for i, t := range []struct {
		what string
		acl  []string
	}{{"Laptops", []string{"bind:http://*.demo", "bind:https://*.example.com"}},
		{"Warehouse gateway", []string{"bind:tcp://*.prod:5432", "bind:app=api"}},
		{"Forwarders of eu-1", []string{"connect:*"}}} {
		token := account.Authtoken{ID: f.id(account.PrefixCredential, time.Duration(50-i)*24*time.Hour, i+1),
			AccountID:   mine,
			Description: t.what, ACL: t.acl,
			CreatedAt:  ago(f, time.Duration(50-i)*24*time.Hour),
			LastUsedAt: new(ago(f, time.Duration(i+1)*time.Minute))}
		f.tokens, f.owner[token.ID] = append(f.tokens, token), mine
	}
}

func (f *fake) addAgents() {
	for i, a := range []struct {
		ip, os, version string
	}{{"203.0.113.24", "linux/amd64", "0.5.0"}, {"198.51.100.7", "darwin/arm64", "0.5.0"},
		{"2001:db8:20::15", "linux/arm64", "0.4.2"}} {
		age := time.Duration(i*i*9+1) * time.Hour
		t := account.TunnelSession{ID: f.id(account.PrefixTunnelSession, age, i+1), AccountID: mine, IP: a.ip, OS: a.os,
			AgentVersion: a.version, Region: "eu", Transport: "tls",
			StartedAt: ago(f, age), Credential: account.Ref{ID: f.tokens[i%2].ID}}
		f.agents, f.owner[t.ID] = append(f.agents, t), mine
	}
	for i, labels := range []map[string]string{{"app": "api", "site": "berlin"}, {"app": "api", "site": "lisbon"}} {
		t := account.LabelledTunnel{ID: f.id(account.PrefixTunnel, time.Hour, i+1), AccountID: mine, Labels: labels,
			ForwardsTo: "http://localhost:9000", StartedAt: ago(f, time.Duration(i+1)*time.Hour),
			TunnelSession: account.Ref{ID: f.agents[i].ID}}
		f.tunnels, f.owner[t.ID] = append(f.tunnels, t), mine
	}
}

func (f *fake) addBackends() {
	add := func(n int, b account.Backend) string {
		age := time.Duration(30-n) * 24 * time.Hour
		b.ID, b.AccountID, b.CreatedAt, b.UpdatedAt = f.id(b.Kind.IDPrefix(), age, n), mine, ago(f, age), ago(f, age/3)
		f.backends, f.owner[b.ID] = append(f.backends, b), mine
		return b.ID
	}
	group := add(1, account.Backend{Kind: account.BackendTunnelGroup, Description: "API, all sites",
		Labels: map[string]string{"app": "api"}})
	static := add(2, account.Backend{Kind: account.BackendStatic, Description: "Data centre",
		Static: &account.StaticAddress{Address: "api.dc.example.com:443", TLS: true}})
	sorry := add(3, account.Backend{Kind: account.BackendHTTPResponse, Description: "Sorry page",
		Response: &account.HTTPResponse{StatusCode: 503,
			Headers: map[string]string{"Content-Type": "text/html", "Retry-After": "60"},
			Body:    "<h1>We are back in a minute</h1>\n"}})
	shop := add(4, account.Backend{Kind: account.BackendFailover, Description: "Shop",
		Children: []string{group, static, sorry}, HealthStatus: []int{502, 503}})
	add(5, account.Backend{Kind: account.BackendFailover, Description: "Reports", Children: []string{static, sorry}})
	add(6, account.Backend{Kind: account.BackendWeighted, Description: "Canary of the API",
		Weights: map[string]int{group: 95, static: 5}})
	f.active[shop] = static
}

func (f *fake) addEndpoints() {
	for i, e := range []struct{ url, binding, kind, status, about string }{
		{"http://hello.demo", "kubernetes", "agent", "online", ""},
		{"tcp://orders.prod:5432", "kubernetes", "agent", "online", "PostgreSQL of the warehouse"},
		{"http://ledger.prod", "kubernetes", "agent", "offline", "Bookkeeping, closes at night"},
		{"http://shop.prod", "kubernetes", "cloud", "online", "Shop with failover"},
		{"https://app.example.com", "public", "cloud", "online", "What customers see"},
		{"https://reports.example.com", "public", "agent", "online", ""},
		{"http://search.internal", "internal", "agent", "online", ""},
	} {
		age := time.Duration(i*31+2) * time.Hour
		u, _ := account.ParseBindingURL(e.binding, e.url)
		one := account.Endpoint{ID: f.id(account.PrefixEndpoint, age, i+1), AccountID: mine, URL: e.url,
			PublicURL: e.url,
			Scheme:    u.Scheme, Host: u.Host, Port: u.Port, Type: e.kind, Bindings: []string{e.binding},
			EndpointSettings: account.EndpointSettings{Description: e.about}, Status: e.status,
			CreatedAt: ago(f, age), UpdatedAt: ago(f, age/2),
			Principal: &account.Ref{ID: f.tokens[0].ID}}
		switch {
		case e.status == account.StatusOffline:
			one.OfflineSince = new(ago(f, 42*time.Minute))
		case e.kind == account.TypeAgent:
			one.TunnelSession, one.UpstreamURL, one.UpstreamProtocol = &account.Ref{ID: f.agents[i%3].ID},
				"http://localhost:8080", "http1"
		}
		switch e.url {
		case "http://shop.prod":
			one.BackendID = f.backends[3].ID
		case "http://ledger.prod":
			one.Owner = &account.Owner{Cluster: "1f0c3a52", Kind: account.KindAgentEndpoint, Namespace: "books",
				Name: "ledger", UID: "7"}
		}
		if e.binding == "public" {
			one.TrafficPolicy = "on_http_request:\n  - actions:\n      - type: openid-connect\n        config:\n   " +
				"       " +
				"issuer_url: https://login.example.com\n          client_id: fairlead\n" +
				"          client_secret: hunter2-hunter2\n  - expressions:\n      - " +
				"\"!actions.oidc.identity.email.endsWith('@example.com')\"\n    actions:\n      - type: deny\n"
		}
		f.endpoints, f.owner[one.ID] = append(f.endpoints, one), mine
	}
}

func (f *fake) addOperators() {
	for i, o := range []struct {
		cluster  string
		selector []string
		seen     time.Duration
	}{{"eu-1", nil, 20 * time.Second}, {"us-1", []string{"ep.hostname.endsWith('.prod')"}, 35 * time.Second},
		{"lab", []string{"ep.hostname.endsWith('.demo')"}, 26 * time.Minute}} {
		age := time.Duration(20-i) * 24 * time.Hour
		op := account.Operator{ID: f.id(account.PrefixOperator, age, i+1), AccountID: mine,
			ClusterUID:      "6f1c2a30-8f5e-4c7c-9d52-0b6d1f0e7a1" + fmt.Sprint(i),
			EnabledFeatures: []string{account.FeatureBindings},
			Deployment: account.OperatorDeployment{Name: "fairlead-operator", Namespace: "fairlead", Version: "0.5.0",
				ClusterName: o.cluster},
			Binding: &account.OperatorBinding{EndpointSelectors: o.selector}, CreatedAt: ago(f, age),
			UpdatedAt:  ago(f, age),
			LastSeenAt: ago(f, o.seen)}
		f.ops, f.owner[op.ID] = append(f.ops, op), mine
	}
}

// revokedBefore is the id of an identity that is not there any more.
func (f *fake) revokedBefore() string { return f.id(account.PrefixUser, 100*time.Hour, 99) }

func (f *fake) addEvents() {
	add := func(n int, age time.Duration, what account.AuditType, by, object string, details map[string]string) {
		e := account.AuditEvent{ID: f.id(account.PrefixEvent, age, n), Type: what, OccurredAt: ago(f, age),
			Object: &account.Ref{ID: object}, Details: details}
		if by != "" {
			e.Principal = &account.Ref{ID: by}
		}
		f.events, f.owner[e.ID] = append(f.events, e), mine
	}
	add(1, 3*time.Minute, account.AuditBackendSwitched, "", f.backends[3].ID,
		map[string]string{"from": f.backends[0].ID, "to": f.backends[1].ID})
	add(2, 42*time.Minute, account.AuditSessionEnded, f.tokens[1].ID, f.id(account.PrefixTunnelSession, 3*time.Hour, 9),
		map[string]string{"ip": "198.51.100.80", "agent_version": "0.5.0", "os": "linux/amd64"})
	add(3, time.Hour, account.AuditSessionStarted, f.tokens[0].ID, f.agents[0].ID,
		map[string]string{"ip": "203.0.113.24", "agent_version": "0.5.0", "os": "linux/amd64"})
	add(4, 2*time.Hour, account.AuditEndpointCreated, f.tokens[0].ID, f.endpoints[0].ID,
		map[string]string{"url": "http://hello.demo"})
	add(5, 26*time.Hour, account.AuditAPIKeyCreated, f.keys[0].ID, f.keys[4].ID, nil)
	add(6, 96*time.Hour, account.AuditAppUserRevoked, f.keys[2].ID, f.revokedBefore(),
		map[string]string{"reason": account.RevokedByAdmin, "sessions": "2", "provider": "Google"})
	for i := range 60 {
		add(10+i, time.Duration(30+i)*time.Hour, account.AuditEndpointUpdated, f.keys[0].ID,
			f.endpoints[i%len(f.endpoints)].ID, map[string]string{"url": f.endpoints[i%len(f.endpoints)].URL})
	}
}

// addTheirs gives another account one thing of each kind.
func (f *fake) addTheirs() {
	age := 5 * time.Hour
	f.endpoints = append(f.endpoints, account.Endpoint{ID: f.id(account.PrefixEndpoint, age, 999),
		URL: "http://theirs.demo", Bindings: []string{"kubernetes"}, Status: "online"})
	f.ops = append(f.ops, account.Operator{ID: f.id(account.PrefixOperator, age, 999),
		Binding: &account.OperatorBinding{}})
	f.backends = append(f.backends, account.Backend{ID: f.id("bkdst", age, 999), Kind: account.BackendStatic,
		Static: &account.StaticAddress{Address: "theirs:1"}})
	f.agents = append(f.agents, account.TunnelSession{ID: f.id(account.PrefixTunnelSession, age, 999)})
	f.users = append(f.users, account.User{ID: f.id(account.PrefixUser, age, 999), Name: "Mallory of theirs"})
	f.sessions = append(f.sessions, account.AppSession{ID: f.id(account.PrefixAppSession, age, 999),
		User: account.Ref{ID: f.id(account.PrefixUser, age, 999)}})
	f.keys = append(f.keys, account.APIKey{ID: f.id(account.PrefixAPIKey, age, 999),
		Scopes: []account.Scope{account.ScopeAdmin}})
	f.tokens = append(f.tokens, account.Authtoken{ID: f.id(account.PrefixCredential, age, 999)})
	f.clusters = append(f.clusters, account.Cluster{ID: f.id(account.PrefixCluster, age, 999), Name: "theirs"})
	for _, prefix := range []string{account.PrefixEndpoint, account.PrefixOperator, "bkdst",
		account.PrefixTunnelSession,
		account.PrefixUser, account.PrefixAppSession, account.PrefixAPIKey, account.PrefixCredential,
		account.PrefixCluster} {
		f.owner[f.id(prefix, age, 999)] = theirs
	}
}

// RedactionMark implements httpkit.Redactor.
func (f *fake) RedactionMark(_, secret string) string {
	if secret == "hunter2-hunter2" {
		return "redacted:4f2a90c1"
	}
	return fmt.Sprintf("redacted:%08x", crc32.ChecksumIEEE([]byte(secret)))
}

// dashboardOf serves a dashboard over the fake.
func dashboardOf(t *testing.T, f *fake, change func(*Options)) *httptest.Server {
	t.Helper()
	opt := Options{Store: f, Traffic: f, Version: "0.5.0", Limits: Limits{SignInBurst: 1000},
		CheckPolicy: checkPolicy, Sealer: testSealer{}}
	opt.SharedOptions = httpkit.SharedOptions{SessionEnder: f, Revoker: f, Backends: f,
		Redactor: f, BaseURL: "https://fairlead.example.com:8443",
		Logger: slog.New(slog.DiscardHandler),
		MatchSelectors: func(selectors []string) (func(*account.Endpoint) bool, error) {
			return func(e *account.Endpoint) bool {
				return len(selectors) == 0 ||
					strings.HasSuffix(e.Host,
						strings.TrimSuffix(strings.TrimPrefix(selectors[0], "ep.hostname.endsWith('"), "')"))
			}, nil
		},
		Clock: func() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now },
	}
	if change != nil {
		change(&opt)
	}
	srv := httptest.NewServer(New(opt))
	t.Cleanup(srv.Close)
	return srv
}

// browser is a client that keeps cookies and follows no redirect.
type browser struct {
	t      *testing.T
	at     string
	cookie map[string]string
}

func newBrowser(t *testing.T, srv *httptest.Server) *browser {
	return &browser{t: t, at: srv.URL, cookie: map[string]string{}}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (b *browser) do(method, path, form string, header map[string]string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.at+path, strings.NewReader(form))
	must.Succeed(b.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	for name, value := range b.cookie {
		if name == cookiePrefix {
			name = CookieName(r.Host)
		}
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	must.Succeed(b.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.Succeed(b.t, err)
	for _, c := range res.Cookies() {
		c.Name, _, _ = strings.Cut(c.Name, "~")
		if c.MaxAge < 0 {
			delete(b.cookie, c.Name)
		} else {
			b.cookie[c.Name] = c.Value
		}
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func (b *browser) get(path string) answer { b.t.Helper(); return b.do(http.MethodGet, path, "", nil) }

func (b *browser) post(path, form string) answer {
	b.t.Helper()
	return b.do(http.MethodPost, path, form, nil)
}

// signedInAs signs in with a key.
func signedInAs(t *testing.T, srv *httptest.Server, secret string) *browser {
	t.Helper()
	b := newBrowser(t, srv)
	if a := b.post("/ui/sign-in", "key="+secret); a.status != http.StatusSeeOther || b.cookie[cookiePrefix] == "" {
		t.Fatalf("signing in with %s: %d\n%s", secret, a.status, a.body)
	}
	return b
}

// newDashboard serves a dashboard over a new fake.
func newDashboard(t *testing.T) (*fake, *httptest.Server) {
	t.Helper()
	f := newFake(testTime())
	return f, dashboardOf(t, f, nil)
}

// newSignedIn signs in with a key at a dashboard over a new fake.
func newSignedIn(t *testing.T, secret string) (*fake, *browser) {
	t.Helper()
	f, srv := newDashboard(t)
	return f, signedInAs(t, srv, secret)
}

// testTime is when the tests take place.
func testTime() time.Time { return time.Date(2026, 11, 20, 9, 41, 0, 0, time.UTC) }

func checkPolicy(text, scheme, binding string) (account.PolicyFacts, error) {
	p, err := trafficpolicy.Compile(text, trafficpolicy.Options{Scheme: scheme, Binding: binding})
	if err != nil {
		return account.PolicyFacts{}, err
	}
	return p.Facts(), nil
}
