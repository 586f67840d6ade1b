// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// pageTexts returns texts that the pages show, by path.
func pageTexts(f *fake) map[string][]string {
	const policy = "/ui/traffic-policy/"
	return map[string][]string{
		"/ui/": {"Overview", "http://ledger.prod", "Operator silent",
			"Child 2 of 3 serves.", "Migration in autumn", "Backend switched over"},
		"/ui/endpoints": {"http://hello.demo", "tcp://orders.prod:5432", "203.0.113.24",
			"7 endpoints", `datetime="2026-11-20T07:41:00Z" title="20 Nov 2026, 07:41:00 UTC">2 h ago`},
		"/ui/traffic": {"Requests and connections a second", "Answers by status", "Latency", "http://shop.prod",
			"All others", "rp-lost"},
		"/ui/endpoints/" + f.endpoints[1].ID + "/traffic": {"Connections a second", "Duration of connections",
			"Recent connections"},
		"/ui/backends/" + f.backends[3].ID + "/traffic": {"Traffic of Shop", "Bytes a second"},
		"/ui/map": {"Namespace prod", "Internal", "7 endpoints", "2 with a broken hop", "lab", "eu-1",
			"failed over"},
		"/ui/map?state=broken&q=LEDGER": {"http://ledger.prod", "1 endpoint,"},
		"/ui/endpoints/" + f.endpoints[2].ID + "/path": {"No agent is connected for http://ledger.prod, since",
			"fairlead doctor http://ledger.prod --context CLUSTER", "books/ledger"},
		"/ui/endpoints?q=ORDERS":              {"tcp://orders.prod:5432", "1 endpoint<"},
		"/ui/endpoints?binding=public":        {"https://app.example.com", "2 endpoints"},
		"/ui/endpoints?status=offline":        {"http://ledger.prod", "1 endpoint<", ">books/ledger<"},
		"/ui/endpoints?q=nothing-of-the-sort": {"No endpoint matches.", "0 endpoints"},
		"/ui/endpoints/" + f.endpoints[4].ID:  {"https://app.example.com", "redacted:4f2a90c1", "openid-connect"},
		"/ui/endpoints/" + f.endpoints[2].ID: {"AgentEndpoint books/ledger <span", "<code>1f0c3a52</code>",
			"no exporter holds it"},
		"/ui/endpoints/" + f.endpoints[3].ID: {"http://shop.prod", ">Shop<", f.backends[1].ID},
		"/ui/kubernetes-operators": {"fairlead/fairlead-operator", "eu-1",
			"ep.hostname.endsWith(&#39;.prod&#39;)"},
		"/ui/kubernetes-operators/" + f.ops[1].ID: {"us-1", "http://ledger.prod", "http://shop.prod", "3 endpoints"},
		"/ui/backends":                     {"Shop", "Reports", "not the first"},
		"/ui/backends?kind=weighted":       {"Canary of the API"},
		"/ui/backends/" + f.backends[3].ID: {"API, all sites", "Sorry page", "serves now", "502, 503"},
		"/ui/backends/" + f.backends[0].ID: {"app=api", "site=berlin", "http://localhost:9000"},
		"/ui/backends/" + f.backends[2].ID: {"Retry-After: 60", "&lt;h1&gt;We are back in a minute&lt;/h1&gt;"},
		"/ui/agents":                       {"203.0.113.24", "darwin/arm64", "site=lisbon"},
		"/ui/agents/" + f.agents[0].ID:     {"203.0.113.24 (linux/amd64)", "http://hello.demo", "site=berlin"},
		policy + "identities": {"Alice Amari", "chiara@example.com", "erin-dev", "8 identities",
			"Revoke Alice Amari, Google"},
		policy + "identities?q=BOB":                  {"Bob Brandt", "1 identity<"},
		policy + "identities?q=5829013":              {"erin-dev", "1 identity<"},
		policy + "identities?q=partner.example/meta": {"Dmitri Denisov", "Hiroshi Honda"},
		policy + "identities?provider=GitHub":        {"erin-dev", "1 identity<"},
		policy + "identities/" + f.users[0].ID: {"Alice Amari", "https://accounts.google.com", "107834512098",
			"https://app.example.com", "https://reports.example.com", "Safari 19.1", "Example Telecom, AS64500",
			"Germany",
			"3 live sessions"},
		policy + "sessions/" + f.sessions[0].ID: {"Mozilla/5.0 (Macintosh", "52.52, 13.40 (within 20 km)",
			"203.0.113.90", "AS64500"},
		policy + "sessions/" + f.sessions[2].ID: {"--geoip-database"},
		"/ui/api-keys":                          {"Anna, platform team", "You are signed in with it", "Security desk"},
		"/ui/authtokens":                        {"Laptops", "bind:http://*.demo", "connect:*"},
		"/ui/clusters": {"eu-1", "New York", "RS256", "fairlead/fairlead-operator-manager", "operator", "3 clusters",
			"Refused tokens"},
		"/ui/clusters/" + f.clusters[1].ID: {"us-1", "https://oidc.us.example.com/id/8D1F3A", "2026-11", "ES256",
			"https://fairlead.example.com:8443/accounts/" + mine, "bind:http://*.books", "0b6e6a52-3d1f", "connect:*"},
		"/ui/events": {"Agent disconnected", "Endpoint updated", "The newest 50 events",
			"Older"},
		"/ui/events?type=api_key.created":           {"API key created", "1 event<"},
		"/ui/events?object_id=" + f.endpoints[0].ID: {"Endpoint created", "http://hello.demo"},
	}
}

func TestPages_ShowTheirObjects(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	for path, wanted := range pageTexts(f) {
		a := b.get(path)
		if a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
		for _, w := range wanted {
			if !strings.Contains(a.body, w) {
				t.Errorf("%s: %q is missing", path, w)
			}
		}
		if strings.Contains(a.body, "hunter2") || strings.Contains(a.body, "theirs") {
			t.Errorf("%s shows a secret or an object of another account", path)
		}
	}
}

func TestPager_LinksPages(t *testing.T) {
	t.Parallel()
	_, b := newSignedIn(t, "flk_read")
	seen, next := 0, "/ui/events?type=endpoint.updated"
	for range 3 {
		a := b.get(next)
		seen += strings.Count(a.body, `data-key="ev-`)
		_, rest, more := strings.Cut(a.body, `" rel="next"`)
		if !more {
			break
		}
		_ = rest
		before := a.body[:strings.Index(a.body, `" rel="next"`)]
		next = html.UnescapeString(before[strings.LastIndex(before, `href="`)+len(`href="`):])
		if !strings.Contains(next, "type=endpoint.updated") {
			t.Fatalf("the link to the next page has lost the filter: %s", next)
		}
	}
	if seen != 60 {
		t.Errorf("saw %d events on all pages, want 60", seen)
	}
	if a := b.get("/ui/events?before_id=%3Cscript%3E&type=nonsense"); a.status != http.StatusOK ||
		strings.Contains(a.body, "<script>&") {
		t.Errorf("a position that is none: %d", a.status)
	}
}

// TestScan_FindsOldMatches requires that a list filtered by the dashboard, not by the store, has
// no gaps and ends.
func TestScan_FindsOldMatches(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	for i := range 2500 {
		e := account.Endpoint{ID: f.id(account.PrefixEndpoint, time.Duration(i)*time.Second, 1000+i),
			URL: fmt.Sprintf("http://e%d.many", i), Host: "x", Bindings: []string{"kubernetes"}, Type: "agent",
			Status: "online"}
		f.endpoints, f.owner[e.ID] = append(f.endpoints, e), mine
	}
	srv := dashboardOf(t, f, nil)
	b := signedInAs(t, srv, "flk_read")
	if a := b.get("/ui/endpoints?q=hello.demo"); !strings.Contains(a.body, "http://hello.demo") {
		t.Error("an endpoint behind 2,500 others is not found")
	}
	a := b.get("/ui/endpoints?q=many")
	if n := strings.Count(a.body, `data-key="ep-`); n != pageSize ||
		!strings.Contains(a.body, "The newest 50 endpoints") {
		t.Errorf("a page of a filtered list has %d rows, want %d", n, pageSize)
	}
	if a := b.get("/ui/"); !strings.Contains(a.body, "2,507") {
		t.Error("the overview does not count them")
	}
}

func TestScopes_LimitPages(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	policy, user, session := "/ui/traffic-policy/", f.users[0].ID, f.sessions[0].ID
	everyone, readers, admins, revokers := "ari", "ar", "a", "ai"
	may := map[string]string{
		"/ui/endpoints": readers, "/ui/endpoints/" + f.endpoints[0].ID: readers, "/ui/kubernetes-operators": readers,
		"/ui/kubernetes-operators/" + f.ops[0].ID: readers, "/ui/traffic": readers, "/ui/map": readers,
		"/ui/endpoints/" + f.endpoints[0].ID + "/traffic": readers,
		"/ui/endpoints/" + f.endpoints[0].ID + "/path":    readers,
		"/ui/backends/" + f.backends[0].ID + "/traffic":   readers,
		"/ui/backends": readers, "/ui/backends/" + f.backends[0].ID: readers, "/ui/agents": readers,
		"/ui/agents/" + f.agents[0].ID: readers, "/ui/events": readers,
		"/ui/api-keys": readers, "/ui/authtokens": readers, "/ui/": readers,
		"/ui/clusters": readers, "/ui/clusters/" + f.clusters[0].ID: readers,
		"/ui/clusters/" + f.clusters[0].ID + "/delete":      admins,
		"POST /ui/clusters/" + f.clusters[0].ID + "/delete": admins,
		policy + "identities":                               everyone, policy + "identities/" + user: everyone,
		policy + "sessions/" + session:            everyone,
		policy + "identities/" + user + "/revoke": revokers, policy + "sessions/" + session + "/revoke": revokers,
		"/ui/agents/" + f.agents[0].ID + "/stop": admins, "/ui/agents/" + f.agents[0].ID + "/restart": admins,
		"/ui/api-keys/new": admins, "/ui/authtokens/new": admins,
		"/ui/api-keys/" + f.keys[1].ID + "/delete": admins, "/ui/authtokens/" + f.tokens[0].ID + "/delete": admins,
		"POST /ui/agents/" + f.agents[0].ID + "/stop": admins, "POST /ui/agents/" + f.agents[0].ID + "/restart": admins,
		"POST /ui/api-keys/new": admins, "POST /ui/authtokens/new": admins,
		"POST /ui/api-keys/" + f.keys[3].ID + "/delete":              admins,
		"POST /ui/authtokens/" + f.tokens[0].ID + "/delete":          admins,
		"POST " + policy + "identities/" + f.users[1].ID + "/revoke": revokers,
		"POST " + policy + "sessions/" + session + "/revoke":         revokers,
	}
	for initial, secret := range map[string]string{"r": "flk_read", "i": "flk_identities", "a": "flk_admin"} {
		own := newFake(testTime()) // the same ids, and what is done is done there
		checkScope(t, signedInAs(t, dashboardOf(t, own, nil), secret), initial, may)
	}
}

func checkScope(t *testing.T, b *browser, initial string, may map[string]string) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(may)) { // "/…" before "POST /…"
		who := may[what]
		method, path, post := strings.Cut(what, " ")
		var a answer
		if post {
			form := "description=x&scopes=read"
			if strings.Contains(path, "authtokens") {
				form = "description=x&acl=bind:*"
			}
			a = b.do(method, path, form, nil)
		} else {
			a = b.get(what)
		}
		if strings.Contains(who, initial) {
			if a.status >= 400 {
				t.Errorf("%s may %s, and gets %d", initial, what, a.status)
			}
			continue
		}
		if what == "/ui/" && a.status == http.StatusSeeOther && a.header.Get("Location") == identitiesPath {
			continue
		}
		if a.status != http.StatusForbidden || !strings.Contains(a.body, "this needs an API key with the scope") &&
			!strings.Contains(a.body, "This needs an API key with the scope") {
			t.Errorf("%s may not %s, and gets %d", initial, what, a.status)
		}
	}
}

func TestScopes_HideControls(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	identity := "/ui/traffic-policy/identities"
	for _, c := range []struct {
		secret, path, control string
		shown                 bool
	}{
		{"flk_admin", identity, "/revoke?", true}, {"flk_identities", identity, "/revoke?", true},
		{"flk_read", identity, "/revoke", false},
		{"flk_read", identity + "/" + f.users[0].ID, "/revoke", false},
		{"flk_identities", identity + "/" + f.users[0].ID, "/revoke", true},
		{"flk_identities", identity, "/ui/endpoints", false},
		{"flk_identities", identity + "/" + f.users[0].ID, "/ui/endpoints", false},
		{"flk_read", "/ui/agents", "/stop", false}, {"flk_admin", "/ui/agents", "/stop", true},
		{"flk_read", "/ui/api-keys", "/delete", false}, {"flk_read", "/ui/api-keys", "/new", false},
		{"flk_admin", "/ui/api-keys", "/delete", true}, {"flk_read", "/ui/authtokens", "/delete", false},
	} {
		a := signedInAs(t, srv, c.secret).get(c.path)
		if strings.Contains(a.body, c.control) != c.shown {
			t.Errorf("%s at %s: shown %q: want %t", c.secret, c.path, c.control, c.shown)
		}
	}
	// Every row has its control.
	a := signedInAs(t, srv, "flk_admin").get(identity)
	if rows, controls := strings.Count(a.body, `data-key="au-`), strings.Count(a.body, "/revoke?return="); rows != 8 ||
		controls != rows {
		t.Errorf("%d rows have %d controls", rows, controls)
	}
}

func TestPages_HideOtherAccounts(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	last := func(prefix string) string { return f.id(prefix, 5*time.Hour, 999) }
	for _, what := range []string{
		"/ui/endpoints/" + last(account.PrefixEndpoint), "/ui/kubernetes-operators/" + last(account.PrefixOperator),
		"/ui/backends/" + last("bkdst"), "/ui/backends/nonsense", "/ui/backends/" + last("bkdst") + "/traffic",
		"/ui/endpoints/" + last(account.PrefixEndpoint) + "/traffic",
		"/ui/endpoints/" + last(account.PrefixEndpoint) + "/path",
		"/ui/agents/" + last(account.PrefixTunnelSession), "/ui/traffic-policy/identities/" + last(account.PrefixUser),
		"/ui/traffic-policy/sessions/" + last(account.PrefixAppSession),
		"/ui/traffic-policy/identities/" + last(account.PrefixUser) + "/revoke",
		"/ui/api-keys/" + last(account.PrefixAPIKey) + "/delete", "/ui/no/such/page", "/ui/static/none.css",
		"POST /ui/agents/" + last(account.PrefixTunnelSession) + "/stop",
		"POST /ui/agents/" + last(account.PrefixTunnelSession) + "/restart",
		"POST /ui/traffic-policy/identities/" + last(account.PrefixUser) + "/revoke",
		"POST /ui/traffic-policy/sessions/" + last(account.PrefixAppSession) + "/revoke",
		"POST /ui/api-keys/" + last(account.PrefixAPIKey) + "/delete",
		"POST /ui/authtokens/" + last(account.PrefixCredential) + "/delete",
		"/ui/clusters/" + last(account.PrefixCluster), "/ui/clusters/" + last(account.PrefixCluster) + "/delete",
		"POST /ui/clusters/" + last(account.PrefixCluster) + "/delete",
	} {
		var a answer
		if path, post := strings.CutPrefix(what, "POST "); post {
			a = b.post(path, "")
		} else {
			a = b.get(what)
		}
		if a.status != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", what, a.status)
		}
	}
	for _, path := range []string{"/ui/endpoints", "/ui/kubernetes-operators", "/ui/agents",
		"/ui/traffic-policy/identities", "/ui/backends?kind=static", "/ui/api-keys", "/ui/authtokens",
		"/ui/clusters"} {
		a := b.get(path)
		for id, owner := range f.owner {
			if owner == theirs && strings.Contains(a.body, id) {
				t.Errorf("%s shows %s of another account", path, id)
			}
		}
	}
}

func TestPages_ReportStoreOutage(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	b := signedInAs(t, srv, "flk_admin")
	f.set(func() { f.down = true })
	for _, p := range shownPages(f) {
		a := b.get(p.path)
		if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "The store does not answer") ||
			!strings.Contains(a.body, "Try again") || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", p.path, a.status)
		}
	}
	if a := b.post("/ui/traffic-policy/identities/"+f.users[0].ID+"/revoke",
		""); a.status != http.StatusServiceUnavailable {
		t.Errorf("revoking: %d", a.status)
	}
	if a := newBrowser(t, srv).post("/ui/sign-in", "key=flk_admin"); a.status != http.StatusServiceUnavailable ||
		a.header.Get("Set-Cookie") != "" {
		t.Errorf("signing in: %d", a.status)
	}
}

func TestForms_RefusedWhileDraining(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	srv := dashboardOf(t, f, func(o *Options) {
		o.Draining = new(atomic.Bool)
		o.Draining.Store(true)
	})
	b := signedInAs(t, srv, "flk_admin")
	if a := b.get("/ui/endpoints"); a.status != http.StatusOK {
		t.Errorf("a page: %d", a.status)
	}
	if a := b.post("/ui/traffic-policy/identities/"+f.users[0].ID+"/revoke",
		""); a.status != http.StatusServiceUnavailable || len(f.revoked) != 0 {
		t.Errorf("revoking: %d, revoked %v", a.status, f.revoked)
	}
}
