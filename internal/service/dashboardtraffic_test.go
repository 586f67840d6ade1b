// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"database/sql"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// trafficRig is a service with an endpoint of each kind, and a signed-in browser.
type trafficRig struct {
	*servicetest.Path
	tcp, cloud tunnel.Bound
	backend    string
	browser    *testBrowser
}

func newTrafficRig(t *testing.T) *trafficRig {
	t.Helper()
	answer := func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.URL.Path[1:4])
		if err != nil {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("planted-answer"))
	}
	r := servicetest.Start(t, servicetest.AllowLoopback)
	rig := &trafficRig{Path: servicetest.NewPathTo(t, r, servicetest.ServeHTTP(t, answer)),
		browser: newDashboardBrowser(r)}
	echo := servicetest.ServeTCP(t, servicetest.Echo)
	db := r.StartAgent(tunnel.Bind{URL: "tcp://db.demo:5432", Binding: "kubernetes", UpstreamURL: "tcp://" + echo},
		echo)
	rig.tcp = servicetest.Receive(t, db.Bound, "bind of the database")
	tenant := r.Tenant()
	rig.backend = tenant.Static(servicetest.ServeHTTP(t, answer))
	rig.cloud = tenant.Cloud("kubernetes", "http://shop.demo", "", rig.backend)
	if status := rig.browser.signIn(r.APIKey); status != http.StatusSeeOther {
		t.Fatalf("signing in: %d", status)
	}
	return rig
}

// send sends n requests for a path that begins with the status of the answer.
func (r *trafficRig) send(to tunnel.Bound, path string, n int) {
	r.T.Helper()
	tr := r.Forwarder.Transport(to)
	for range n {
		res := r.Forwarder.Do(tr, "POST", to.URL+path+"?q=planted-query", strings.NewReader("planted-body"),
			http.Header{"Authorization": {"Bearer planted-header"}, "Cookie": {"sid=planted-cookie"}})
		servicetest.ReadAll(r.T, res.Body)
	}
}

func (r *trafficRig) sendAll() {
	r.T.Helper()
	r.send(r.Bound, "/200/fine", 30)
	r.send(r.Bound, "/404/missing", 12)
	r.send(r.Bound, `/500/<script>alert(1)</script>`, 6)
	r.send(r.cloud, "/503/sorry", 24)
	for range 6 {
		st := r.Forwarder.OpenEcho(r.tcp)
		_ = st.CloseWrite()
		servicetest.ReadAll(r.T, st)
		_ = st.Close()
	}
}

// page returns a page of the dashboard.
func (p *testBrowser) page(path string) string {
	p.T.Helper()
	status, _, body := p.request(path, nil)
	if status != http.StatusOK {
		p.T.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

// rateCell matches a rate in the table of a chart, and the line that it is of.
var rateCell = regexp.MustCompile(`data-label="([^"]*)">(?:&lt;)?([0-9.]+)(k?)/s<`)

// linesWith returns the lines of charts in which a row of the table is not 0.
func linesWith(page string) map[string]bool {
	found := map[string]bool{}
	for _, cell := range rateCell.FindAllStringSubmatch(page, -1) {
		if v, err := strconv.ParseFloat(cell[2], 64); err == nil && v > 0 {
			found[cell[1]] = true
		}
	}
	return found
}

// requireLines requires that exactly some of the lines of counts have values.
func requireLines(t *testing.T, name, page string, want ...string) {
	t.Helper()
	found := linesWith(page)
	for _, line := range []string{"Requests", "Connections", "Failed", "1xx, 2xx", "3xx", "4xx", "5xx"} {
		wanted := false
		for _, w := range want {
			wanted = wanted || w == line
		}
		if found[line] != wanted {
			t.Errorf("%s: the line %s has values: %t, want %t", name, line, found[line], wanted)
		}
	}
}

// TestDashboard_ShowsTraffic sends requests and connections through a whole service, and reads the
// pages of the account, the endpoints and the backend. Another account sees nothing of it.
func TestDashboard_ShowsTraffic(t *testing.T) {
	t.Parallel()
	r := newTrafficRig(t)
	wait.Until(t, "a step that is recorded as a whole", func() bool {
		return strings.Contains(r.browser.page("/ui/traffic"), "<strong>0/s<")
	})
	r.sendAll()
	var shown string
	defer func() {
		if t.Failed() {
			t.Logf("the map is %s", shown)
		}
	}()
	wait.Until(t, "the rates of the last minute on the map", func() bool {
		shown = r.browser.page("/ui/map")
		for _, part := range []string{"3 endpoints, 1.3/s", // 48 + 24 + 6 in a minute
			">0.1/s failing<", ">0.4/s failing<", ">0.1/s<"} {
			if !strings.Contains(shown, part) {
				return false
			}
		}
		return true
	})
	pages := map[string][]string{
		"/ui/traffic": {"Requests", "Connections", "Failed", "1xx, 2xx", "4xx", "5xx"},
		"/ui/endpoints/" + r.Bound.EndpointID + "/traffic": {"Requests", "Failed", "1xx, 2xx", "4xx", "5xx"},
		"/ui/endpoints/" + r.cloud.EndpointID + "/traffic": {"Requests", "Failed", "5xx"},
		"/ui/endpoints/" + r.tcp.EndpointID + "/traffic":   {"Connections"},
		"/ui/backends/" + r.backend + "/traffic":           {"Requests", "Failed", "5xx"},
	}
	for path, want := range pages {
		body := r.browser.page(path)
		requireLines(t, path, body, want...)
		if strings.Contains(body, "planted") || strings.Contains(body, "<script>") {
			t.Errorf("%s has a secret, or text as HTML", path)
		}
	}
	r.requireRecent()
	r.requireIsolation(pages)
}

// requireRecent looks at the recent requests of the endpoints.
func (r *trafficRig) requireRecent() {
	t := r.T
	t.Helper()
	path := "/ui/endpoints/" + r.Bound.EndpointID + "/traffic"
	for query, want := range map[string]int{"": 48, "?requests=failing": 6} {
		body := r.browser.page(path + query)
		if n := strings.Count(body, "POST <span"); n != want {
			t.Errorf("%d recent requests with %q, want %d", n, query, want)
		}
		if strings.Contains(body, "/404/missing") != (query == "") || !strings.Contains(body, "/500/") {
			t.Errorf("the filter %q shows others", query)
		}
	}
	if body := r.browser.page("/ui/endpoints/" + r.tcp.EndpointID + "/traffic"); !strings.Contains(body,
		"Recent connections") || strings.Count(body, ">ended<") != 6 {
		t.Error("the connections are not listed")
	}
}

// requireIsolation requires that another account has no traffic and none of the pages.
func (r *trafficRig) requireIsolation(pages map[string][]string) {
	t := r.T
	t.Helper()
	other := newDashboardBrowser(r.Server)
	if status := other.signIn(r.CreateAccount().APIKey); status != http.StatusSeeOther {
		t.Fatalf("signing in to another account: %d", status)
	}
	for path := range pages {
		status, _, body := other.request(path, nil)
		if path != "/ui/traffic" && status != http.StatusNotFound {
			t.Errorf("another account gets %s: %d", path, status)
		}
		if len(linesWith(body)) > 0 || strings.Contains(body, "hello.demo") || strings.Contains(body, "/500/") {
			t.Errorf("another account sees traffic at %s", path)
		}
	}
	if body := other.page("/ui/map"); strings.Contains(body, "shop.demo") ||
		strings.Contains(body, r.Bound.EndpointID) || strings.Contains(body, "/s<") {
		t.Error("another account sees endpoints or rates on the map")
	}
}

// TestDashboard_SumsTrafficOfReplicas calls an endpoint through two replicas: the pages of each
// have the sum, and name a third one that does not answer.
func TestDashboard_SumsTrafficOfReplicas(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	_, bound := bindHello(one)
	for r, n := range map[*servicetest.Server]int{one: 12, two: 18} {
		f := r.StartForwarder()
		for range n {
			f.Get(bound)
		}
	}
	path := "/ui/endpoints/" + bound.EndpointID + "/traffic"
	browsers := map[string]*testBrowser{}
	for name, r := range map[string]*servicetest.Server{"one": one, "two": two} {
		b := newDashboardBrowser(r)
		if status := b.signIn(r.APIKey); status != http.StatusSeeOther {
			t.Fatalf("signing in: %d", status)
		}
		browsers[name] = b
		wait.Until(t, "the sum on the map of "+name, func() bool {
			return strings.Contains(b.page("/ui/map"), ">0.5/s<") // 30 in a minute
		})
		body := b.page(path)
		if n := strings.Count(body, "GET <span"); n != 30 {
			t.Errorf("%s lists %d requests, want 30", name, n)
		}
		if strings.Contains(body, "did not answer") {
			t.Errorf("%s names a silent replica where all answer", name)
		}
	}
	silent, beat := g.addSilent()
	for name, b := range browsers {
		for _, path := range []string{path, "/ui/traffic", "/ui/map"} {
			wait.Until(t, "the silent replica at "+path+" of "+name, func() bool {
				beat()
				return strings.Contains(b.page(path), "<code>"+silent+"</code> did not answer")
			})
		}
	}
}

// addSilent adds a replica that no other can reach to the database, and returns its id. beat lets
// it live on.
func (g *replicaGroup) addSilent() (id string, beat func()) {
	g.t.Helper()
	db, err := sql.Open("pgx", g.database)
	must.Succeed(g.t, err)
	g.t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // temporary tables are those of a connection
	exec := func(statement string) {
		g.t.Helper()
		if _, err := db.ExecContext(servicetest.Context(g.t), statement); err != nil {
			g.t.Fatal(err)
		}
	}
	id = account.NewID(account.PrefixReplica, time.Now())
	exec(`CREATE TEMP TABLE silent AS SELECT * FROM replicas LIMIT 1`)
	exec(`UPDATE silent SET id = '` + id + `', relay_address = '127.0.0.1:1'`)
	exec(`INSERT INTO replicas SELECT * FROM silent`)
	exec(`INSERT INTO replica_beats (replica_id, beats) VALUES ('` + id + `', 1)`)
	return id, func() {
		g.t.Helper()
		exec(`UPDATE replica_beats SET beats = beats + 1 WHERE replica_id = '` + id + `'`)
	}
}
