// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// mapCase is an endpoint and what the map says of it.
type mapCase struct {
	name             string
	change           func(*account.Endpoint, *pathSource)
	upstream, caller string // class, text and node of the arrows
}

func mapCases() []mapCase {
	rate := func(all, failing float64) func(*account.Endpoint, *pathSource) {
		return func(e *account.Endpoint, p *pathSource) {
			p.rates = map[traffic.Key]traffic.Rate{traffic.Key(e.ID): {PerSecond: all, FailingPerSecond: failing}}
		}
	}
	return []mapCase{
		{"idle", func(*account.Endpoint, *pathSource) {}, "idle idle 10.0.0.1", "idle idle eu"},
		{"busy", rate(3.5, 0), "ok 3.5/s 10.0.0.1", "ok 3.5/s eu"},
		{"some fail", rate(4, 1), "warning 1/s failing 10.0.0.1", "ok 4/s eu"},
		{"most fail", rate(4, 3), "broken 3/s failing 10.0.0.1", "ok 4/s eu"},
		{"no agent", func(e *account.Endpoint, _ *pathSource) {
			e.TunnelSession = nil
		}, "broken offline no agent", "idle idle eu"},
		{"no exporter", func(e *account.Endpoint, _ *pathSource) {
			e.Status, e.Owner = account.StatusOffline, &account.Owner{Namespace: "books", Name: "ledger"}
		}, "broken offline books/ledger", "idle idle eu"},
		{"agent not listed", func(_ *account.Endpoint, p *pathSource) {
			p.agents = nil
		}, "idle idle ts-1", "idle idle eu"},
		{"no cluster", func(_ *account.Endpoint, p *pathSource) { p.operators = nil }, "idle idle 10.0.0.1",
			"warning not bound no cluster"},
		{"silent operator", func(_ *account.Endpoint, p *pathSource) {
			p.operators[0].Silent = true
		}, "idle idle 10.0.0.1",
			"broken silent eu"},
		{"broken selector", func(_ *account.Endpoint, p *pathSource) { p.operators[0].problem = "is no CEL" },
			"idle idle 10.0.0.1", "broken selector broken eu"},
		{"policy", func(e *account.Endpoint, _ *pathSource) { e.Type = account.TypeCloud }, "idle idle traffic policy",
			"idle idle eu"},
		{"backend is gone", func(e *account.Endpoint, _ *pathSource) {
			e.Type, e.BackendID = account.TypeCloud, "bkdfo-2"
		},
			"broken backend is gone bkdfo-2", "idle idle eu"},
		{"backend failed over", func(e *account.Endpoint, _ *pathSource) {
			e.Type, e.BackendID = account.TypeCloud, "bkdfo-1"
		},
			"warning failed over Shop", "idle idle eu"},
		{"public", func(e *account.Endpoint, _ *pathSource) { e.Bindings = []string{account.BindingPublic} },
			"idle idle 10.0.0.1", "idle idle Internet"},
		{"internal", func(e *account.Endpoint, _ *pathSource) { e.Bindings = []string{account.BindingInternal} },
			"idle idle 10.0.0.1", "idle idle traffic policies"},
		{"export", func(e *account.Endpoint, _ *pathSource) {
			e.Type, e.Bindings = account.TypeCloud, []string{account.BindingClusterset}
			e.ServiceExport, e.Owner = &account.ServiceExport{}, &account.Owner{Namespace: "a", Name: "b"}
		}, "warning not ready a/b", "unknown idle clusters that import it"},
	}
}

func TestMap_StatesOfHops(t *testing.T) {
	t.Parallel()
	for _, c := range mapCases() {
		e := &account.Endpoint{ID: "ep-1", URL: "http://a.b", Host: "a.b", Scheme: "http", Type: account.TypeAgent,
			Status: account.StatusOnline, Bindings: []string{account.BindingKubernetes},
			TunnelSession: &account.Ref{ID: "ts-1"}}
		operator := bindingOperator{operatorRow: operatorRow{Operator: account.Operator{
			Deployment: account.OperatorDeployment{ClusterName: "eu"}}},
			matches: func(*account.Endpoint) bool { return true }}
		p := &pathSource{now: testTime(), recorded: true, operators: []bindingOperator{operator},
			agents: map[string]account.TunnelSession{"ts-1": {ID: "ts-1", IP: "10.0.0.1"}},
			backends: map[string]backendRow{"bkdfo-1": {Active: "bkdst-2", Backend: account.Backend{ID: "bkdfo-1",
				Kind: account.BackendFailover, Description: "Shop", Children: []string{"bkdst-1", "bkdst-2"}}}}}
		c.change(e, p)
		row := p.row(e)
		say := func(a arrow) string { return a.Class() + " " + a.Text() + " " + a.Node }
		if got := say(row.Upstream); got != c.upstream {
			t.Errorf("%s: the arrow to the upstream is %q, want %q", c.name, got, c.upstream)
		}
		if got := say(row.Callers[0]); got != c.caller {
			t.Errorf("%s: the arrow to the callers is %q, want %q", c.name, got, c.caller)
		}
		for _, a := range append(row.Callers, row.Upstream) {
			if wrong := a.Status == path.Broken ||
				a.Status == path.Warning; wrong != (a.Diagnose == "/ui/endpoints/ep-1/path") {
				t.Errorf("%s: an arrow with the state %s links to %q", c.name, a.Status, a.Diagnose)
			}
		}
		for _, h := range append(p.callers(e), p.upstream(e)) {
			if h.Detail == "" || (h.Short != "") != (h.Fix != "") {
				t.Errorf("%s: the path says %+v", c.name, h)
			}
		}
	}
}

// TestMap_GroupsManyEndpoints requires that 200 endpoints are grouped by namespace, and that each
// is found by its cluster.
func TestMap_GroupsManyEndpoints(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.addMany(200)
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_read")
	body := b.get("/ui/map").body
	if n := strings.Count(body, `<tr data-key="ep-`); n != 207 {
		t.Errorf("%d endpoints are on the map, want 207", n)
	}
	for i := range 10 {
		if id := fmt.Sprintf("in-team-%d", i); strings.Count(body, `<h2 id="`+id+`"`) != 1 ||
			!strings.Contains(body, `href="#`+id+`"`) {
			t.Errorf("the group %s is missing", id)
		}
	}
	if got := strings.Count(b.get("/ui/map?q=us-1").body, `<tr data-key="ep-`); got != 3 {
		t.Errorf("%d endpoints are called from us-1, want 3", got)
	}
	if got := strings.Count(b.get("/ui/map?state=broken").body, `<tr data-key="ep-`); got != 22 {
		t.Errorf("%d endpoints have a broken hop, want 22", got)
	}
}

// TestMap_FoldsQuietEndpoints requires that a large map shows what is broken or busy, and the rest
// on request; a small map and a search show all at once.
func TestMap_FoldsQuietEndpoints(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_read")
	rows := func(path string) (shown, folded int) {
		for i, part := range strings.Split(b.get(path).body, `<details class="quiet-rows"`) {
			inside, after, _ := strings.Cut(part, "</details>")
			if i == 0 {
				inside, after = "", part
			}
			folded += strings.Count(inside, `<tr data-key="ep-`)
			shown += strings.Count(after, `<tr data-key="ep-`)
		}
		return shown, folded
	}
	if shown, folded := rows("/ui/map"); shown != 7 || folded != 0 {
		t.Errorf("of 7 endpoints %d are shown and %d folded", shown, folded)
	}
	f.addMany(200)
	if shown, folded := rows("/ui/map"); shown != 24 || folded != 183 {
		t.Errorf("of 207 endpoints %d are shown and %d folded, want the 24 that are broken or busy", shown, folded)
	}
	if shown, folded := rows("/ui/map?q=team-7"); shown != 20 || folded != 0 {
		t.Errorf("of the 20 endpoints that were searched %d are shown and %d folded", shown, folded)
	}
}

// addMany adds endpoints in ten namespaces, of which every tenth is offline.
func (f *fake) addMany(n int) {
	for i := range n {
		host := fmt.Sprintf("service-%d.team-%d", i, i%10)
		e := account.Endpoint{ID: f.id(account.PrefixEndpoint, time.Duration(i+1)*time.Minute, 1000+i), AccountID: mine,
			URL: "http://" + host, Host: host, Scheme: "http", Port: 80, Type: account.TypeAgent,
			Bindings: []string{account.BindingKubernetes}, Status: account.StatusOnline,
			TunnelSession: &account.Ref{ID: f.agents[i%3].ID}}
		if i%10 == i/10%10 {
			e.Status, e.TunnelSession, e.OfflineSince = account.StatusOffline, nil, new(ago(f, time.Hour))
		}
		f.endpoints, f.owner[e.ID] = append(f.endpoints, e), mine
	}
}
